"""How a batch of a model stands, as clients read it: what has arrived, what is missing, and its last task."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, select

from platform_defs.arrivals.errors import InvalidArrival, InvalidQuery, UnknownModel
from platform_defs.arrivals.matching import batch_sql, rendered_name_sql
from platform_defs.arrivals.op_time import batch_of, normalise_op_time
from platform_defs.arrivals.readiness import Verdict, judge, missing_tables
from platform_defs.arrivals.results.tasks import TaskResult, json_task, last_tasks
from platform_defs.arrivals.standings import load_standings
from platform_defs.store.tables.arrivals import metrics_etl_log, metrics_model, metrics_model_dependency

MAX_BATCHES = 1000


@dataclass(frozen=True)
class BatchResult:
    model_id: str
    op_time: str
    verdict: Verdict
    # arrival times by table, under the name with which it arrived
    arrived: dict[str, datetime]
    missing: list[str]
    last_task: TaskResult | None


def find_batch(connection: Connection, model_id: str, op_time: str) -> BatchResult:
    """How the batch stands. Raises UnknownModel, or InvalidQuery for a text that nobody used and that is no opTime."""
    found = _load_batches(connection, model_id, [op_time])
    if not found:
        raise UnknownModel(f"no model has the id {model_id!r}")
    batch = found[0]
    if not batch.arrived and batch.last_task is None:
        # An ETL job may name a batch by any text; a name that nobody has used must be one that the API would take.
        try:
            normalise_op_time(op_time)
        except InvalidArrival as error:
            raise InvalidQuery("opTime", f"{error.reason}, or a batch of {model_id} that an ETL job named so") from None
    return batch


def newest_batches(connection: Connection, model_id: str, limit: int = 20) -> list[BatchResult]:
    """The batches of which a table of the model has arrived, the newest opTime first."""
    if connection.scalar(select(metrics_model.c.id).where(metrics_model.c.model_id == model_id)) is None:
        raise UnknownModel(f"no model has the id {model_id!r}")
    dependency, log = metrics_model_dependency.c, metrics_etl_log.c
    name = dependency.dependency_table_name
    arrived = (
        select(log.op_time)
        .select_from(metrics_model_dependency)
        .join(metrics_etl_log, log.table_name.in_([name, rendered_name_sql(name, batch_sql(log.op_time))]))
        .where(dependency.model_id == model_id)
        .distinct()
        .order_by(log.op_time.desc())
        .limit(2 * min(limit, MAX_BATCHES))  # a batch may be written in two ways
    )
    op_times = dict.fromkeys(batch_of(op_time) for op_time in connection.scalars(arrived))
    return _load_batches(connection, model_id, sorted(op_times, reverse=True)[:limit])


def _load_batches(connection: Connection, model_id: str, op_times: Sequence[str]) -> list[BatchResult]:
    """In the order of the opTimes; nothing if there is no such model."""
    batches = [(model_id, op_time) for op_time in op_times]
    tasks = last_tasks(connection, batches)
    return [
        BatchResult(
            model_id,
            standing.op_time,
            judge(standing),
            {name: at for (name, _), at in sorted(standing.arrived.items(), key=lambda arrival: arrival[1])},
            missing_tables(standing),
            tasks.get((model_id, standing.op_time)),
        )
        for standing in load_standings(connection, batches)
    ]


def json_batch(batch: BatchResult) -> dict[str, Any]:
    return {
        "modelId": batch.model_id,
        "opTime": batch.op_time,
        "verdict": str(batch.verdict),
        "arrived": [{"table": table, "arrivalTime": at.isoformat()} for table, at in batch.arrived.items()],
        "missing": batch.missing,
        "lastTask": None if batch.last_task is None else json_task(batch.last_task),
    }
