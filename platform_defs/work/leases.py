"""Leases on rows of work: a row that is claimed belongs to one owner until it is closed, given back or adopted.

A runner renews its leases. A lease that runs out shows every other process that the runner is gone or cut off.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, Row, func, select, update

from platform_defs.store.claim import claim as claim_rows
from platform_defs.store.engine import has_one_writer, read, transact
from platform_defs.store.tables.work import resources, work
from platform_defs.store.upsert import upsert
from platform_defs.work.processes import ProcessId
from platform_defs.work.rows import EndedBy, Status, Work, is_due

LEASE = timedelta(seconds=20)
_QUEUED_AGAIN: dict[str, Any] = {"status": Status.QUEUED, "lease_owner": None, "leased_until": None}
_IS_NOT_STARTED = work.c.pid.is_(None)
# The owner of rows that the recovery sensor turned into run requests of Dagster. These leases have no end.
DAGSTER = "launcher"


def claim(
    engine: Engine,
    owner: str,
    limit: int,
    *,
    lease: timedelta | None = LEASE,
    waiting_for: timedelta | None = None,
    only: Collection[str] | None = None,
    without: Collection[str] = (),
    max_priority: int | None = None,
    resource_limit: Callable[[str], int] | None = None,
) -> list[Work]:
    """Gives up to `limit` queued rows that are due to the owner, the most urgent and then the oldest first.

    No other owner gets the same rows. `only` and `without` name kinds of work, `waiting_for` how long a row must have
    been due to be claimed, `max_priority` how urgent it must be. `resource_limit` says how many rows with the same
    resource may run at a time, whichever runners have them.
    """
    now = datetime.now(UTC)
    queued = (work.c.status == Status.QUEUED) & is_due(now if waiting_for is None else now - waiting_for)
    if waiting_for is not None:
        queued &= work.c.created_at < now - waiting_for
    if only is not None:
        queued &= work.c.kind.in_(sorted(only))
    if without:
        queued &= work.c.kind.not_in(sorted(without))
    if max_priority is not None:
        queued &= work.c.priority <= max_priority
    values = {
        "status": Status.RUNNING,
        "lease_owner": owner,
        "leased_until": None if lease is None else now + lease,
        "heartbeat_at": now,
        "claimed_at": now,
        "attempts": work.c.attempts + 1,
    }

    def claim_free(connection: Connection, count: int, condition: ColumnElement[bool]) -> list[Row[Any]]:
        order = (work.c.priority, work.c.id)
        return claim_rows(connection, work, where=condition, order_by=order, limit=count, values=values)

    def take(connection: Connection) -> list[Row[Any]]:
        if resource_limit is None:
            return claim_free(connection, limit, queued)
        left = _lock_free_resources(connection, queued, resource_limit, now)
        taken: list[Row[Any]] = []
        while len(taken) < limit:
            free = [name for name, count in left.items() if count > 0]
            is_free = work.c.resource.is_(None) | work.c.resource.in_(free) if free else work.c.resource.is_(None)
            excess = []
            for row in claim_free(connection, limit - len(taken), queued & is_free):
                if row.resource is not None and left[row.resource] <= 0:
                    excess.append(row.id)
                    continue
                if row.resource is not None:
                    left[row.resource] -= 1
                taken.append(row)
            if not excess:
                return taken
            back = _QUEUED_AGAIN | {"attempts": work.c.attempts - 1}
            connection.execute(update(work).where(work.c.id.in_(excess)).values(back))
        return taken

    return [Work.from_row(row) for row in transact(engine, take)]


def _lock_free_resources(
    connection: Connection, queued: ColumnElement[bool], limit: Callable[[str], int], now: datetime
) -> dict[str, int]:
    """The resources of queued rows that are not used up, and how many more rows of each may run.

    Nobody else takes rows of these resources before the transaction ends. One that is used up is not locked: a backfill
    that waits for its source must not make every claim wait for every other.
    """
    resource = work.c.resource
    query = select(resource).where(queued, resource.is_not(None)).distinct().order_by(resource)
    wanted = [str(name) for name in connection.execute(query).scalars()]

    def count_left(names: Sequence[str]) -> dict[str, int]:
        running = (work.c.status == Status.RUNNING) & resource.in_(names)
        counted = select(resource, func.count()).where(running).group_by(resource)
        in_use = Counter({str(name): count for name, count in connection.execute(counted)}) if names else Counter()
        return {name: limit(name) - in_use[name] for name in names if in_use[name] < limit(name)}

    free = count_left(wanted)
    if not free or has_one_writer(connection.engine):
        return free
    upsert(connection, resources, [{"name": name, "claimed_at": now} for name in sorted(free)], key=["name"])
    return count_left(list(free))


def give_back(engine: Engine, owner: str, ids: Sequence[int]) -> None:
    """Puts claimed rows back into the queue. Rows whose process has started stay with their owner."""
    _update_owned(engine, owner, ids, _QUEUED_AGAIN, _IS_NOT_STARTED)


def park(connection: Connection, work_id: int, not_before: datetime) -> bool:
    """Queues a row again whose process has nothing to do until then, and ends by itself. Its run goes on later.

    Returns False if the row is closed, or if somebody asked to end the run. To be called by that process alone.
    """
    running = (work.c.id == work_id) & (work.c.status == Status.RUNNING) & work.c.cancel_requested_at.is_(None)
    values = _QUEUED_AGAIN | {"pid": None, "process_started": None, "not_before": not_before}
    if connection.execute(update(work).where(running).values(values)).rowcount == 1:
        return True
    # A row whose process is at work is queued by nobody else: it was done before, and the answer was lost.
    queued = (work.c.id == work_id) & (work.c.status == Status.QUEUED)
    return connection.execute(select(work.c.id).where(queued)).first() is not None


def hand_to_dagster(connection: Connection, work_id: int, run_id: str) -> None:
    """Notes that a run which Dagster launched without a runner executes the row; the recovery sensor closes it."""
    handed_over = {
        "status": Status.RUNNING,
        "lease_owner": DAGSTER,
        "run_id": run_id,
        "heartbeat_at": datetime.now(UTC),
    }
    connection.execute(update(work).where(work.c.id == work_id).values(handed_over))


def take_back_from_dagster(engine: Engine, work_id: int, run_id: str) -> Work | None:
    """Queues a row again that was handed to Dagster, now with the run that Dagster made for it.

    Returns None if the row is not waiting for a run of Dagster any more: closed, taken back before, or at work.
    """
    handed_over = (work.c.id == work_id) & _is_owned_by(DAGSTER) & work.c.pid.is_(None)

    def take(connection: Connection) -> Row[Any] | None:
        query = select(work.c.id).where(handed_over, ~_runs_of_other_rows(run_id, work_id))
        if connection.execute(query.with_for_update()).first() is None:
            # A repeated launch of the same run finds the row as the first launch left it.
            return connection.execute(select(work).where(work.c.id == work_id, work.c.run_id == run_id)).one_or_none()
        connection.execute(update(work).where(work.c.id == work_id).values(_QUEUED_AGAIN | {"run_id": run_id}))
        return connection.execute(select(work).where(work.c.id == work_id)).one()

    row = transact(engine, take)
    return None if row is None else Work.from_row(row)


def mark_started(engine: Engine, owner: str, work_id: int, process: ProcessId) -> bool:
    """Called by the process of the run itself. Returns False if the row was taken away from the owner meanwhile."""
    values = {"pid": process.pid, "process_started": process.started, "started_at": datetime.now(UTC)}
    # If the answer to the commit was lost, the repeated transaction finds its own process.
    is_mine = (work.c.pid == process.pid) & (work.c.process_started == process.started)
    return _update_owned(engine, owner, [work_id], values, _IS_NOT_STARTED | is_mine) == 1


def adopt(engine: Engine, old_owner: str, new_owner: str, work_id: int) -> bool:
    """Moves the lease of a runner that is gone to another runner; False if somebody else was faster."""
    now = datetime.now(UTC)

    def move(connection: Connection) -> bool:
        values = {"lease_owner": new_owner, "leased_until": now + LEASE, "heartbeat_at": now}
        left = (work.c.id == work_id) & _is_owned_by(old_owner)
        connection.execute(update(work).where(left).values(values))
        moved = (work.c.id == work_id) & _is_owned_by(new_owner)
        return connection.execute(select(work.c.id).where(moved)).first() is not None

    return transact(engine, move)


def renew(engine: Engine, owner: str, ids: Sequence[int]) -> None:
    now = datetime.now(UTC)
    _update_owned(engine, owner, ids, {"leased_until": now + LEASE, "heartbeat_at": now})


def note_end(engine: Engine, owner: str, by: EndedBy) -> None:
    """Notes who is about to end all runs of the owner, before their rows are closed one by one."""
    values = {"ended_by": func.coalesce(work.c.ended_by, by)}
    transact(engine, lambda connection: connection.execute(update(work).where(_is_owned_by(owner)).values(values)))


def owned_ids(engine: Engine, owner: str) -> set[int]:
    """Ids of the rows whose lease the owner still has."""
    return set(_ids_where(engine, _is_owned_by(owner)))


def ids_to_cancel(engine: Engine, owner: str) -> list[int]:
    """Ids of the owner's rows whose run somebody asked to end."""
    return _ids_where(engine, _is_owned_by(owner) & work.c.cancel_requested_at.is_not(None))


def running_rows(engine: Engine) -> list[Work]:
    return _rows_where(engine, work.c.status == Status.RUNNING)


def rows_with_expired_lease(engine: Engine) -> list[Work]:
    """Rows whose owner did not renew the lease in time. The process of such a row may still be at work."""
    return _rows_where(engine, (work.c.status == Status.RUNNING) & (work.c.leased_until < datetime.now(UTC)))


def note_open_runs(engine: Engine, ids: Sequence[int]) -> None:
    """Notes that the runs of rows that were handed to Dagster are open: such a row has no runner that would."""
    _update_owned(engine, DAGSTER, ids, {"heartbeat_at": datetime.now(UTC)})


def rows_handed_to_dagster(engine: Engine) -> list[Work]:
    """Open rows that became run requests of Dagster, so that no runner of ours answers for them."""
    return _rows_where(engine, _is_owned_by(DAGSTER))


def _is_owned_by(owner: str) -> ColumnElement[bool]:
    return (work.c.status == Status.RUNNING) & (work.c.lease_owner == owner)


def _runs_of_other_rows(run_id: str, work_id: int) -> ColumnElement[bool]:
    other = work.alias("other")
    return select(other.c.id).where(other.c.run_id == run_id, other.c.id != work_id).exists()


def _rows_where(engine: Engine, condition: ColumnElement[bool]) -> list[Work]:
    found = read(engine, lambda connection: connection.execute(select(work).where(condition)).all())
    return [Work.from_row(row) for row in found]


def _ids_where(engine: Engine, condition: ColumnElement[bool]) -> list[int]:
    query = select(work.c.id).where(condition)
    return list(read(engine, lambda connection: connection.execute(query).scalars().all()))


def _update_owned(
    engine: Engine,
    owner: str,
    ids: Sequence[int],
    values: Mapping[str, Any],
    condition: ColumnElement[bool] | None = None,
) -> int:
    """Changes those of the rows that the owner still has, and that meet the condition if there is one; how many."""
    if not ids:
        return 0
    wanted = work.c.id.in_(ids) & _is_owned_by(owner)
    if condition is not None:
        wanted &= condition
    return transact(engine, lambda connection: connection.execute(update(work).where(wanted).values(values)).rowcount)
