"""Metrics of the lineage system that are read from the database: unapplied events, open rebuilds, observation lag."""

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy import Engine

from platform_defs.lineage import observations
from platform_defs.lineage.sink import raw_events
from platform_defs.lineage.upkeep import rebuild_requests
from platform_defs.lineage.upkeep.recovery import ABANDONED_AFTER
from platform_defs.store.metadata import now


class LineageCollector(Collector):
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def collect(self) -> Iterator[Metric]:
        unapplied = raw_events.count_unapplied(self._engine, before=now() - ABANDONED_AFTER, attempts=1)
        rebuilds = len(rebuild_requests.list_open(self._engine, attempts=1))
        lag = observations.observation_lag_s(self._engine, attempts=1)
        yield GaugeMetricFamily(
            "platform_lineage_unapplied_events", "Raw events not applied to the graph in time", value=unapplied
        )
        yield GaugeMetricFamily(
            "platform_lineage_rebuilds_pending", "Tenants whose graph must be rebuilt", value=rebuilds
        )
        yield GaugeMetricFamily(
            "platform_lineage_observation_lag_seconds",
            "Age of the oldest event that the UI does not show yet",
            value=lag,
        )
