"""Leases: which executor works on which task, so that none is worked on twice and none is forgotten."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import Connection, Engine, and_, bindparam, insert, select, update

from platform_defs.ingest.codes import RunStatus, TaskStatus
from platform_defs.ingest.errors import LeaseLost
from platform_defs.ingest.ledger.completion import close_plan_if_done
from platform_defs.ingest.tasks.deaths import (
    EXECUTOR_DIED,
    LEASE_RAN_OUT,
    MAX_DEATHS,
    SUSPECTED_FROM,
    Deaths,
    read_deaths,
    works_on_suspect,
)
from platform_defs.ingest.tasks.picking import LEASED, Partition, PickedTask, pick_tasks
from platform_defs.store.driver import Prepared
from platform_defs.store.engine import read, transact
from platform_defs.store.tables.ingest import ing_task, ing_task_run

LEASE = timedelta(seconds=60)
HEARTBEAT = timedelta(seconds=15)
# When a task is looked at again that its executor does not begin, because it works on another suspected one.
SUSPECT_WAITS = timedelta(seconds=5)
_task = ing_task.c
_log = logging.getLogger(__name__)
_HELD = Prepared(
    select(
        *(_task.lease_owner, _task.status_code, _task.retry_count, _task.expr_hash, _task.schedule_instance_id),
        _task.cancel_requested_at,
    )
    .where(_task.id == bindparam("task_id"))
    .with_for_update()
)
_RUN_COLUMNS = (
    *("task_id", "attempt_no", "provenance_code", "operation_code", "status_code", "window_from", "window_to"),
    *("started_at", "last_heartbeat"),
)
_ADD_RUN = Prepared(insert(ing_task_run).values({name: bindparam(name) for name in _RUN_COLUMNS}))


@dataclass(frozen=True)
class LeasedTask:
    """A task that is ours, with the run that records this attempt at it."""

    task_id: int
    plan_id: int
    slice_id: int
    run_id: int
    attempt_no: int
    owner: str


class HeldTask(NamedTuple):
    """The columns of a task that `fence` has locked and read."""

    lease_owner: str | None
    status_code: str
    retry_count: int
    expr_hash: str
    schedule_instance_id: int
    # since when somebody wants the task stopped
    cancel_requested_at: datetime | None


def lease_tasks(
    engine: Engine,
    owner: str,
    limit: int,
    *,
    now: datetime,
    lease: timedelta = LEASE,
    per_partition: int | None = None,
    plan_ids: Sequence[int] | None = None,
    lowered: Mapping[Partition, int] | None = None,
) -> list[LeasedTask]:
    """Takes up to `limit` tasks that wait, urgent ones first, fairly between partitions; begins a run for each.

    Leases that ran out return to the queue in the same transaction. `plan_ids` limits the choice to these plans,
    `lowered` the tasks of a partition that run at a time. Tasks of which executors die again and again are given up
    here, and none that may be such a one is begun beside another: see deaths.py.
    """

    def take(connection: Connection) -> tuple[int, list[LeasedTask]]:
        picked = pick_tasks(
            connection,
            owner,
            limit,
            now=now,
            until=now + lease,
            per_partition=per_partition,
            plan_ids=plan_ids,
            lowered=lowered or {},
        )
        begun = [_begin_run(connection, task, owner, now) for task in picked]
        return len(picked), [each for each in begun if each is not None]

    while True:
        picked, leased = transact(engine, take)
        # if all that was picked was given up or left for later, others may be due
        if leased or not picked:
            return leased


def renew_leases(engine: Engine, owner: str, task_ids: Sequence[int], now: datetime, lease: timedelta = LEASE) -> None:
    mine = and_(_task.id.in_(task_ids), _task.lease_owner == owner, _task.status_code.in_(LEASED))
    values = {"leased_until": now + lease, "last_heartbeat_at": now}
    transact(engine, lambda connection: connection.execute(update(ing_task).where(mine).values(values)))


def cancelled_tasks(engine: Engine, task_ids: Sequence[int]) -> set[int]:
    """Those of the tasks that somebody wants stopped."""
    query = select(_task.id).where(_task.id.in_(task_ids), _task.cancel_requested_at.is_not(None))
    return set(read(engine, lambda connection: connection.execute(query).scalars().all()))


def fence(connection: Connection, leased: LeasedTask) -> HeldTask:
    """Holds the task until the transaction ends; raises LeaseLost where it is no longer ours to write for."""
    rows = _HELD.run(connection, {"task_id": leased.task_id}).rows
    if not rows:
        raise LeaseLost(f"task {leased.task_id} was removed with its source")
    task = HeldTask(*rows[0])
    if task.lease_owner != leased.owner or task.status_code not in LEASED or task.retry_count != leased.attempt_no:
        raise LeaseLost(f"task {leased.task_id} is {task.status_code} and held by {task.lease_owner or 'nobody'}")
    return task


def end_task(
    connection: Connection,
    leased: LeasedTask,
    status: TaskStatus,
    *,
    now: datetime,
    stats: Mapping[str, Any],
    error_code: str | None = None,
    error: str | None = None,
    run_status: RunStatus | None = None,
    run_error: str | None = None,
) -> None:
    """Closes run and task in the caller's transaction, and the plan where this was the last of its tasks.

    The run ends like its task unless `run_status` and `run_error` say otherwise.
    """
    fence(connection, leased)
    values = {
        "status_code": status,
        "finished_at": now,
        "lease_owner": None,
        "leased_until": None,
        "last_error_code": error_code,
        "last_error_msg": error,
    }
    connection.execute(update(ing_task).where(_task.id == leased.task_id).values(values))
    _close_run(connection, leased, run_status or RunStatus(status), now, stats, run_error or error)
    close_plan_if_done(connection, leased.plan_id)


def put_back(
    connection: Connection,
    leased: LeasedTask,
    *,
    now: datetime,
    not_before: datetime,
    stats: Mapping[str, Any],
    error_code: str | None = None,
    error: str | None = None,
    run_status: RunStatus | None = None,
    checkpoint: Mapping[str, Any] | None = None,
) -> TaskStatus | None:
    """The task waits again: its source was not there, its budget is used up, or this executor stops.

    A task that somebody wants stopped does not wait: it is CANCELLED, and that is returned.
    """
    held = fence(connection, leased)
    run_status = run_status or (RunStatus.FAILED if error else RunStatus.CANCELLED)
    _close_run(connection, leased, run_status, now, stats, error, checkpoint)
    if held.cancel_requested_at is not None:
        # who cancelled it has left the reason with the task
        over = {"status_code": TaskStatus.CANCELLED, "finished_at": now, "lease_owner": None, "leased_until": None}
        connection.execute(update(ing_task).where(_task.id == leased.task_id).values(over))
        close_plan_if_done(connection, leased.plan_id)
        return TaskStatus.CANCELLED
    values: dict[str, Any] = {
        "status_code": TaskStatus.QUEUED,
        "scheduled_at": not_before,
        "lease_owner": None,
        "leased_until": None,
    }
    if error is not None:
        # an executor that merely stops leaves the last error, which says why the task is not done yet
        values |= {"last_error_code": error_code, "last_error_msg": error}
    connection.execute(update(ing_task).where(_task.id == leased.task_id).values(values))
    return None


def _begin_run(connection: Connection, task: PickedTask, owner: str, now: datetime) -> LeasedTask | None:
    """Writes the run of a new attempt; None if the task is not begun, because executors have died of it."""
    deaths = read_deaths(connection, task.task_id) if task.attempt_no > 1 else None
    if deaths is None:
        return _add_run(connection, task, owner, now)
    is_over = deaths.count >= MAX_DEATHS
    is_suspected = deaths.count >= SUSPECTED_FROM and not is_over
    if is_suspected and works_on_suspect(connection, owner, besides=task.task_id):
        _leave_for_later(connection, task, deaths, now)
        return None
    _close_abandoned(connection, task, deaths, now)
    leased = _add_run(connection, task, owner, now)
    if not is_over:
        _log.warning("task %d: %s", task.task_id, deaths)
        return leased
    _log.error("task %d is given up: %s", task.task_id, deaths)
    end_task(connection, leased, TaskStatus.FAILED, now=now, stats={}, error_code=EXECUTOR_DIED, error=str(deaths))
    return None


def _leave_for_later(connection: Connection, task: PickedTask, deaths: Deaths, now: datetime) -> None:
    """Puts a task back as if it had not been picked. The run that its dead executor left stays open, and tells why."""
    values = {
        "status_code": TaskStatus.QUEUED,
        "scheduled_at": now + SUSPECT_WAITS,
        "lease_owner": None,
        "leased_until": None,
        "lease_count": _task.lease_count - 1,
        "retry_count": _task.retry_count - 1,
        **_why(deaths),
    }
    connection.execute(update(ing_task).where(_task.id == task.task_id).values(values))


def _close_abandoned(connection: Connection, task: PickedTask, deaths: Deaths, now: datetime) -> None:
    """Ends the run that a dead executor left open; from the first death on the task says what has happened to it."""
    run = ing_task_run.c
    abandoned = and_(run.task_id == task.task_id, run.status_code == RunStatus.RUNNING)
    values = {"status_code": RunStatus.FAILED, "finished_at": now, "error": LEASE_RAN_OUT}
    connection.execute(update(ing_task_run).where(abandoned).values(values))
    connection.execute(update(ing_task).where(_task.id == task.task_id).values(_why(deaths)))


def _why(deaths: Deaths) -> dict[str, str]:
    return {"last_error_code": EXECUTOR_DIED, "last_error_msg": str(deaths)}


def _add_run(connection: Connection, task: PickedTask, owner: str, now: datetime) -> LeasedTask:
    bounds = (task.params or {}).get("bounds", {}).get("time")
    row = {
        "task_id": task.task_id,
        "attempt_no": task.attempt_no,
        "provenance_code": task.provenance_code,
        "operation_code": task.operation_code,
        "status_code": RunStatus.RUNNING,
        "window_from": None if bounds is None else datetime.fromisoformat(bounds["from"]),
        "window_to": None if bounds is None else datetime.fromisoformat(bounds["to"]),
        "started_at": now,
        "last_heartbeat": now,
    }
    run_id = int(_ADD_RUN.run(connection, row).lastrowid or 0)
    return LeasedTask(task.task_id, task.plan_id, task.slice_id, run_id, task.attempt_no, owner)


def _close_run(
    connection: Connection,
    leased: LeasedTask,
    status: RunStatus,
    now: datetime,
    stats: Mapping[str, Any],
    error: str | None,
    checkpoint: Mapping[str, Any] | None = None,
) -> None:
    values = {"status_code": status, "finished_at": now, "stats": dict(stats), "error": error, "checkpoint": checkpoint}
    connection.execute(update(ing_task_run).where(ing_task_run.c.id == leased.run_id).values(values))
