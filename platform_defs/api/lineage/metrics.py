"""What the database knows of the sink, on /metrics: what the graph lacks, rebuilds that wait, the observations' lag."""

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy import Engine

from platform_defs.lineage import observations
from platform_defs.lineage.sink import raw_events
from platform_defs.lineage.upkeep import rebuild_requests
from platform_defs.lineage.upkeep.recovery import PATIENCE
from platform_defs.store.metadata import now


class LineageCollector(Collector):
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def collect(self) -> Iterator[Metric]:
        lacking = raw_events.lacking(self._engine, before=now() - PATIENCE, attempts=1)
        rebuilds = len(rebuild_requests.pending(self._engine, attempts=1))
        lag = observations.lag_s(self._engine, attempts=1)
        yield GaugeMetricFamily("platform_lineage_unapplied_events", "Raw events that the graph lacks", value=lacking)
        yield GaugeMetricFamily("platform_lineage_rebuilds_pending", "Tenants whose graph is rebuilt", value=rebuilds)
        yield GaugeMetricFamily(
            "platform_lineage_observation_lag_seconds", "Age of the oldest event not yet observed", value=lag
        )
