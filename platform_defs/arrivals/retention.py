"""What table arrival forgets, and when: its records of what was done. Arrivals and values are data, and stay."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Column, ColumnElement, Connection, Engine, Table, and_, delete, exists, func, or_, select

from platform_defs.arrivals.matching import batch_name, dashed_name
from platform_defs.arrivals.task_log import TaskStatus
from platform_defs.store.engine import read, transact
from platform_defs.store.tables.arrivals import metrics_model_input, metrics_model_running, metrics_task_log
from platform_defs.store.tables.webhooks import metrics_webhook_attempt, metrics_webhook_delivery
from platform_defs.store.tables.work import work
from platform_defs.webhooks.deliveries import DEAD, DELIVERED

# Rows of one transaction.
BATCH = 1000
# The final states of a row of work, as the runner names them.
_FINISHED_WORK = ("SUCCEEDED", "FAILED", "CANCELED")


@dataclass(frozen=True, slots=True)
class Forgotten:
    deliveries: int = 0
    tasks: int = 0
    inputs: int = 0
    work: int = 0


def forget(engine: Engine, *, days: int, lookback_days: int, at: datetime) -> Forgotten:
    """Idempotent and in bounded transactions, so it may be ended at any point. 0 days keep for ever."""
    if days == 0:
        return Forgotten()
    before = at - timedelta(days=days)
    # a day more than the sensor looks back: what it may still ask for must be there by anybody's clock
    unasked = at - timedelta(days=max(days, lookback_days + 1))
    return Forgotten(
        deliveries=_forget(
            engine, metrics_webhook_delivery, _ended_delivery(before), parts=metrics_webhook_attempt.c.delivery_id
        ),
        tasks=_forget(engine, metrics_task_log, _ended_task(before)),
        inputs=_forget(engine, metrics_model_input, _input_of_old_batch(unasked)),
        work=_forget(engine, work, _finished_work(before)),
    )


def _ended_delivery(before: datetime) -> ColumnElement[bool]:
    row = metrics_webhook_delivery.c
    return and_(row.status.in_([DELIVERED, DEAD]), row.finished_at < before)


def _ended_task(before: datetime) -> ColumnElement[bool]:
    row = metrics_task_log.c
    guarded = exists().where(metrics_model_running.c.task_id == row.id)
    return and_(row.status != TaskStatus.RUNNING, row.end_time < before, ~guarded)


def _input_of_old_batch(before: datetime) -> ColumnElement[bool]:
    """A batch is forgotten as a whole: one that had half of its inputs left would be due again."""
    row, other = metrics_model_input.c, metrics_model_input.alias("other")
    batch = batch_name(row.op_time)
    newer = exists().where(
        other.c.model_id == row.model_id,
        other.c.op_time.in_([batch, dashed_name(batch)]),
        other.c.arrival_time >= before,
    )
    return and_(row.arrival_time < before, ~newer)


def _finished_work(before: datetime) -> ColumnElement[bool]:
    """Without what a RUNNING task stands on: only its row of work tells that its process died."""
    task = metrics_task_log.c
    needed = (
        select(metrics_model_running.c.task_id)
        .join(metrics_task_log, task.id == metrics_model_running.c.task_id)
        .where(or_(task.work_id == work.c.id, task.run_id == work.c.run_id))
        .exists()
    )
    return and_(work.c.status.in_(_FINISHED_WORK), work.c.finished_at < before, ~needed)


def _forget(engine: Engine, table: Table, old: ColumnElement[bool], *, parts: Column[int] | None = None) -> int:
    """Deletes the rows that are old, with their parts; returns how many rows."""
    newest = read(engine, lambda connection: connection.scalar(select(func.max(table.c.id))))
    total = last = 0
    # the newest row stays: SQLite would give its id away again, which others have noted as another row's
    while newest is not None and (ids := _some_old(engine, table, and_(old, table.c.id < newest), last)):
        total += _deleted(engine, table, and_(old, table.c.id.in_(ids)), parts)
        last = ids[-1]
    return total


def _some_old(engine: Engine, table: Table, old: ColumnElement[bool], last: int) -> Sequence[int]:
    """A look before the transaction that writes: on SQLite that one stops all other writers."""
    query = select(table.c.id).where(old, table.c.id > last).order_by(table.c.id).limit(BATCH)
    return read(engine, lambda connection: connection.scalars(query).all())


def _deleted(engine: Engine, table: Table, old: ColumnElement[bool], parts: Column[int] | None) -> int:
    # whoever holds one of them is changing it, such as a dead letter that is sent again: it waits for the next night
    still_old = select(table.c.id).where(old).with_for_update(skip_locked=True)

    def remove(connection: Connection) -> int:
        ids = connection.scalars(still_old).all()
        if parts is not None:
            connection.execute(delete(parts.table).where(parts.in_(ids)))
        connection.execute(delete(table).where(table.c.id.in_(ids)))
        return len(ids)

    return transact(engine, remove)
