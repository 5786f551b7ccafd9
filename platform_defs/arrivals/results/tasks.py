"""Tasks as clients read them: one with its successor, or the newest of a model."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, func, select

from platform_defs.arrivals.batches import Batch, in_batches
from platform_defs.arrivals.errors import UnknownTask
from platform_defs.arrivals.executions.task_log import TaskStatus
from platform_defs.store.tables.arrivals import metrics_task_log
from platform_defs.store.tables.work import work
from platform_defs.work.rows import Status

MAX_TASKS = 1000


@dataclass(frozen=True)
class TaskResult:
    """One execution: why it was made, what it read and how it ended."""

    task_id: int
    model_id: str
    op_time: str
    status: str
    message: str | None
    trigger: str | None
    attempt: int
    start_time: datetime | None
    end_time: datetime | None
    compute_count: int | None
    storage_count: int | None
    # dependencies that had not arrived when an operator launched it anyway
    missing_tables: list[str]
    # the arrivals that it read: {table: arrival time}; None before it has begun
    versions: dict[str, str] | None
    run_id: str | None
    # the next execution of the same batch: a retry, a recovery, or one for a later arrival
    next_task_id: int | None


_log, _next = metrics_task_log.c, metrics_task_log.alias("successor")
_successor = (
    select(func.min(_next.c.id))
    .where(_next.c.model_id == _log.model_id, _next.c.op_time == _log.op_time, _next.c.id > _log.id)
    .scalar_subquery()
    .label("next_task_id")
)
# Until when the row of work of an execution that has not begun waits; a time that is over if it waits for a slot.
_waits_until = (
    select(func.coalesce(work.c.not_before, work.c.created_at))
    .where(work.c.id == _log.work_id, work.c.status == Status.QUEUED, _log.status == TaskStatus.RUNNING)
    .scalar_subquery()
    .label("waits_until")
)
_columns = select(metrics_task_log, _successor, _waits_until)


def find_task(connection: Connection, task_id: int) -> TaskResult:
    row = connection.execute(_columns.where(_log.id == task_id)).one_or_none()
    if row is None:
        raise UnknownTask(f"no task has the id {task_id}; tasks are kept PLATFORM_ARRIVALS_RETENTION_DAYS days")
    return _task(row)


def newest_tasks(
    connection: Connection,
    model_id: str,
    *,
    op_time: str | None = None,
    status: str | None = None,
    limit: int = 20,
) -> list[TaskResult]:
    """The newest tasks of a model, the newest first."""
    query = _columns.where(_log.model_id == model_id)
    if op_time is not None:
        query = query.where(_log.op_time == op_time)
    if status is not None:
        query = query.where(_log.status == status)
    return [_task(row) for row in connection.execute(query.order_by(_log.id.desc()).limit(min(limit, MAX_TASKS)))]


def last_tasks(connection: Connection, batches: Sequence[Batch]) -> dict[Batch, TaskResult]:
    """The last task of each batch that has one."""
    newest = (
        select(func.max(_log.id))
        .where(in_batches(_log.model_id, _log.op_time, batches))
        .group_by(_log.model_id, _log.op_time)
    )
    query = _columns.where(_log.id.in_(newest))
    return {(row.model_id, row.op_time): _task(row) for row in connection.execute(query)}


def json_task(task: TaskResult) -> dict[str, Any]:
    return {
        "taskId": task.task_id,
        "modelId": task.model_id,
        "opTime": task.op_time,
        "status": task.status,
        "message": task.message,
        "trigger": task.trigger,
        "attempt": task.attempt,
        "startTime": _iso(task.start_time),
        "endTime": _iso(task.end_time),
        "computeCount": task.compute_count,
        "storageCount": task.storage_count,
        "missingTables": task.missing_tables,
        "versions": task.versions,
        "runId": task.run_id,
        "nextTaskId": task.next_task_id,
    }


def _task(row: Any) -> TaskResult:
    return TaskResult(
        task_id=row.id,
        model_id=row.model_id,
        op_time=row.op_time,
        status=row.status,
        message=row.message if row.waits_until is None else _waiting_text(row.waits_until, datetime.now(UTC)),
        trigger=row.trigger_code,
        attempt=row.attempt,
        start_time=row.start_time,
        end_time=row.end_time,
        compute_count=row.compute_count,
        storage_count=row.storage_count,
        missing_tables=row.missing_tables or [],
        versions=row.versions,
        run_id=row.run_id,
        next_task_id=row.next_task_id,
    )


def _waiting_text(until: datetime, now: datetime) -> str:
    """An execution that waits is RUNNING to its clients, and its message says what for."""
    return f"waits until {until:%F %T} UTC" if until > now else "waits for a free slot of the runner or of its source"


def _iso(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()
