"""The task log (`metrics_task_log`): one row, called a task, for every execution of a model for a batch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, Row, insert, select

from platform_defs.arrivals.batches import Batch, in_batches
from platform_defs.store.engine import read
from platform_defs.store.tables.arrivals import metrics_task_log


class TaskStatus(StrEnum):
    RUNNING = "RUNNING"
    SUCCESS = "SUCCESS"
    FAILED = "FAILED"


class Trigger(StrEnum):
    """Why an execution was queued."""

    ARRIVAL = "ARRIVAL"  # a request reported that a table arrived
    AGAIN = "AGAIN"  # a table arrived while the batch was being executed
    SENSOR = "SENSOR"  # the sensor found an arrival that an ETL job wrote itself, or that a crash left unhandled
    RECOVERY = "RECOVERY"  # the process of the previous execution died
    RETRY = "RETRY"  # the source of the previous execution did not answer
    OPERATOR = "OPERATOR"  # somebody launched the batch in the UI, whether or not all tables have arrived


class FailureCode(StrEnum):
    """Failures to which the platform reacts."""

    SOURCE = "SOURCE"  # the data source did not answer
    GIVEN_UP = "GIVEN_UP"  # the batch is not executed again before its next arrival


@dataclass(frozen=True)
class Task:
    """A row of the task log."""

    id: int
    model_id: str
    op_time: str
    status: TaskStatus
    message: str | None = None
    compute_count: int | None = None
    storage_count: int | None = None


def insert_tasks(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> dict[Batch, int]:
    """Writes new tasks, each with a run id of its own; returns the id of the task of each batch."""
    connection.execute(insert(metrics_task_log), [dict(row) for row in rows])
    log = metrics_task_log.c
    query = select(log.model_id, log.op_time, log.id).where(
        in_batches(log.model_id, log.op_time, [(row["model_id"], row["op_time"]) for row in rows]),
        log.run_id.in_([row["run_id"] for row in rows]),
    )
    return {(model_id, op_time): task_id for model_id, op_time, task_id in connection.execute(query)}


def has_later_task(*statuses: TaskStatus) -> ColumnElement[bool]:
    """SQL condition on the task log: the same batch has a later task, with one of the statuses if any are given."""
    log, later = metrics_task_log.c, metrics_task_log.alias("later").c
    same_batch = (later.model_id == log.model_id) & (later.op_time == log.op_time)
    query = select(later.id).where(same_batch, later.id > log.id)
    return (query.where(later.status.in_(statuses)) if statuses else query).exists()


def ended_tasks(engine: Engine, task_ids: Sequence[int]) -> dict[int, Task]:
    """Those of the given tasks that are no longer RUNNING, by their ids."""
    log = metrics_task_log.c
    query = select(metrics_task_log).where(log.id.in_(task_ids), log.status != TaskStatus.RUNNING)
    return {row.id: _task_from_row(row) for row in read(engine, lambda connection: connection.execute(query).all())}


def recovery_tasks(engine: Engine, failed: Sequence[Task]) -> dict[int, int]:
    """For failed tasks whose process died or whose source was down: the id of the task that executes the batch again.

    A failed task is missing from the answer if it failed for another reason or is not executed again.
    """
    log = metrics_task_log.c
    query = (
        select(log.id, log.model_id, log.op_time, log.trigger_code)
        .where(in_batches(log.model_id, log.op_time, [(task.model_id, task.op_time) for task in failed]))
        .order_by(log.id)
    )
    rows = read(engine, lambda connection: connection.execute(query).all()) if failed else []
    found = {}
    for task in failed:
        batch = (task.model_id, task.op_time)
        following = next((row for row in rows if (row.model_id, row.op_time) == batch and row.id > task.id), None)
        # the next task is queued in the transaction that closes the failed one, so no other task is between
        if following is not None and following.trigger_code in (Trigger.RECOVERY, Trigger.RETRY):
            found[task.id] = following.id
    return found


def last_success(connection: Connection, batch: Batch) -> Task | None:
    """The newest successful task of a batch."""
    log = metrics_task_log.c
    query = (
        select(metrics_task_log)
        .where(log.model_id == batch[0], log.op_time == batch[1], log.status == TaskStatus.SUCCESS)
        .order_by(log.id.desc())
        .limit(1)
    )
    row = connection.execute(query).one_or_none()
    return None if row is None else _task_from_row(row)


def _task_from_row(row: Row[Any]) -> Task:
    return Task(
        row.id, row.model_id, row.op_time, TaskStatus(row.status), row.message, row.compute_count, row.storage_count
    )
