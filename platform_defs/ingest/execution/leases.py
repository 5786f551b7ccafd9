"""Leases: which executor works on which task, so that none is worked on twice and none is forgotten."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, Row, and_, bindparam, func, insert, or_, select, update

from platform_defs.ingest.codes import RunStatus, TaskStatus
from platform_defs.ingest.errors import LeaseLost
from platform_defs.ingest.ledger.completion import close_plan_if_done
from platform_defs.store.claim import claim
from platform_defs.store.engine import transact
from platform_defs.store.tables.ingest import ing_endpoint_block, ing_task, ing_task_run

LEASE = timedelta(seconds=60)
HEARTBEAT = timedelta(seconds=15)
# Tasks of one (source, endpoint, operation) that all executors together work on at a time.
PER_PARTITION = 4
_LEASED = (TaskStatus.DISPATCHED, TaskStatus.EXECUTING)
_task = ing_task.c
_HELD = (
    select(_task.lease_owner, _task.status_code, _task.retry_count, _task.expr_hash, _task.schedule_instance_id)
    .where(_task.id == bindparam("task_id"))
    .with_for_update()
)
# Source, endpoint and operation: executors are fair between them.
Partition = tuple[str, str, str]


@dataclass(frozen=True)
class LeasedTask:
    """A task that is ours, with the run that records this attempt at it."""

    task_id: int
    plan_id: int
    slice_id: int
    run_id: int
    attempt_no: int
    owner: str


def lease_tasks(
    engine: Engine,
    owner: str,
    limit: int,
    *,
    now: datetime,
    lease: timedelta = LEASE,
    per_partition: int = PER_PARTITION,
    plan_ids: Sequence[int] | None = None,
) -> list[LeasedTask]:
    """Takes up to `limit` tasks that wait, urgent ones first, fairly between partitions; begins a run for each.

    Leases that ran out return to the queue in the same transaction. `plan_ids` limits the choice to these plans.
    """

    def take(connection: Connection) -> list[LeasedTask]:
        _return_expired(connection, now)
        waiting = _waiting(now, plan_ids)
        taken: list[Row[Any]] = []
        for partition, share in _shares(connection, waiting, limit, per_partition).items():
            taken += claim(
                connection,
                ing_task,
                where=and_(waiting, *_in_partition(partition)),
                order_by=(_task.priority, _task.scheduled_at, _task.id),
                limit=share,
                values={
                    "status_code": TaskStatus.EXECUTING,
                    "lease_owner": owner,
                    "leased_until": now + lease,
                    "lease_count": _task.lease_count + 1,
                    "last_heartbeat_at": now,
                    "started_at": func.coalesce(_task.started_at, now),
                    # the attempt's number: by it a process that lost its lease is told from its successor
                    "retry_count": _task.retry_count + 1,
                },
            )
        return [_begin_run(connection, row, owner, now) for row in taken]

    return transact(engine, take)


def renew_leases(engine: Engine, owner: str, task_ids: Sequence[int], now: datetime, lease: timedelta = LEASE) -> None:
    mine = and_(_task.id.in_(task_ids), _task.lease_owner == owner, _task.status_code.in_(_LEASED))
    values = {"leased_until": now + lease, "last_heartbeat_at": now}
    transact(engine, lambda connection: connection.execute(update(ing_task).where(mine).values(values)))


def fence(connection: Connection, leased: LeasedTask) -> Row[Any, Any, Any, Any, Any]:
    """Holds the task until the transaction ends; raises LeaseLost where it is no longer ours to write for."""
    task = connection.execute(_HELD, {"task_id": leased.task_id}).one()
    if task.lease_owner != leased.owner or task.status_code not in _LEASED or task.retry_count != leased.attempt_no:
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
) -> None:
    """Closes run and task in the caller's transaction, and the plan where this was the last of its tasks."""
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
    _close_run(connection, leased, RunStatus(status), now, stats, error)
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
) -> None:
    """The task waits again: its source was not there, or this executor stops."""
    fence(connection, leased)
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
    _close_run(connection, leased, RunStatus.FAILED if error else RunStatus.CANCELLED, now, stats, error)


def _return_expired(connection: Connection, now: datetime) -> None:
    expired = and_(_task.status_code.in_(_LEASED), _task.leased_until < now)
    # looked at first: a statement that finds nothing must not lock the queue
    found = connection.execute(select(_task.id).where(expired).limit(1000)).scalars().all()
    if found:
        values = {"status_code": TaskStatus.QUEUED, "lease_owner": None, "leased_until": None}
        connection.execute(update(ing_task).where(_task.id.in_(found), expired).values(values))


def is_blocked() -> ColumnElement[bool]:
    """SQL: an operator has to unblock the task's endpoint first."""
    block = ing_endpoint_block.c
    return (
        select(block.provenance_code)
        .where(block.provenance_code == _task.provenance_code, block.endpoint_name == _task.endpoint_name)
        .exists()
    )


def _waiting(now: datetime, plan_ids: Sequence[int] | None) -> ColumnElement[bool]:
    conditions = [
        _task.status_code == TaskStatus.QUEUED,
        or_(_task.leased_until.is_(None), _task.leased_until < now),
        _task.scheduled_at <= now,
        ~is_blocked(),
    ]
    if plan_ids is not None:
        conditions.append(_task.plan_id.in_(plan_ids))
    return and_(*conditions)


def _shares(
    connection: Connection, waiting: ColumnElement[bool], limit: int, per_partition: int
) -> dict[Partition, int]:
    """How many tasks each partition gets: one after the other in turns, the most urgent partitions first."""
    columns = (_task.provenance_code, _task.endpoint_name, _task.operation_code)
    queued = select(*columns, func.min(_task.priority), func.min(_task.scheduled_at), func.count())
    rows = connection.execute(queued.where(waiting).group_by(*columns)).all()
    if not rows:
        return {}
    running: Counter[Partition] = Counter()
    busy = select(*columns, func.count()).where(_task.status_code.in_(_LEASED)).group_by(*columns)
    for source, endpoint, operation, count in connection.execute(busy):
        running[source, endpoint, operation] = count
    room = {
        (row[0], row[1], row[2]): max(0, min(row[5], per_partition - running[row[0], row[1], row[2]]))
        for row in sorted(rows, key=lambda row: (row[3], row[4]))
    }
    shares: Counter[Partition] = Counter()
    while sum(shares.values()) < limit and any(shares[each] < room[each] for each in room):
        for each in room:
            if sum(shares.values()) < limit and shares[each] < room[each]:
                shares[each] += 1
    return {each: count for each, count in shares.items() if count}


def _in_partition(partition: Partition) -> list[ColumnElement[bool]]:
    source, endpoint, operation = partition
    return [_task.provenance_code == source, _task.endpoint_name == endpoint, _task.operation_code == operation]


def _begin_run(connection: Connection, task: Row[Any], owner: str, now: datetime) -> LeasedTask:
    run = ing_task_run.c
    if task.retry_count > 1:
        abandoned = and_(run.task_id == task.id, run.status_code == RunStatus.RUNNING)
        values = {"status_code": RunStatus.FAILED, "finished_at": now, "error": "its executor let the lease run out"}
        connection.execute(update(ing_task_run).where(abandoned).values(values))
    bounds = (task.params or {}).get("bounds", {}).get("time")
    row = {
        "task_id": task.id,
        "attempt_no": task.retry_count,
        "provenance_code": task.provenance_code,
        "operation_code": task.operation_code,
        "status_code": RunStatus.RUNNING,
        "window_from": None if bounds is None else datetime.fromisoformat(bounds["from"]),
        "window_to": None if bounds is None else datetime.fromisoformat(bounds["to"]),
        "started_at": now,
        "last_heartbeat": now,
    }
    (run_id,) = connection.execute(insert(ing_task_run), row).inserted_primary_key or (0,)
    return LeasedTask(task.id, task.plan_id, task.slice_id, int(run_id), task.retry_count, owner)


def _close_run(
    connection: Connection,
    leased: LeasedTask,
    status: RunStatus,
    now: datetime,
    stats: Mapping[str, Any],
    error: str | None,
) -> None:
    values = {"status_code": status, "finished_at": now, "stats": dict(stats), "error": error}
    connection.execute(update(ing_task_run).where(ing_task_run.c.id == leased.run_id).values(values))
