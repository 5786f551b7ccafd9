"""What table arrival forgets, and when: its records of what was done. Arrivals and values are data, and stay."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, Engine, and_, exists, or_, select

from platform_defs.arrivals.matching import batch_sql, dashed_sql
from platform_defs.arrivals.task_log import TaskStatus
from platform_defs.store.deletion import delete_old_rows
from platform_defs.store.tables.arrivals import metrics_model_input, metrics_model_running, metrics_task_log
from platform_defs.store.tables.webhooks import metrics_webhook_attempt, metrics_webhook_delivery
from platform_defs.store.tables.work import work
from platform_defs.webhooks.deliveries import DEAD, DELIVERED

# The final states of a row of work, as the runner names them.
_FINISHED_WORK = ("SUCCEEDED", "FAILED", "CANCELED")


@dataclass(frozen=True, slots=True)
class ForgottenCounts:
    deliveries: int = 0
    tasks: int = 0
    inputs: int = 0
    work: int = 0


def forget_old_rows(engine: Engine, *, days: int, lookback_days: int, at: datetime) -> ForgottenCounts:
    """Idempotent and in bounded transactions, so it may be ended at any point. 0 days keep for ever."""
    if days == 0:
        return ForgottenCounts()
    before = at - timedelta(days=days)
    # a day more than the sensor looks back: what it may still ask for must be there by anybody's clock
    unasked = at - timedelta(days=max(days, lookback_days + 1))
    return ForgottenCounts(
        deliveries=delete_old_rows(
            engine, metrics_webhook_delivery, _is_old_delivery(before), parts=metrics_webhook_attempt.c.delivery_id
        ),
        tasks=delete_old_rows(engine, metrics_task_log, _is_old_task(before)),
        inputs=delete_old_rows(engine, metrics_model_input, _is_input_of_old_batch(unasked)),
        work=delete_old_rows(engine, work, _is_old_work(before)),
    )


def _is_old_delivery(before: datetime) -> ColumnElement[bool]:
    row = metrics_webhook_delivery.c
    return and_(row.status.in_([DELIVERED, DEAD]), row.finished_at < before)


def _is_old_task(before: datetime) -> ColumnElement[bool]:
    row = metrics_task_log.c
    guarded = exists().where(metrics_model_running.c.task_id == row.id)
    return and_(row.status != TaskStatus.RUNNING, row.end_time < before, ~guarded)


def _is_input_of_old_batch(before: datetime) -> ColumnElement[bool]:
    """A batch is forgotten as a whole: one that had half of its inputs left would be due again."""
    row, other = metrics_model_input.c, metrics_model_input.alias("other")
    batch = batch_sql(row.op_time)
    newer = exists().where(
        other.c.model_id == row.model_id,
        other.c.op_time.in_([batch, dashed_sql(batch)]),
        other.c.arrival_time >= before,
    )
    return and_(row.arrival_time < before, ~newer)


def _is_old_work(before: datetime) -> ColumnElement[bool]:
    """Without what a RUNNING task stands on: only its row of work tells that its process died."""
    task = metrics_task_log.c
    needed = (
        select(metrics_model_running.c.task_id)
        .join(metrics_task_log, task.id == metrics_model_running.c.task_id)
        .where(or_(task.work_id == work.c.id, task.run_id == work.c.run_id))
        .exists()
    )
    return and_(work.c.status.in_(_FINISHED_WORK), work.c.finished_at < before, ~needed)
