"""The environment of model executions as a Dagster resource."""

from functools import partial
from zoneinfo import ZoneInfo

from dagster import ConfigurableResource, ResourceDependency

from platform_defs.arrivals.executions.model_run import ExecutionEnvironment
from platform_defs.arrivals.notify.kpi_message import notify_subscribers
from platform_defs.settings import Settings
from platform_defs.sources.named import Sources
from platform_defs.sources.reach import DAGSTER_TABLES
from resources.database import DatabaseResource


def _hidden_tables(settings: Settings) -> frozenset[str]:
    """Dagster's tables, if they are in the same database as the platform's."""
    dagster, own = settings.dagster_database_url, settings.database_url
    shared = dagster is not None and (dagster.host, dagster.port, dagster.database) == (
        own.host,
        own.port,
        own.database,
    )
    return DAGSTER_TABLES if shared else frozenset()


class ModelExecutionResource(ConfigurableResource["ModelExecutionResource"]):
    """Database, sources, time limit and notification, from PLATFORM_* settings.

    URLs are no configuration of the resource, because the UI would show them.
    """

    database: ResourceDependency[DatabaseResource]

    @property
    def environment(self) -> ExecutionEnvironment:
        settings, engine = Settings.load(), self.database.engine
        return ExecutionEnvironment(
            engine=engine,
            sources=Sources(engine, settings.sources, _hidden_tables(settings)),
            timeout_s=settings.model_timeout_s,
            notify=partial(notify_subscribers, zone=ZoneInfo(settings.zone)),
        )
