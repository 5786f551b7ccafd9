"""What table arrival forgets every night: its old records of executions, deliveries and work.

Arrivals and KPI values are data and stay.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, Engine, and_, exists, or_, select

from platform_defs.arrivals.executions.task_log import TaskStatus
from platform_defs.arrivals.matching import batch_sql, dashed_sql
from platform_defs.store.deletion import delete_old_rows
from platform_defs.store.tables.arrivals import metrics_model_input, metrics_model_running, metrics_task_log
from platform_defs.store.tables.webhooks import metrics_webhook_attempt, metrics_webhook_delivery
from platform_defs.store.tables.work import work
from platform_defs.webhooks.deliveries import DEAD, DELIVERED
from platform_defs.work.rows import is_finished


@dataclass(frozen=True, slots=True)
class ForgottenCounts:
    """How many rows were deleted from each table."""

    deliveries: int = 0
    tasks: int = 0
    inputs: int = 0
    work: int = 0


def forget_old_rows(engine: Engine, *, days: int, lookback_days: int, at: datetime) -> ForgottenCounts:
    """Deletes records that ended more than `days` ago; with 0 days nothing is deleted.

    It may be stopped at any point and called again.
    """
    if days == 0:
        return ForgottenCounts()
    before = at - timedelta(days=days)
    # The sweep compares arrivals of the lookback with the versions that were read, so those must outlive the lookback.
    # One day more allows for ETL jobs whose clock differs from ours.
    not_swept = at - timedelta(days=max(days, lookback_days + 1))
    return ForgottenCounts(
        deliveries=delete_old_rows(
            engine, metrics_webhook_delivery, _is_old_delivery(before), parts=metrics_webhook_attempt.c.delivery_id
        ),
        tasks=delete_old_rows(engine, metrics_task_log, _is_old_task(before)),
        inputs=delete_old_rows(engine, metrics_model_input, _is_input_of_old_batch(not_swept)),
        work=delete_old_rows(engine, work, _is_old_work(before)),
    )


def _is_old_delivery(before: datetime) -> ColumnElement[bool]:
    row = metrics_webhook_delivery.c
    return and_(row.status.in_([DELIVERED, DEAD]), row.finished_at < before)


def _is_old_task(before: datetime) -> ColumnElement[bool]:
    row = metrics_task_log.c
    running = exists().where(metrics_model_running.c.task_id == row.id)
    return and_(row.status != TaskStatus.RUNNING, row.end_time < before, ~running)


def _is_input_of_old_batch(before: datetime) -> ColumnElement[bool]:
    """A version that was read, if all versions of its batch are old.

    A batch is forgotten as a whole: if only some of its versions were deleted, the batch would be due again.
    """
    row, other = metrics_model_input.c, metrics_model_input.alias("other")
    batch = batch_sql(row.op_time)
    newer = exists().where(
        other.c.model_id == row.model_id,
        other.c.op_time.in_([batch, dashed_sql(batch)]),
        other.c.arrival_time >= before,
    )
    return and_(row.arrival_time < before, ~newer)


def _is_old_work(before: datetime) -> ColumnElement[bool]:
    """A finished row of work, unless its task is still RUNNING: only that row tells that the task's process died."""
    task = metrics_task_log.c
    needed = (
        select(metrics_model_running.c.task_id)
        .join(metrics_task_log, task.id == metrics_model_running.c.task_id)
        .where(or_(task.work_id == work.c.id, task.run_id == work.c.run_id))
        .exists()
    )
    return and_(is_finished(work.c.status), work.c.finished_at < before, ~needed)
