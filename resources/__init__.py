"""Adapters of real systems as Dagster resources: database, graph, HTTP, model execution; see PLATFORM_* settings."""

from dagster import Definitions

from resources.database import DatabaseResource
from resources.graph import GraphResource
from resources.http import HttpResource
from resources.ingest import IngestResource
from resources.model_execution import ModelExecutionResource


def definitions() -> Definitions:
    database, http = DatabaseResource(), HttpResource()
    return Definitions(
        resources={
            "database": database,
            "graph": GraphResource(database=database),
            "http": http,
            "ingest": IngestResource(database=database, http=http),
            "model_execution": ModelExecutionResource(database=database),
        }
    )
