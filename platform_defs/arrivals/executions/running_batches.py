"""The table `metrics_model_running`: its primary key allows one execution of a batch at a time.

A batch has a row there from the moment its execution is queued until the execution is closed. Whoever queues or closes
an execution locks that row first, so that the two never miss each other.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from sqlalchemy import Connection, Engine, select

from platform_defs.arrivals.batches import Batch, in_batches
from platform_defs.arrivals.errors import Contended
from platform_defs.store.engine import transact
from platform_defs.store.tables.arrivals import metrics_model_running
from platform_defs.store.upsert import upsert

T = TypeVar("T")

ROUNDS = 5


def lock_running(connection: Connection, batches: Sequence[Batch]) -> dict[Batch, int]:
    """Those of the batches that are being executed, with the id of their task.

    Until the transaction ends nobody else can close an execution of these batches or queue another one.
    """
    running = metrics_model_running.c
    query = (
        select(running.model_id, running.op_time, running.task_id)
        .where(in_batches(running.model_id, running.op_time, batches))
        .order_by(running.model_id, running.op_time)
        # Without the hint the optimiser reads a small table whole, and so waits for locks of unrelated batches.
        .with_hint(metrics_model_running, "FORCE INDEX (PRIMARY)", "mysql")
        .with_hint(metrics_model_running, "FORCE INDEX (PRIMARY)", "mariadb")
        .with_for_update()
    )
    return {(model_id, op_time): task_id for model_id, op_time, task_id in connection.execute(query)}


def mark_running(connection: Connection, tasks: Mapping[Batch, int]) -> list[Batch]:
    """Marks each batch as executed by its task; returns the batches that another task had marked before."""
    rows = [
        {"model_id": model_id, "op_time": op_time, "task_id": task_id} for (model_id, op_time), task_id in tasks.items()
    ]
    upsert(connection, metrics_model_running, rows, key=["model_id", "op_time"], update="nothing")
    owners = lock_running(connection, sorted(tasks))
    return [batch for batch, task_id in tasks.items() if owners[batch] != task_id]


def transact_until_uncontended(engine: Engine, work: Callable[[Connection], T]) -> T:
    """A transaction that may queue executions.

    If somebody else queued one of the same batches at the same moment, the transaction is repeated from the start: it
    then finds that batch running.
    """
    for _ in range(ROUNDS):
        try:
            return transact(engine, work)
        except Contended:
            continue
    return transact(engine, work)
