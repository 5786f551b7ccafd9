"""Rows of work: written by whoever wants a run, claimed under a lease, closed once, waited for. Knows no Dagster."""

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, Row, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from platform_defs.store.claim import claim as claim_rows
from platform_defs.store.engine import ATTEMPTS, read, transact
from platform_defs.store.tables.work import work
from platform_defs.work.errors import WorkError, WorkTimeout
from platform_defs.work.processes import ProcessId, hostname

LEASE = timedelta(seconds=20)
# What running work gets when the runner itself must stop: a stop of everything takes at most 10 s.
STOP_GRACE_S = 3.0
# An adopted process is no descendant of the runner, so nobody else ends it should the runner be killed in turn.
ADOPTED_GRACE_S = 1.0
# A run that Dagster asked the launcher for; every other kind names a job of ours (see kinds.py).
DAGSTER_RUN = "dagster_run"
# The owner of rows that a sensor turned into ordinary run requests.
LAUNCHER = "launcher"


class Status(StrEnum):
    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELED = "CANCELED"

    @property
    def is_final(self) -> bool:
        return self in FINAL_STATUSES


OPEN_STATUSES = frozenset({Status.QUEUED, Status.RUNNING})
FINAL_STATUSES = frozenset(Status) - OPEN_STATUSES


def is_finished(status: ColumnElement[str]) -> ColumnElement[bool]:
    """SQL condition on the status column of `work`, or on an expression or alias of it: the row is closed."""
    return status.in_(sorted(FINAL_STATUSES))


@dataclass(frozen=True)
class Work:
    id: int
    kind: str
    payload: Mapping[str, Any]
    run_id: str
    status: Status
    attempts: int
    lease_owner: str | None
    process: ProcessId | None
    created_at: datetime
    heartbeat_at: datetime | None
    cancel_requested: bool
    result: Any
    error: str | None

    @property
    def runner_here(self) -> ProcessId | None:
        """The runner that has the lease, if it is one of this machine: elsewhere a pid says nothing."""
        if self.lease_owner is None or self.lease_owner.count(":") < 2:
            return None
        host, pid, started = self.lease_owner.rsplit(":", 2)
        return ProcessId(int(pid), int(started)) if host == hostname() else None

    @property
    def is_seen_at_work(self) -> bool:
        """Whether its process lives on this machine. Then a lease that ran out says that the database was busy.

        On SQLite it is for as long as one large transaction writes: nobody can renew a lease meanwhile.
        """
        return self.process is not None and self.runner_here is not None and self.process.is_alive()


def enqueue(
    engine: Engine,
    kind: str,
    payload: Mapping[str, Any],
    *,
    key: str | None = None,
    run_id: str | None = None,
    priority: int = 100,
) -> Work:
    """Writes the row; under a key that was used before, returns the row that is already there."""
    row = {
        "kind": kind,
        "payload": dict(payload),
        "idempotent_key": key,
        "run_id": run_id or str(uuid.uuid4()),
        "status": Status.QUEUED,
        "priority": priority,
    }

    def write(connection: Connection) -> Row[Any]:
        connection.execute(insert(work).values(row))
        return connection.execute(select(work).where(work.c.run_id == row["run_id"])).one()

    try:
        return _from_row(transact(engine, write))
    except IntegrityError:
        # a retry after a lost answer finds its own row by run_id, a second writer finds the first by key
        wanted = work.c.run_id == row["run_id"] if key is None else work.c.idempotent_key == key
        found = read(engine, lambda connection: connection.execute(select(work).where(wanted)).one_or_none())
        if found is None:
            raise
        return _from_row(found)


def ensure(engine: Engine, kind: str, *, key: str) -> Work:
    """The open row of a kind whose every run does all there is to do, or a new one: a second would only take a slot."""
    mine = (work.c.kind == kind) & work.c.status.in_([Status.QUEUED, Status.RUNNING])
    query = select(work).where(mine).order_by(work.c.id).limit(1)
    found = read(engine, lambda connection: connection.execute(query).one_or_none())
    # two that look at the same time both find none: the key then makes their rows one
    return enqueue(engine, kind, {}, key=key) if found is None else _from_row(found)


def add(connection: Connection, kind: str, payloads: Sequence[Mapping[str, Any]], *, priority: int = 100) -> list[Work]:
    """Writes a row per payload in the caller's transaction: they exist if and only if what they are for does."""
    rows = [
        {
            "kind": kind,
            "payload": dict(payload),
            "run_id": str(uuid.uuid4()),
            "status": Status.QUEUED,
            "priority": priority,
        }
        for payload in payloads
    ]
    if not rows:
        return []
    connection.execute(insert(work), rows)
    written = connection.execute(select(work).where(work.c.run_id.in_([row["run_id"] for row in rows]))).all()
    by_run = {row.run_id: _from_row(row) for row in written}
    return [by_run[row["run_id"]] for row in rows]


def get(engine: Engine, work_id: int) -> Work:
    found = read(engine, lambda connection: connection.execute(select(work).where(work.c.id == work_id)).one_or_none())
    if found is None:
        raise WorkError(f"there is no work {work_id}")
    return _from_row(found)


def by_run(engine: Engine, run_id: str) -> Work | None:
    found = read(
        engine, lambda connection: connection.execute(select(work).where(work.c.run_id == run_id)).one_or_none()
    )
    return None if found is None else _from_row(found)


def wait(engine: Engine, work_id: int, timeout_s: float) -> Work:
    """The finished row; polls quickly at first, because most work is short."""
    deadline = time.monotonic() + timeout_s
    pause = 0.02
    while True:
        row = get(engine, work_id)
        if row.status.is_final:
            return row
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise WorkTimeout(f"work {work_id} is {row.status} after {timeout_s:g} s")
        time.sleep(min(pause, remaining))
        pause = min(pause * 1.3, 0.25)


def claim(
    engine: Engine,
    owner: str,
    limit: int,
    *,
    lease: timedelta | None = LEASE,
    waiting_for: timedelta | None = None,
    only: str | None = None,
    without: str | None = None,
) -> list[Work]:
    """Takes up to limit queued rows, most urgent and oldest first; no other owner gets the same ones."""
    now = datetime.now(UTC)
    queued = work.c.status == Status.QUEUED
    if waiting_for is not None:
        queued &= work.c.created_at < now - waiting_for
    if only is not None:
        queued &= work.c.kind == only
    if without is not None:
        queued &= work.c.kind != without

    def take(connection: Connection) -> list[Row[Any]]:
        return claim_rows(
            connection,
            work,
            where=queued,
            order_by=(work.c.priority, work.c.id),
            limit=limit,
            values={
                "status": Status.RUNNING,
                "lease_owner": owner,
                "leased_until": None if lease is None else now + lease,
                "heartbeat_at": now,
                "attempts": work.c.attempts + 1,
            },
        )

    return [_from_row(row) for row in transact(engine, take)]


def give_back(engine: Engine, owner: str, ids: Sequence[int]) -> None:
    """Claimed but not started: the rows wait again."""
    values = {"status": Status.QUEUED, "lease_owner": None, "leased_until": None}
    _change(engine, owner, ids, values, not_started=True)


def mark_started(engine: Engine, owner: str, work_id: int, process: ProcessId) -> bool:
    """Called by the run's own process; False if the row was taken away from the owner meanwhile."""
    values = {"pid": process.pid, "process_started": process.started, "started_at": datetime.now(UTC)}
    return _change(engine, owner, [work_id], values, not_started=True) == 1


def adopt(engine: Engine, old_owner: str, new_owner: str, ids: Sequence[int]) -> None:
    now = datetime.now(UTC)
    _change(engine, old_owner, ids, {"lease_owner": new_owner, "leased_until": now + LEASE, "heartbeat_at": now})


def renew(engine: Engine, owner: str, ids: Sequence[int]) -> None:
    now = datetime.now(UTC)
    _change(engine, owner, ids, {"leased_until": now + LEASE, "heartbeat_at": now})


def owned(engine: Engine, owner: str) -> set[int]:
    """The rows whose lease the owner still holds."""
    mine = (work.c.status == Status.RUNNING) & (work.c.lease_owner == owner)
    return set(read(engine, lambda connection: connection.execute(select(work.c.id).where(mine)).scalars().all()))


def finish(
    engine: Engine,
    work_id: int,
    status: Status,
    *,
    result: Any = None,
    error: str | None = None,
    run_id: str | None = None,
) -> bool:
    """Closes the row once: True for the caller that did. A run id is given where another run did the work."""
    values: dict[str, Any] = {} if run_id is None else {"run_id": run_id}
    values |= {
        "status": status,
        "result": result,
        "error": error,
        "finished_at": datetime.now(UTC),
        "leased_until": None,
    }
    open_row = (work.c.id == work_id) & work.c.status.in_([Status.QUEUED, Status.RUNNING])
    closed = transact(
        engine, lambda connection: connection.execute(update(work).where(open_row).values(values)).rowcount
    )
    return closed == 1


def request_cancel(engine: Engine, run_id: str) -> Work | None:
    """Marks the row of a run to be ended; None if no open row has it."""

    def mark(connection: Connection) -> Row[Any] | None:
        mine = (work.c.run_id == run_id) & work.c.status.in_([Status.QUEUED, Status.RUNNING])
        connection.execute(update(work).where(mine).values(cancel_requested_at=datetime.now(UTC)))
        return connection.execute(select(work).where(mine)).one_or_none()

    row = transact(engine, mark)
    return None if row is None else _from_row(row)


def cancel_requests(engine: Engine, owner: str) -> list[int]:
    wanted = (work.c.status == Status.RUNNING) & (work.c.lease_owner == owner) & work.c.cancel_requested_at.is_not(None)
    return list(read(engine, lambda connection: connection.execute(select(work.c.id).where(wanted)).scalars().all()))


def running(engine: Engine) -> list[Work]:
    rows = read(engine, lambda c: c.execute(select(work).where(work.c.status == Status.RUNNING)).all())
    return [_from_row(row) for row in rows]


def lost(engine: Engine) -> list[Work]:
    """Rows whose owner let the lease run out; their process may be at work all the same."""
    expired = (work.c.status == Status.RUNNING) & (work.c.leased_until < datetime.now(UTC))
    return [_from_row(row) for row in read(engine, lambda c: c.execute(select(work).where(expired)).all())]


def handed_over(engine: Engine) -> list[Work]:
    """Rows that were given to Dagster's own launcher: no runner of ours answers for them."""
    theirs = (work.c.status == Status.RUNNING) & (work.c.lease_owner == LAUNCHER)
    return [_from_row(row) for row in read(engine, lambda c: c.execute(select(work).where(theirs)).all())]


def counts(engine: Engine, *, attempts: int = ATTEMPTS) -> dict[Status, int]:
    query = (
        select(work.c.status, func.count())
        .where(work.c.status.in_([Status.QUEUED, Status.RUNNING]))
        .group_by(work.c.status)
    )
    found = read(engine, lambda connection: connection.execute(query).all(), attempts=attempts)
    return {Status.QUEUED: 0, Status.RUNNING: 0} | {Status(status): count for status, count in found}


def _change(
    engine: Engine, owner: str, ids: Sequence[int], values: Mapping[str, Any], *, not_started: bool = False
) -> int:
    if not ids:
        return 0
    mine = work.c.id.in_(ids) & (work.c.lease_owner == owner) & (work.c.status == Status.RUNNING)
    if not_started:
        mine &= work.c.pid.is_(None)
    return transact(engine, lambda connection: connection.execute(update(work).where(mine).values(values)).rowcount)


def _from_row(row: Row[Any]) -> Work:
    return Work(
        id=row.id,
        kind=row.kind,
        payload=row.payload,
        run_id=row.run_id,
        status=Status(row.status),
        attempts=row.attempts,
        lease_owner=row.lease_owner,
        process=None if row.pid is None else ProcessId(row.pid, row.process_started),
        created_at=row.created_at,
        heartbeat_at=row.heartbeat_at,
        cancel_requested=row.cancel_requested_at is not None,
        result=row.result,
        error=row.error,
    )
