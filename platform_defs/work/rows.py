"""Rows of work: each asks for one Dagster run. Any process may write a row and wait for its result."""

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, Row, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from platform_defs.store.engine import ATTEMPTS, read, transact
from platform_defs.store.tables.work import work
from platform_defs.work.errors import WorkError, WorkTimeout
from platform_defs.work.processes import ProcessId

# The kind of a row that Dagster's run launcher wrote for a run that already exists. Every other kind is declared by a
# system (see jobs.py), and its run is created only when the row is executed.
DAGSTER_RUN = "dagster_run"
# The same for a run of ingest, which may hold only its share of the runner's slots.
INGEST_RUN = "dagster_run_ingest"
LAUNCHED_RUNS = frozenset({DAGSTER_RUN, INGEST_RUN})
# Rows with a smaller number go first.
PRIORITY = 100


class Status(StrEnum):
    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELED = "CANCELED"

    @property
    def is_final(self) -> bool:
        return self in FINAL_STATUSES


class EndedBy(StrEnum):
    """Who or what ended a run that did not end by itself."""

    OPERATOR = "operator"  # somebody terminated it in the UI
    RELEASE = "release"  # somebody released its row or its task, because it was stuck
    TIMEOUT = "timeout"  # it took longer than it may
    RESTART = "restart"  # its runner was stopped in order, or a new runner ends what the one before left
    HOST = "host"  # its runner, its machine or the platform died
    DEATH = "death"  # its own process died


OPEN_STATUSES = frozenset({Status.QUEUED, Status.RUNNING})
FINAL_STATUSES = frozenset(Status) - OPEN_STATUSES


def is_finished(status: ColumnElement[str]) -> ColumnElement[bool]:
    """SQL condition on the status column of `work`, or on an expression or alias of it: the row is closed."""
    return status.in_(sorted(FINAL_STATUSES))


def is_due(now: datetime) -> ColumnElement[bool]:
    """SQL condition on `work`: the row may start, as far as its own time is concerned."""
    return work.c.not_before.is_(None) | (work.c.not_before <= now)


@dataclass(frozen=True)
class Work:
    """One row of work, as it was when it was read."""

    id: int
    kind: str
    payload: Mapping[str, Any]
    run_id: str
    status: Status
    attempts: int
    lease_owner: str | None
    # The process that executes the run, once it has started.
    process: ProcessId | None
    created_at: datetime
    heartbeat_at: datetime | None
    cancel_requested: bool
    result: Any
    error: str | None
    # Rows with a smaller number go first.
    priority: int = PRIORITY
    # No runner takes the row before this time.
    not_before: datetime | None = None
    # What the run uses besides a slot, such as a data source.
    resource: str | None = None
    # Set when somebody asks to end the run, and at the latest when it is closed; None if it ended by itself.
    ended_by: EndedBy | None = None

    @classmethod
    def from_row(cls, row: Row[Any]) -> "Work":
        return cls(
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
            priority=row.priority,
            not_before=row.not_before,
            resource=row.resource,
            ended_by=None if row.ended_by is None else EndedBy(row.ended_by),
        )

    @property
    def local_runner(self) -> ProcessId | None:
        """The runner that has the lease, if it is on this machine: the pid of another machine means nothing here."""
        return None if self.lease_owner is None else ProcessId.on_this_machine(self.lease_owner)

    @property
    def is_alive_here(self) -> bool:
        """Whether the process of the run is alive on this machine.

        If it is, an expired lease only means that the database was too busy to renew it: on SQLite one large
        transaction keeps every other writer waiting for as long as it lasts.
        """
        return self.process is not None and self.local_runner is not None and self.process.is_alive()


def enqueue(
    engine: Engine,
    kind: str,
    payload: Mapping[str, Any],
    *,
    key: str | None = None,
    run_id: str | None = None,
    priority: int = PRIORITY,
    not_before: datetime | None = None,
    resource: str | None = None,
) -> Work:
    """Writes a row in a transaction of its own. If a row with the same key exists, returns that one instead.

    No runner takes the row before `not_before`; runners bound how many rows with the same `resource` run at a time.
    """
    row = _new_row(kind, payload, priority, not_before, resource) | {"idempotent_key": key}
    if run_id is not None:
        row["run_id"] = run_id

    def write(connection: Connection) -> Row[Any]:
        connection.execute(insert(work).values(row))
        return connection.execute(select(work).where(work.c.run_id == row["run_id"])).one()

    try:
        return Work.from_row(transact(engine, write))
    except IntegrityError:
        # Without a key the row can only exist because our own insert was committed and its answer was lost.
        same = work.c.run_id == row["run_id"] if key is None else work.c.idempotent_key == key
        found = read(engine, lambda connection: connection.execute(select(work).where(same)).one_or_none())
        if found is None:
            raise
        return Work.from_row(found)


def enqueue_unless_open(engine: Engine, kind: str, *, key: str) -> Work:
    """Returns the open row of this kind, or writes one. For kinds of which every run does all that there is to do."""
    is_open = (work.c.kind == kind) & work.c.status.in_(sorted(OPEN_STATUSES))
    query = select(work).where(is_open).order_by(work.c.id).limit(1)
    found = read(engine, lambda connection: connection.execute(query).one_or_none())
    # Two processes may both find no open row: then the key makes sure that they write only one.
    return enqueue(engine, kind, {}, key=key) if found is None else Work.from_row(found)


def add(
    connection: Connection,
    kind: str,
    payloads: Sequence[Mapping[str, Any]],
    *,
    priority: int = PRIORITY,
    not_before: datetime | None = None,
    resources: Sequence[str | None] | None = None,
) -> list[Work]:
    """Writes one row per payload in the caller's transaction, so that the rows exist only if the transaction commits.

    `resources` has one entry per payload. Returns the rows in the order of the payloads.
    """
    if not payloads:
        return []
    new_rows = [
        _new_row(kind, payload, priority, not_before, resource)
        for payload, resource in zip(payloads, resources or [None] * len(payloads), strict=True)
    ]
    run_ids = [row["run_id"] for row in new_rows]
    connection.execute(insert(work), new_rows)
    written = connection.execute(select(work).where(work.c.run_id.in_(run_ids))).all()
    by_run_id = {row.run_id: Work.from_row(row) for row in written}
    return [by_run_id[run_id] for run_id in run_ids]


def hurry(connection: Connection, work_ids: Sequence[int]) -> list[int]:
    """Lets queued rows that wait for a time start at once; returns the ids of those that did wait."""
    waiting = work.c.id.in_(work_ids) & (work.c.status == Status.QUEUED) & work.c.not_before.is_not(None)
    found = list(connection.execute(select(work.c.id).where(waiting).with_for_update()).scalars()) if work_ids else []
    if found:
        connection.execute(update(work).where(work.c.id.in_(found), waiting).values(not_before=None))
    return found


def take_waiting(connection: Connection, work_id: int, reason: str) -> bool:
    """Closes a queued row that waits for a time, because somebody does its work at once; False if it does not wait."""
    waiting = (work.c.id == work_id) & (work.c.status == Status.QUEUED) & work.c.not_before.is_not(None)
    closed = {"status": Status.CANCELED, "error": reason, "finished_at": datetime.now(UTC)}
    return connection.execute(update(work).where(waiting).values(closed)).rowcount == 1


def get(engine: Engine, work_id: int) -> Work:
    found = read(engine, lambda connection: connection.execute(select(work).where(work.c.id == work_id)).one_or_none())
    if found is None:
        raise WorkError(f"there is no work {work_id}")
    return Work.from_row(found)


def find_open(connection: Connection, run_id: str) -> Work | None:
    """The open row of a Dagster run."""
    open_row = (work.c.run_id == run_id) & work.c.status.in_(sorted(OPEN_STATUSES))
    found = connection.execute(select(work).where(open_row)).one_or_none()
    return None if found is None else Work.from_row(found)


def find_by_run_id(engine: Engine, run_id: str) -> Work | None:
    query = select(work).where(work.c.run_id == run_id)
    found = read(engine, lambda connection: connection.execute(query).one_or_none())
    return None if found is None else Work.from_row(found)


def wait(engine: Engine, work_id: int, timeout_s: float) -> Work:
    """Polls until the row is finished and returns it; quickly at first, because most work is short."""
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


def finish(
    engine: Engine,
    work_id: int,
    status: Status,
    *,
    result: Any = None,
    error: str | None = None,
    run_id: str | None = None,
    ended_by: EndedBy | None = None,
) -> bool:
    """Closes the row. Returns True only to the caller that closed it; a closed row stays as it is.

    A run id is given if another run than the one that the row names did the work. The row keeps its own if that run has
    a row too. Whoever asked to end the run stays the one who ended it, whatever `ended_by` says.
    """
    values: dict[str, Any] = {
        "status": status,
        "result": result,
        "error": error,
        "finished_at": datetime.now(UTC),
        "leased_until": None,
        "ended_by": func.coalesce(work.c.ended_by, ended_by),
    }
    open_row = (work.c.id == work_id) & work.c.status.in_(sorted(OPEN_STATUSES))

    def close(connection: Connection) -> int:
        taken = select(work.c.id).where(work.c.run_id == run_id)
        if run_id is None or connection.execute(taken).first() is not None:
            return connection.execute(update(work).where(open_row).values(values)).rowcount
        return connection.execute(update(work).where(open_row).values(values | {"run_id": run_id})).rowcount

    return transact(engine, close) == 1


def request_cancel(engine: Engine, run_id: str, by: EndedBy = EndedBy.OPERATOR) -> Work | None:
    """Asks whoever executes the run to end it. Returns the row, or None if no open row has this run."""

    def mark(connection: Connection) -> Row[Any] | None:
        open_row = (work.c.run_id == run_id) & work.c.status.in_(sorted(OPEN_STATUSES))
        asked = {"cancel_requested_at": datetime.now(UTC), "ended_by": func.coalesce(work.c.ended_by, by)}
        connection.execute(update(work).where(open_row).values(asked))
        return connection.execute(select(work).where(open_row)).one_or_none()

    row = transact(engine, mark)
    return None if row is None else Work.from_row(row)


def count_open_rows(engine: Engine, *, attempts: int = ATTEMPTS) -> dict[Status, int]:
    """How many rows are QUEUED, without those that wait for a time of their own, and how many are RUNNING."""
    is_open = work.c.status.in_(sorted(OPEN_STATUSES)) & is_due(datetime.now(UTC))
    query = select(work.c.status, func.count()).where(is_open).group_by(work.c.status)
    found = read(engine, lambda connection: connection.execute(query).all(), attempts=attempts)
    return {Status.QUEUED: 0, Status.RUNNING: 0} | {Status(status): count for status, count in found}


def find_later(engine: Engine) -> tuple[int, datetime] | None:
    """How many queued rows wait for a time of their own, and the first of these times; None if there are none."""
    waiting = (work.c.status == Status.QUEUED) & ~is_due(datetime.now(UTC))
    query = select(func.count(), func.min(work.c.not_before)).where(waiting)
    count, first = read(engine, lambda connection: connection.execute(query).one())
    return None if first is None else (count, first)


def _new_row(
    kind: str, payload: Mapping[str, Any], priority: int, not_before: datetime | None, resource: str | None
) -> dict[str, Any]:
    return {
        "kind": kind,
        "payload": dict(payload),
        "run_id": str(uuid.uuid4()),
        "status": Status.QUEUED,
        "priority": priority,
        "not_before": not_before,
        "resource": resource,
    }
