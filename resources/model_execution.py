"""The environment of model executions as a Dagster resource."""

from functools import partial
from zoneinfo import ZoneInfo

from dagster import ConfigurableResource, ResourceDependency

from platform_defs.arrivals.executions.model_run import ExecutionEnvironment
from platform_defs.arrivals.notify.kpi_message import notify_subscribers
from platform_defs.settings import Settings
from platform_defs.sources import Sources
from resources.database import DatabaseResource


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
            sources=Sources(engine, settings.sources),
            timeout_s=settings.model_timeout_s,
            notify=partial(notify_subscribers, zone=ZoneInfo(settings.zone)),
        )
