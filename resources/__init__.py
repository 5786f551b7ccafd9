"""Adapters of real systems as Dagster resources: database, graph, models and HTTP, as PLATFORM_* settings say."""

from dagster import Definitions

from resources.database import DatabaseResource
from resources.graph import GraphResource
from resources.http import HttpResource
from resources.model_execution import HouseResource


def definitions() -> Definitions:
    database = DatabaseResource()
    return Definitions(
        resources={
            "database": database,
            "graph": GraphResource(database=database),
            "house": HouseResource(database=database),
            "http": HttpResource(),
        }
    )
