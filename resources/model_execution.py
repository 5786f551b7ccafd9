"""What an execution of a model works with, as a Dagster resource."""

from functools import partial
from zoneinfo import ZoneInfo

from dagster import ConfigurableResource, ResourceDependency

from platform_defs.arrivals.execution import House
from platform_defs.arrivals.notify.kpi_message import notify_subscribers
from platform_defs.settings import Settings
from platform_defs.sources import Sources
from resources.database import DatabaseResource


class HouseResource(ConfigurableResource["HouseResource"]):
    """Database, sources and webhooks of the settings; their URLs are no settings of the resource."""

    database: ResourceDependency[DatabaseResource]

    @property
    def house(self) -> House:
        settings, engine = Settings.load(), self.database.engine
        return House(
            engine=engine,
            sources=Sources(engine, settings.sources),
            timeout_s=settings.model_timeout_s,
            notify=partial(notify_subscribers, zone=ZoneInfo(settings.zone)),
        )
