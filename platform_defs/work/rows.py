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
    priority: int = 100,
) -> Work:
    """Writes a row in a transaction of its own. If a row with the same key exists, returns that one instead."""
    row = _new_row(kind, payload, priority) | {"idempotent_key": key}
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


def add(connection: Connection, kind: str, payloads: Sequence[Mapping[str, Any]], *, priority: int = 100) -> list[Work]:
    """Writes one row per payload in the caller's transaction, so that the rows exist only if the transaction commits.

    Returns the rows in the order of the payloads.
    """
    if not payloads:
        return []
    new_rows = [_new_row(kind, payload, priority) for payload in payloads]
    run_ids = [row["run_id"] for row in new_rows]
    connection.execute(insert(work), new_rows)
    written = connection.execute(select(work).where(work.c.run_id.in_(run_ids))).all()
    by_run_id = {row.run_id: Work.from_row(row) for row in written}
    return [by_run_id[run_id] for run_id in run_ids]


def get(engine: Engine, work_id: int) -> Work:
    found = read(engine, lambda connection: connection.execute(select(work).where(work.c.id == work_id)).one_or_none())
    if found is None:
        raise WorkError(f"there is no work {work_id}")
    return Work.from_row(found)


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
) -> bool:
    """Closes the row. Returns True only to the caller that closed it; a closed row stays as it is.

    A run id is given if another run than the one that the row names did the work.
    """
    values: dict[str, Any] = {} if run_id is None else {"run_id": run_id}
    values |= {
        "status": status,
        "result": result,
        "error": error,
        "finished_at": datetime.now(UTC),
        "leased_until": None,
    }
    open_row = (work.c.id == work_id) & work.c.status.in_(sorted(OPEN_STATUSES))
    closed = transact(
        engine, lambda connection: connection.execute(update(work).where(open_row).values(values)).rowcount
    )
    return closed == 1


def request_cancel(engine: Engine, run_id: str) -> Work | None:
    """Asks whoever executes the run to end it. Returns the row, or None if no open row has this run."""

    def mark(connection: Connection) -> Row[Any] | None:
        open_row = (work.c.run_id == run_id) & work.c.status.in_(sorted(OPEN_STATUSES))
        connection.execute(update(work).where(open_row).values(cancel_requested_at=datetime.now(UTC)))
        return connection.execute(select(work).where(open_row)).one_or_none()

    row = transact(engine, mark)
    return None if row is None else Work.from_row(row)


def count_open_rows(engine: Engine, *, attempts: int = ATTEMPTS) -> dict[Status, int]:
    """How many rows are QUEUED and how many are RUNNING."""
    query = select(work.c.status, func.count()).where(work.c.status.in_(sorted(OPEN_STATUSES))).group_by(work.c.status)
    found = read(engine, lambda connection: connection.execute(query).all(), attempts=attempts)
    return {Status.QUEUED: 0, Status.RUNNING: 0} | {Status(status): count for status, count in found}


def _new_row(kind: str, payload: Mapping[str, Any], priority: int) -> dict[str, Any]:
    return {
        "kind": kind,
        "payload": dict(payload),
        "run_id": str(uuid.uuid4()),
        "status": Status.QUEUED,
        "priority": priority,
    }
