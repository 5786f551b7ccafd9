"""Lateness on /metrics: how many tables of each model that says when they are due have not arrived."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from platform_defs.arrivals import lateness
from platform_defs.errors import PlatformError
from platform_defs.settings import Settings
from platform_defs.store.engine import read


class ArrivalsCollector(Collector):
    def __init__(self, engine: Engine, settings: Settings) -> None:
        self._engine = engine
        self._zone = ZoneInfo(settings.zone)
        self._lookback = timedelta(days=settings.arrivals_lookback_days)

    def describe(self) -> list[Metric]:
        return []  # asked at registration, when the database may not answer yet

    def collect(self) -> Iterator[Metric]:
        now = datetime.now(UTC)
        try:
            found = read(
                self._engine,
                lambda connection: lateness.look(connection, self._zone, now, self._lookback),
                attempts=1,
            )
        except (PlatformError, SQLAlchemyError):
            return  # the API's own metrics matter most when the database is away
        family = GaugeMetricFamily(
            "platform_arrivals_late_tables", "Tables of expected batches that have not arrived", labels=["model"]
        )
        for model_id, late in found.items():
            family.add_metric([model_id], sum(len(batch.tables) for batch in late))
        yield family
