"""Which waiting tasks an executor takes: the urgent ones first, fairly between partitions, each for one executor alone.

Executors ask often and several at a time, so every statement here is compiled once.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, and_, bindparam, case, false, func, or_, select, update

from platform_defs.ingest.codes import RunStatus, TaskStatus
from platform_defs.store.chunks import chunks
from platform_defs.store.driver import Prepared
from platform_defs.store.tables.ingest import ing_endpoint_block, ing_task, ing_task_run
from platform_defs.store.tables.registry import reg_provenance
from platform_defs.store.types import utc_now

LEASED = (TaskStatus.DISPATCHED, TaskStatus.EXECUTING)
# Candidates that are read for each wanted task: on a server other executors may have locked the first ones.
_LOOK_AHEAD = 8
# How often candidates are read again if other executors have taken all of them: there may be more in the queue.
_LOOKS = 5
# How many tasks with expired leases return to the queue at a time.
_MOST_EXPIRED = 1000
_task = ing_task.c
# Source, endpoint and operation: executors are fair between them.
Partition = tuple[str, str, str]


class PickedTask(NamedTuple):
    task_id: int
    plan_id: int
    slice_id: int
    # the number of the attempt that begins: by it a process that lost its lease is told from its successor
    attempt_no: int
    provenance_code: str
    operation_code: str
    params: Mapping[str, Any] | None


def is_blocked(of: Any = _task) -> ColumnElement[bool]:
    """SQL: an operator has to unblock the endpoint of a task, or to make its source active, first.

    `of` are the columns of tasks, or of plans.
    """
    block, source = ing_endpoint_block.c, reg_provenance.c
    refused = (
        select(block.provenance_code)
        .where(block.provenance_code == of.provenance_code, block.endpoint_name == of.endpoint_name)
        .exists()
    )
    paused = select(source.id).where(source.provenance_code == of.provenance_code, source.is_active == false()).exists()
    return or_(refused, paused)


_PARTITION = (_task.provenance_code, _task.endpoint_name, _task.operation_code)
_IS_DUE = and_(
    _task.status_code == TaskStatus.QUEUED,
    or_(_task.leased_until.is_(None), _task.leased_until < bindparam("now", type_=_task.leased_until.type)),
    _task.scheduled_at <= bindparam("now", type_=_task.scheduled_at.type),
)
_WAITS = and_(_IS_DUE, ~is_blocked())
_ONE_OF = _task.id.in_(bindparam("ids", expanding=True))
_OF_PLANS = _task.plan_id.in_(bindparam("plan_ids", expanding=True))

_EXPIRED = Prepared(
    select(_task.id).where(_task.status_code.in_(LEASED), _task.leased_until < bindparam("now")).limit(_MOST_EXPIRED)
)
_RETURN = Prepared(
    update(ing_task)
    .where(_ONE_OF, _task.status_code.in_(LEASED), _task.leased_until < bindparam("now"))
    .values(
        # one that somebody wants stopped does not wait again
        status_code=case((_task.cancel_requested_at.is_not(None), TaskStatus.CANCELLED), else_=TaskStatus.QUEUED),
        lease_owner=None,
        leased_until=None,
        updated_at=utc_now(),
    )
)
# Ends the abandoned runs of cancelled tasks. That of a task which waits again is ended by the task's next attempt.
_END_RUNS = Prepared(
    update(ing_task_run)
    .where(
        ing_task_run.c.task_id.in_(bindparam("ids", expanding=True)),
        ing_task_run.c.status_code == RunStatus.RUNNING,
        select(_task.id).where(_task.id == ing_task_run.c.task_id, _task.status_code == TaskStatus.CANCELLED).exists(),
    )
    .values(
        status_code=RunStatus.CANCELLED,
        finished_at=bindparam("now"),
        error="its executor let the lease run out",
        updated_at=utc_now(),
    )
)
# How many tasks of each partition run. The last column tells whether a lease has run out, which is rare: only then are
# such leases looked for.
_BUSY = Prepared(
    select(*_PARTITION, func.count(), func.min(_task.leased_until, type_=_task.leased_until.type))
    .where(_task.status_code.in_(LEASED))
    .group_by(*_PARTITION)
)
# whether the endpoint is blocked is asked once for each partition, not for each of its tasks
_queued = (
    select(
        *_PARTITION,
        func.min(_task.priority),
        func.min(_task.scheduled_at, type_=_task.scheduled_at.type),
        func.count(),
        func.min(_task.max_concurrent),
    )
    .where(_IS_DUE)
    .group_by(*_PARTITION)
    .having(~is_blocked())
)
_candidates = (
    select(_task.id)
    .where(
        _WAITS,
        _task.provenance_code == bindparam("source"),
        _task.endpoint_name == bindparam("endpoint"),
        _task.operation_code == bindparam("operation"),
    )
    .order_by(_task.priority, _task.scheduled_at, _task.id)
    .limit(bindparam("most"))
)
# by whether the choice is limited to some plans
_QUEUED = {False: Prepared(_queued), True: Prepared(_queued.where(_OF_PLANS))}
_CANDIDATES = {False: Prepared(_candidates), True: Prepared(_candidates.where(_OF_PLANS))}
# By the primary key: a locking read of the whole condition would sort, and InnoDB locks every row that it sorts. The
# hint keeps the optimiser from scanning a small table.
_LOCK = Prepared(
    select(
        _task.id,
        _task.plan_id,
        _task.slice_id,
        _task.retry_count + 1,
        _task.provenance_code,
        _task.operation_code,
        _task.params,
    )
    .with_hint(ing_task, "FORCE INDEX (PRIMARY)", "mysql")
    .with_hint(ing_task, "FORCE INDEX (PRIMARY)", "mariadb")
    .where(_ONE_OF, _WAITS)
    .with_for_update(skip_locked=True)
)
_TAKE = Prepared(
    update(ing_task)
    .where(_ONE_OF)
    .values(
        status_code=TaskStatus.EXECUTING,
        lease_owner=bindparam("owner"),
        leased_until=bindparam("until"),
        lease_count=_task.lease_count + 1,
        last_heartbeat_at=bindparam("now"),
        started_at=func.coalesce(_task.started_at, bindparam("now", type_=_task.started_at.type)),
        retry_count=_task.retry_count + 1,
        updated_at=utc_now(),
    )
)


def _busy(connection: Connection, now: datetime) -> Counter[Partition]:
    """How many tasks of each partition run; tasks whose leases ran out return to the queue first."""
    rows = _BUSY.run(connection, {}).rows
    if any(first_end is not None and first_end < now for *_, first_end in rows):
        _return_expired(connection, now)
        rows = _BUSY.run(connection, {}).rows
    return Counter({(source, endpoint, operation): count for source, endpoint, operation, count, _ in rows})


def _return_expired(connection: Connection, now: datetime) -> None:
    # looked at first: a statement that finds nothing must not lock the queue
    found = [task_id for (task_id,) in _EXPIRED.run(connection, {"now": now}).rows]
    if found:
        _RETURN.run(connection, {"ids": found, "now": now})
        _END_RUNS.run(connection, {"ids": found, "now": now})


def pick_tasks(
    connection: Connection,
    owner: str,
    limit: int,
    *,
    now: datetime,
    until: datetime,
    per_partition: int | None,
    plan_ids: Sequence[int] | None,
    lowered: Mapping[Partition, int],
) -> list[PickedTask]:
    """Leases up to `limit` tasks to `owner`; while others pick at the same moment, it may get fewer than there are.

    Tasks whose leases ran out return to the queue first. Of a partition no more run at a time than its tasks say, or
    `per_partition` if that is given, and no more than `lowered` says.
    """
    running = _busy(connection, now)
    of_plans: dict[str, Any] = {} if plan_ids is None else {"plan_ids": plan_ids}
    if plan_ids is not None and not plan_ids:
        return []
    chosen: list[PickedTask] = []
    for partition, share in _shares(connection, of_plans, now, limit, per_partition, lowered, running).items():
        named = dict(zip(("source", "endpoint", "operation"), partition, strict=True))
        wanted = named | of_plans | {"now": now, "most": share * _LOOK_AHEAD}
        chosen += _chosen(connection, _CANDIDATES[bool(of_plans)], wanted, share)
    if chosen:
        ids = [task.task_id for task in chosen]
        _TAKE.run(connection, {"ids": ids, "owner": owner, "until": until, "now": now})
    return chosen


def _chosen(connection: Connection, query: Prepared, wanted: Mapping[str, Any], share: int) -> list[PickedTask]:
    """Locks up to `share` waiting tasks of a partition, and returns them."""
    for _ in range(_LOOKS):
        candidates = [task_id for (task_id,) in query.run(connection, wanted).rows]
        if not candidates:
            break
        if found := _locked(connection, candidates, share, wanted["now"]):
            return found
    return []


def _locked(connection: Connection, candidates: Sequence[int], share: int, now: datetime) -> list[PickedTask]:
    """The first candidates that nobody else has locked or taken."""
    chosen: list[PickedTask] = []
    for part in chunks(candidates, share):
        locked = {row[0]: PickedTask(*row) for row in _LOCK.run(connection, {"ids": part, "now": now}).rows}
        chosen += [locked[task_id] for task_id in part if task_id in locked]
        if len(chosen) >= share:
            break
    return chosen[:share]


def _shares(
    connection: Connection,
    of_plans: Mapping[str, Any],
    now: datetime,
    limit: int,
    per_partition: int | None,
    lowered: Mapping[Partition, int],
    running: Counter[Partition],
) -> dict[Partition, int]:
    """How many tasks each partition gets: one after the other in turns, the most urgent partitions first."""
    rows = _QUEUED[bool(of_plans)].run(connection, {"now": now, **of_plans}).rows
    room: dict[Partition, int] = {}
    for source, endpoint, operation, _, _, waiting, most in sorted(rows, key=lambda row: (row[3], row[4])):
        partition = (source, endpoint, operation)
        most = per_partition or most
        room[partition] = max(0, min(waiting, min(most, lowered.get(partition, most)) - running[partition]))
    shares: Counter[Partition] = Counter()
    while sum(shares.values()) < limit and any(shares[each] < room[each] for each in room):
        for each in room:
            if sum(shares.values()) < limit and shares[each] < room[each]:
                shares[each] += 1
    return {each: count for each, count in shares.items() if count}
