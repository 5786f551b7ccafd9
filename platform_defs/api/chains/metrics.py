"""Job chains on /metrics: runs by status, nodes at work, and how long nodes of recent runs took."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy import Connection, Engine

from platform_defs.api.observe.bounded_metrics import NamedCollector
from platform_defs.api.system import ApiContext
from platform_defs.chains.runs import counts
from platform_defs.store.engine import read

# Nodes of runs that began within this time are timed.
RECENT = timedelta(hours=1)
# With this rest the queries use a tenth of the time, however often somebody scrapes.
REST = 9.0


class ChainsCollector(Collector):
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def describe(self) -> list[Metric]:
        return []  # asked at registration, when the database may not answer yet

    def collect(self) -> Iterator[Metric]:
        yield from read(self._engine, self._look, attempts=1)

    def _look(self, connection: Connection) -> Sequence[Metric]:
        runs = GaugeMetricFamily("platform_chain_runs", "Runs on record.", labels=["status"])
        for status, count in counts.runs_by_status(connection).items():
            runs.add_metric([status], count)
        recent = datetime.now(UTC) - RECENT
        started = GaugeMetricFamily("platform_chain_runs_started_last_hour", "Runs that began in the last hour.")
        started.add_metric([], counts.runs_since(connection, recent))
        without = GaugeMetricFamily(
            "platform_chain_runs_without_work", "Runs that are not over and that no row of work drives: normally 0."
        )
        without.add_metric([], counts.runs_without_work(connection))
        nodes = GaugeMetricFamily("platform_chain_nodes_in_flight", "Nodes of runs that go on.", labels=["status"])
        for node_status, count in counts.nodes_in_flight(connection).items():
            nodes.add_metric([node_status], count)
        seconds = GaugeMetricFamily(
            "platform_chain_node_seconds",
            "How long nodes took that ended in runs of the last hour: the mean, and the longest.",
            labels=["chain", "of"],
        )
        ended = GaugeMetricFamily(
            "platform_chain_nodes_ended_last_hour", "Nodes that ended in runs of the last hour.", labels=["chain"]
        )
        for timing in counts.node_timings(connection, recent):
            seconds.add_metric([timing.job_name, "mean"], timing.mean_s)
            seconds.add_metric([timing.job_name, "max"], timing.max_s)
            ended.add_metric([timing.job_name], timing.count)
        return [runs, started, without, nodes, seconds, ended]


def collectors(context: ApiContext) -> Sequence[NamedCollector]:
    return (NamedCollector("chains", ChainsCollector(context.engine), rest=REST),)
