"""Lateness on /metrics: how many tables of each model that says when they are due have not arrived."""

import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from platform_defs.arrivals import lateness
from platform_defs.arrivals.lateness import Late
from platform_defs.errors import PlatformError
from platform_defs.settings import Settings
from platform_defs.store.engine import read

# Looking takes seconds with thousands of models: it may take a tenth of the time, however often somebody scrapes.
SHARE = 10


class ArrivalsCollector(Collector):
    def __init__(self, engine: Engine, settings: Settings) -> None:
        self._engine = engine
        self._zone = ZoneInfo(settings.zone)
        self._lookback = timedelta(days=settings.arrivals_lookback_days)
        self._found: Mapping[str, Sequence[Late]] = {}
        self._good_until = 0.0

    def describe(self) -> list[Metric]:
        return []  # asked at registration, when the database may not answer yet

    def collect(self) -> Iterator[Metric]:
        began = time.monotonic()
        if began >= self._good_until:
            try:
                self._found = read(self._engine, self._look, attempts=1)
            except (PlatformError, SQLAlchemyError):
                return  # the API's own metrics matter most when the database is away
            self._good_until = began + SHARE * (time.monotonic() - began)
        family = GaugeMetricFamily(
            "platform_arrivals_late_tables", "Tables of expected batches that have not arrived", labels=["model"]
        )
        for model_id, late in self._found.items():
            family.add_metric([model_id], sum(len(batch.tables) for batch in late))
        yield family

    def _look(self, connection: Connection) -> Mapping[str, Sequence[Late]]:
        return lateness.look(connection, self._zone, datetime.now(UTC), self._lookback)
