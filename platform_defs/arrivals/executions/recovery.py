"""Executions whose process died: their tasks are closed, and their batches are executed once more."""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from sqlalchemy import Connection, Engine, and_, func, or_, select, update

from platform_defs.arrivals.batches import Batch
from platform_defs.arrivals.errors import ArrivalsError
from platform_defs.arrivals.executions.inputs import versions_of
from platform_defs.arrivals.executions.lifecycle import close_dead_execution, queue_executions, store_read_versions
from platform_defs.arrivals.executions.next_attempt import FIRST, Order, after_death
from platform_defs.arrivals.executions.running_batches import transact_until_uncontended
from platform_defs.arrivals.executions.task_log import FailureCode, TaskStatus, Trigger, has_later_task
from platform_defs.arrivals.readiness import Verdict, judge
from platform_defs.arrivals.standings import load_standings
from platform_defs.store.engine import read
from platform_defs.store.tables.arrivals import metrics_model, metrics_model_running, metrics_task_log
from platform_defs.store.tables.work import work
from platform_defs.work.each import for_each
from platform_defs.work.processes import ProcessId
from platform_defs.work.rows import OPEN_STATUSES, EndedBy, Status, is_finished

# Why an execution ended whose own process closed its row of work without saying so.
_REASONS = {
    EndedBy.OPERATOR: "somebody terminated its run in Dagster",
    EndedBy.RESTART: "its runner was stopped",
}
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class DeadExecution:
    """A task that is RUNNING although its run is over."""

    task_id: int
    batch: Batch
    reason: str
    ended_by: EndedBy
    # the process that executed it, as host:pid:started
    process: str | None = None
    run_id: str | None = None


@dataclass(frozen=True)
class RecoveryResult:
    # the closed tasks
    closed: list[int] = field(default_factory=list)
    # the batches that are executed once more, with their new tasks
    queued: dict[Batch, int] = field(default_factory=dict)
    # executions that could not be settled, and why
    failures: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class RunState:
    """What Dagster knows of a run."""

    run_id: str
    status: str
    is_finished: bool
    is_canceled: bool


def settle_dead_executions(engine: Engine, now: datetime, others: Sequence[DeadExecution] = ()) -> RecoveryResult:
    """Closes the tasks of dead executions and queues their batches once more, or gives them up.

    Besides the executions whose row of work tells that they are dead, `others` are those that only Dagster knows. One
    that cannot be settled stops no other.
    """
    result = RecoveryResult()

    def settle(dead: DeadExecution) -> None:
        _end_process(dead)
        given_up, task_id = transact_until_uncontended(engine, lambda connection: _settle(connection, dead, now))
        result.closed.append(dead.task_id)
        if task_id is not None:
            result.queued[dead.batch] = task_id
        if given_up:
            model_id, op_time = dead.batch
            _log.error("model %s is not executed again for %s: %s: %s", model_id, op_time, dead.ended_by, dead.reason)

    result.failures.extend(
        for_each(
            [*read(engine, find_dead_executions), *others],
            settle,
            lambda dead: f"task {dead.task_id} of {dead.batch[0]} for {dead.batch[1]} is dead and cannot be closed",
        )
    )
    return result


def _end_process(dead: DeadExecution) -> None:
    """A process of this machine that goes on although its run is over must not query the source beside the next one."""
    process = None if dead.process is None else ProcessId.on_this_machine(dead.process)
    if process is not None and process != ProcessId.current() and process.kill():
        _log.warning("process %d went on although task %d is over, and was killed", process.pid, dead.task_id)


def _settle(connection: Connection, dead: DeadExecution, now: datetime) -> tuple[bool, int | None]:
    """Closes the dead execution's task; returns whether the batch is given up, and its next task if it has one."""
    task = close_dead_execution(connection, dead.task_id, dead.batch, dead.reason, dead.ended_by, now)
    if task is None:
        return False, None
    order = after_death(dead.ended_by, Order(task.attempt, task.crashes, task.try_number))
    if order is None:
        # What the execution had read, or what made it due, is over. Whatever arrived later was read by nobody.
        store_read_versions(connection, dead.batch, versions_of(task.inputs))
        code = update(metrics_task_log).where(metrics_task_log.c.id == task.id)
        connection.execute(code.values(failure_code=FailureCode.GIVEN_UP))
    why = Trigger.AGAIN if order is None else Trigger.RECOVERY
    due = [standing for standing in load_standings(connection, [dead.batch]) if judge(standing) is Verdict.DUE]
    tasks = queue_executions(connection, due, why, now, order=order or FIRST) if due else {}
    return order is None and not tasks, tasks.get(dead.batch)


def find_dead_executions(connection: Connection) -> list[DeadExecution]:
    """RUNNING tasks whose row of work is closed: the process that should have closed the task is gone."""
    log, by_run = metrics_task_log.c, work.alias("by_run")
    status = func.coalesce(work.c.status, by_run.c.status)
    query = (
        select(
            *(log.id, log.model_id, log.op_time, log.process),
            status.label("status"),
            func.coalesce(work.c.error, by_run.c.error).label("error"),
            func.coalesce(work.c.ended_by, by_run.c.ended_by).label("ended_by"),
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
            found.error or _REASONS.get(by, "its run ended without closing the task"),
            by,
            found.process,
        )
        for found in connection.execute(query)
        for by in [_ended_by(found.ended_by, found.status, found.cancel_requested_at)]
    ]


def _ended_by(noted: str | None, status: str, cancel_requested_at: datetime | None) -> EndedBy:
    """Who ended the run of a closed row of work; the process of the run itself may have closed it without a note."""
    if noted is not None:
        return EndedBy(noted)
    if status != Status.CANCELED:
        return EndedBy.DEATH
    return EndedBy.RESTART if cancel_requested_at is None else EndedBy.OPERATOR


def find_running_task(engine: Engine, task_id: int, reason: str) -> DeadExecution:
    """A RUNNING task that somebody releases, whether or not it is dead. Raises ArrivalsError if it is not RUNNING."""
    log = metrics_task_log.c
    query = select(log.model_id, log.op_time, log.status, log.process, log.run_id).where(log.id == task_id)
    found = read(engine, lambda connection: connection.execute(query).one_or_none())
    if found is None:
        raise ArrivalsError(f"there is no task {task_id}")
    if found.status != TaskStatus.RUNNING:
        raise ArrivalsError(f"task {task_id} is {found.status}: there is nothing to release")
    batch = (found.model_id, found.op_time)
    return DeadExecution(task_id, batch, reason, EndedBy.RELEASE, found.process, found.run_id)


def row_of_task(connection: Connection, task_id: int) -> int | None:
    """The open row of work of a task, whether it was queued with the task or written when its run was launched."""
    log = metrics_task_log.c
    query = (
        select(work.c.id)
        .join_from(metrics_task_log, work, or_(work.c.id == log.work_id, work.c.run_id == log.run_id))
        .where(log.id == task_id, work.c.status.in_(sorted(OPEN_STATUSES)))
    )
    return connection.execute(query).scalars().first()


def count_given_up(connection: Connection, since: datetime) -> dict[str, int]:
    """For each model, how many batches whose newest task began since then were given up."""
    log = metrics_task_log.c
    query = (
        select(log.model_id, func.count())
        .where(
            log.status == TaskStatus.FAILED,
            log.start_time >= since,
            log.failure_code == FailureCode.GIVEN_UP,
            ~has_later_task(),
        )
        .group_by(log.model_id)
    )
    return {str(model_id): count for model_id, count in connection.execute(query)}


def executions_without_work(connection: Connection) -> Mapping[str, DeadExecution]:
    """RUNNING tasks whose run has no row of work, by run id. Whether they are dead only Dagster knows."""
    log = metrics_task_log.c
    query = (
        select(log.id, log.model_id, log.op_time, log.run_id, log.process)
        .select_from(metrics_model_running)
        .join(metrics_task_log, log.id == metrics_model_running.c.task_id)
        .outerjoin(work, work.c.run_id == log.run_id)
        .where(log.work_id.is_(None), work.c.id.is_(None))
    )
    return {
        found.run_id: DeadExecution(
            found.id, (found.model_id, found.op_time), "its run has ended", EndedBy.DEATH, found.process
        )
        for found in connection.execute(query)
    }


def executions_of_ended_runs(
    engine: Engine,
    executions: Mapping[str, DeadExecution],
    runs: Sequence[RunState],
    now: datetime,
    timeout: timedelta,
) -> list[DeadExecution]:
    """Those of the executions without a row of work that are dead, judged by their runs.

    An execution whose run was deleted may still be at work. It counts as dead after twice the time that its query may
    take: the model's own, or `timeout`.
    """
    ended = [
        replace(
            executions[run.run_id],
            reason=f"its run is {run.status}",
            ended_by=EndedBy.OPERATOR if run.is_canceled else EndedBy.DEATH,
        )
        for run in runs
        if run.is_finished
    ]
    known = {run.run_id for run in runs}
    without_run = [dead for run_id, dead in executions.items() if run_id not in known]
    old = _overdue_tasks(engine, [dead.task_id for dead in without_run], now, timeout)
    return ended + [replace(dead, reason="its run was deleted") for dead in without_run if dead.task_id in old]


def _overdue_tasks(engine: Engine, task_ids: Collection[int], now: datetime, timeout: timedelta) -> set[int]:
    log, model = metrics_task_log.c, metrics_model.c
    query = (
        select(log.id, log.start_time, model.timeout_s)
        .outerjoin_from(metrics_task_log, metrics_model, model.model_id == log.model_id)
        .where(log.id.in_(task_ids))
    )
    found = read(engine, lambda connection: connection.execute(query).all()) if task_ids else []
    return {
        row.id
        for row in found
        if row.start_time < now - 2 * (timeout if row.timeout_s is None else timedelta(seconds=row.timeout_s))
    }
