"""Metrics of the lineage system that are read from the database: unapplied events, open rebuilds, observation lag."""

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy import Engine

from platform_defs.lineage import observations
from platform_defs.lineage.sink.rows import raw_events
from platform_defs.lineage.upkeep import rebuild_requests, recovery_failures
from platform_defs.lineage.upkeep.recovery import ABANDONED_AFTER
from platform_defs.store.metadata import now


class LineageCollector(Collector):
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def collect(self) -> Iterator[Metric]:
        unapplied = raw_events.count_unapplied(self._engine, before=now() - ABANDONED_AFTER, attempts=1)
        rebuilds = len(rebuild_requests.list_open(self._engine, attempts=1))
        failures = recovery_failures.read_failures(self._engine, attempts=1)
        lag = observations.observation_lag_s(self._engine, attempts=1)
        yield GaugeMetricFamily(
            "platform_lineage_unapplied_events", "Raw events not applied to the graph in time", value=unapplied
        )
        yield GaugeMetricFamily(
            "platform_lineage_rebuilds_pending", "Tenants whose graph must be rebuilt", value=rebuilds
        )
        yield GaugeMetricFamily(
            "platform_lineage_recovery_failures",
            "How often the recovery has failed since it last succeeded",
            value=0 if failures is None else failures.count,
        )
        yield GaugeMetricFamily(
            "platform_lineage_observation_lag_seconds",
            "Age of the oldest event that the UI does not show yet",
            value=lag,
        )


def recovery_state(engine: Engine) -> str:
    """For /readyz: "ok", or since when the recovery fails. Anybody may ask, so the error itself is not shown."""
    failures = recovery_failures.read_failures(engine, attempts=1)
    if failures is None or not failures.is_degraded:
        return "ok"
    return (
        f"the recovery has failed {failures.count} times since {failures.since.isoformat(timespec='seconds')}: "
        "graphs lack events; the runs of the job lineage_apply say why"
    )
