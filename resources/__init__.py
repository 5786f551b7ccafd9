"""Adapters of real systems as Dagster resources: database, graph and HTTP, configured from PLATFORM_* settings."""

from dagster import Definitions

from resources.database import DatabaseResource
from resources.graph import GraphResource
from resources.http import HttpResource


def definitions() -> Definitions:
    database = DatabaseResource()
    return Definitions(
        resources={"database": database, "graph": GraphResource(database=database), "http": HttpResource()}
    )
