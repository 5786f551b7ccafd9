"""Late tables and given-up batches on /metrics, for each model."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy import Connection, Engine

from platform_defs.arrivals.executions.recovery import count_given_up
from platform_defs.arrivals.lateness import LateBatch, find_late_batches
from platform_defs.settings import Settings
from platform_defs.store.engine import read

# The query takes seconds with thousands of models. With this rest it uses a tenth of the time, however often somebody
# scrapes.
REST = 9.0


class ArrivalsCollector(Collector):
    """Counts the late tables of each model, whenever /metrics is scraped."""

    def __init__(self, engine: Engine, settings: Settings) -> None:
        self._engine = engine
        self._zone = ZoneInfo(settings.zone)
        self._lookback = timedelta(days=settings.arrivals_lookback_days)

    def collect(self) -> Iterator[Metric]:
        found = read(self._engine, self._find_late, attempts=1)
        family = GaugeMetricFamily(
            "platform_arrivals_late_tables", "Tables of expected batches that have not arrived", labels=["model"]
        )
        for model_id, late in found.items():
            family.add_metric([model_id], sum(len(batch.tables) for batch in late))
        yield family
        given_up = GaugeMetricFamily(
            "platform_arrivals_given_up",
            "Batches that are not executed again before their next arrival",
            labels=["model"],
        )
        for model_id, count in read(self._engine, self._count_given_up, attempts=1).items():
            given_up.add_metric([model_id], count)
        yield given_up

    def _count_given_up(self, connection: Connection) -> Mapping[str, int]:
        return count_given_up(connection, datetime.now(UTC) - self._lookback)

    def _find_late(self, connection: Connection) -> Mapping[str, Sequence[LateBatch]]:
        return find_late_batches(connection, self._zone, datetime.now(UTC), self._lookback)
