"""Ingest on /metrics: tasks that wait, run or were given up, how far behind each watermark is, blocked endpoints."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy import Engine, select

from platform_defs.api.observe.bounded_metrics import NamedCollector
from platform_defs.api.system import ApiContext
from platform_defs.ingest.codes import Operation
from platform_defs.ingest.ledger.open_partitions import count_given_up
from platform_defs.ingest.ledger.queue import count_tasks
from platform_defs.ingest.tasks.blocks import list_blocks
from platform_defs.ingest.tasks.health import read_limits
from platform_defs.store.engine import read
from platform_defs.store.tables.ingest import ing_plan
from platform_defs.store.tables.ingest_cursors import ing_cursor


class IngestCollector(Collector):
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def describe(self) -> list[Metric]:
        return []  # asked at registration, when the database may not answer yet

    def collect(self) -> Iterator[Metric]:
        tasks = GaugeMetricFamily(
            "platform_ingest_tasks", "Tasks that are not over.", labels=["source", "endpoint", "op", "status"]
        )
        for labels, count in count_tasks(self._engine, attempts=1).items():
            tasks.add_metric(list(labels), count)
        given_up = GaugeMetricFamily(
            "platform_ingest_given_up",
            "Tasks that failed or were given up: their windows or buckets are not complete.",
            labels=["source", "endpoint", "op", "status"],
        )
        for labels, count in count_given_up(self._engine, datetime.now(UTC), attempts=1).items():
            given_up.add_metric(list(labels), count)
        lag = GaugeMetricFamily(
            "platform_ingest_cursor_lag_seconds", "Now minus a harvest's watermark.", labels=["source", "endpoint"]
        )
        cursor = ing_cursor.c
        query = (
            select(cursor.provenance_code, ing_plan.c.endpoint_name, cursor.normalized_instant)
            .join(ing_plan, ing_plan.c.id == cursor.plan_id)
            .where(cursor.operation_code == Operation.HARVEST, cursor.normalized_instant.is_not(None))
        )
        now = datetime.now(UTC)
        for row in read(self._engine, lambda connection: connection.execute(query).all(), attempts=1):
            lag.add_metric([row[0], row[1]], (now - row[2]).total_seconds())
        blocked = GaugeMetricFamily(
            "platform_ingest_blocked", "Endpoints that wait for an operator.", labels=["source", "endpoint"]
        )
        for block in list_blocks(self._engine):
            blocked.add_metric([block.provenance_code, block.endpoint_name], 1)
        lowered = GaugeMetricFamily(
            "platform_ingest_slices_lowered_to",
            "Slices that may run at a time, where that was lowered for some minutes because the source had trouble.",
            labels=["source", "endpoint", "op"],
        )
        for partition, limit in read_limits(self._engine, now).items():
            lowered.add_metric(list(partition), limit.max_concurrent)
        yield from (tasks, given_up, lag, blocked, lowered)


def collectors(context: ApiContext) -> Sequence[NamedCollector]:
    return (NamedCollector("ingest", IngestCollector(context.engine)),)
