"""Executes old batches of a model again, after whatever arrivals make due: for a model whose query has changed."""

from collections.abc import Sequence
from datetime import UTC, datetime

from sqlalchemy import Connection, Engine, select

from platform_defs.arrivals.errors import UnknownModel
from platform_defs.arrivals.executions.lifecycle import queue_executions
from platform_defs.arrivals.executions.running_batches import transact_until_uncontended
from platform_defs.arrivals.executions.task_log import Trigger
from platform_defs.arrivals.matching import batch_sql, rendered_name_sql
from platform_defs.arrivals.op_time import batch_of
from platform_defs.arrivals.readiness import missing_tables
from platform_defs.arrivals.standings import load_standings
from platform_defs.store.chunks import chunks
from platform_defs.store.engine import read
from platform_defs.store.tables.arrivals import metrics_etl_log, metrics_model, metrics_model_dependency

# Less urgent than the default: arrivals go first, and slots that are reserved for them are not used.
PRIORITY = 150
AT_ONCE = 100


def complete_batches(engine: Engine, model_id: str, first: str, last: str) -> list[str]:
    """The batches from the first to the last, both included, whose tables have all arrived."""

    def look(connection: Connection) -> list[str]:
        if connection.scalar(select(metrics_model.c.id).where(metrics_model.c.model_id == model_id)) is None:
            raise UnknownModel(f"no model has the id {model_id!r}")
        dependency, log = metrics_model_dependency.c, metrics_etl_log.c
        name, batch = dependency.dependency_table_name, batch_sql(log.op_time)
        arrived = (
            select(log.op_time)
            .select_from(metrics_model_dependency)
            .join(metrics_etl_log, log.table_name.in_([name, rendered_name_sql(name, batch)]))
            .where(dependency.model_id == model_id, batch >= first, batch <= last)
            .distinct()
        )
        op_times = sorted({batch_of(op_time) for op_time in connection.scalars(arrived)})
        standings = load_standings(connection, [(model_id, op_time) for op_time in op_times])
        return [standing.op_time for standing in standings if not missing_tables(standing)]

    return read(engine, look)


def queue_again(engine: Engine, model_id: str, op_times: Sequence[str]) -> dict[str, int]:
    """Queues the batches, oldest first; returns the task of each. Batches that are being executed are left out."""
    queued: dict[str, int] = {}
    for some in chunks(list(op_times), AT_ONCE):

        def queue(connection: Connection, some: Sequence[str] = some) -> dict[str, int]:
            standings = load_standings(connection, [(model_id, op_time) for op_time in some])
            tasks = queue_executions(connection, standings, Trigger.OPERATOR, datetime.now(UTC), priority=PRIORITY)
            return {op_time: task_id for (_, op_time), task_id in tasks.items()}

        queued |= transact_until_uncontended(engine, queue)
    return queued
