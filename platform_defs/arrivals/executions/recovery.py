"""Executions whose process died: their tasks are closed, and their batches are executed once more."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from sqlalchemy import Connection, Engine, and_, func, select

from platform_defs.arrivals.batches import Batch
from platform_defs.arrivals.executions.lifecycle import close_dead_execution, queue_executions, store_read_versions
from platform_defs.arrivals.executions.running_batches import transact_until_uncontended
from platform_defs.arrivals.executions.task_log import Trigger
from platform_defs.arrivals.readiness import Verdict, judge, may_run_again
from platform_defs.arrivals.standings import load_standings
from platform_defs.store.engine import read
from platform_defs.store.tables.arrivals import metrics_model_running, metrics_task_log
from platform_defs.store.tables.work import work
from platform_defs.work.rows import Status, is_finished


@dataclass(frozen=True)
class DeadExecution:
    """A task that is RUNNING although its run is over."""

    task_id: int
    batch: Batch
    attempt: int
    reason: str
    canceled_by_operator: bool = False
    # The run ended because its runner was stopped. That is not the model's fault, so it does not count as an attempt.
    stopped: bool = False


@dataclass(frozen=True)
class RecoveryResult:
    # the closed tasks
    closed: list[int] = field(default_factory=list)
    # the batches that are executed once more, with their new tasks
    queued: dict[Batch, int] = field(default_factory=dict)


@dataclass(frozen=True)
class RunState:
    """What Dagster knows of a run."""

    run_id: str
    status: str
    is_finished: bool
    is_canceled: bool


def settle_dead_executions(engine: Engine, now: datetime, others: Sequence[DeadExecution] = ()) -> RecoveryResult:
    """Closes the tasks of dead executions and queues their batches once more.

    Besides the executions whose row of work tells that they are dead, `others` are those that only Dagster knows.
    """
    result = RecoveryResult()
    for dead in [*read(engine, find_dead_executions), *others]:

        def settle(connection: Connection, dead: DeadExecution = dead) -> int | None:
            return _settle(connection, dead, now)

        task_id = transact_until_uncontended(engine, settle)
        result.closed.append(dead.task_id)
        if task_id is not None:
            result.queued[dead.batch] = task_id
    return result


def _settle(connection: Connection, dead: DeadExecution, now: datetime) -> int | None:
    """Closes the dead execution's task; returns the task of the next attempt, or None if there is none."""
    if not close_dead_execution(connection, dead.task_id, dead.batch, dead.reason, now):
        return None
    standings = load_standings(connection, [dead.batch])
    if not standings or judge(standings[0]) is not Verdict.DUE:
        return None
    attempt = dead.attempt if dead.stopped else dead.attempt + 1
    if may_run_again(canceled_by_operator=dead.canceled_by_operator, attempt=attempt):
        tasks = queue_executions(connection, [dead.batch], Trigger.RECOVERY, now, attempt=attempt)
        return tasks.get(dead.batch)
    # Counts the present arrivals as read, so that the sweep does not queue the batch again before the next arrival.
    store_read_versions(connection, dead.batch, standings[0].arrived)
    return None


def find_dead_executions(connection: Connection) -> list[DeadExecution]:
    """RUNNING tasks whose row of work is closed: the process that should have closed the task is gone."""
    log, by_run = metrics_task_log.c, work.alias("by_run")
    status = func.coalesce(work.c.status, by_run.c.status)
    query = (
        select(
            *(log.id, log.model_id, log.op_time, log.attempt),
            status.label("status"),
            func.coalesce(work.c.error, by_run.c.error).label("error"),
            func.coalesce(work.c.cancel_requested_at, by_run.c.cancel_requested_at).label("cancel_requested_at"),
        )
        .select_from(metrics_model_running)
        .join(metrics_task_log, log.id == metrics_model_running.c.task_id)
        .outerjoin(work, work.c.id == log.work_id)
        .outerjoin(by_run, and_(log.work_id.is_(None), by_run.c.run_id == log.run_id))
        .where(is_finished(status))
        .order_by(log.id)
    )
    return [
        DeadExecution(
            found.id,
            (found.model_id, found.op_time),
            found.attempt,
            found.error or "its run ended without closing the task",
            canceled_by_operator=found.status == Status.CANCELED and found.cancel_requested_at is not None,
            stopped=found.status == Status.CANCELED and found.cancel_requested_at is None,
        )
        for found in connection.execute(query)
    ]


def executions_without_work(connection: Connection) -> Mapping[str, DeadExecution]:
    """RUNNING tasks whose run has no row of work, by run id. Whether they are dead only Dagster knows."""
    log = metrics_task_log.c
    query = (
        select(log.id, log.model_id, log.op_time, log.attempt, log.run_id)
        .select_from(metrics_model_running)
        .join(metrics_task_log, log.id == metrics_model_running.c.task_id)
        .outerjoin(work, work.c.run_id == log.run_id)
        .where(log.work_id.is_(None), work.c.id.is_(None))
    )
    return {
        found.run_id: DeadExecution(found.id, (found.model_id, found.op_time), found.attempt, "its run has ended")
        for found in connection.execute(query)
    }


def executions_of_ended_runs(
    engine: Engine, executions: Mapping[str, DeadExecution], runs: Sequence[RunState], deleted_if_before: datetime
) -> list[DeadExecution]:
    """Those of the executions without a row of work that are dead, judged by their runs.

    An execution whose run was deleted may still be at work. It counts as dead if it started before
    `deleted_if_before`: no query may take that long.
    """
    ended = [
        replace(executions[run.run_id], reason=f"its run is {run.status}", canceled_by_operator=run.is_canceled)
        for run in runs
        if run.is_finished
    ]
    known = {run.run_id for run in runs}
    without_run = [dead for run_id, dead in executions.items() if run_id not in known]
    old = _tasks_started_before(engine, [dead.task_id for dead in without_run], deleted_if_before)
    return ended + [replace(dead, reason="its run was deleted") for dead in without_run if dead.task_id in old]


def _tasks_started_before(engine: Engine, task_ids: Collection[int], instant: datetime) -> set[int]:
    log = metrics_task_log.c
    query = select(log.id).where(log.id.in_(task_ids), log.start_time < instant)
    return set(read(engine, lambda connection: connection.execute(query).scalars().all())) if task_ids else set()
