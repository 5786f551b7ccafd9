"""Drives: each is one row of work, one process and one recorded Dagster run that executes what it can of a run."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, insert, select, update

from platform_defs.chains.kinds_of_work import CHAIN_RUN
from platform_defs.store.tables.chains import job_run, job_run_drive
from platform_defs.store.tables.work import work
from platform_defs.work import leases, rows
from platform_defs.work.rows import OPEN_STATUSES

# Why the first drive of a run exists; later ones name what was done to the run.
STARTED = "start"


@dataclass(frozen=True)
class Drive:
    run_id: str
    drive_no: int
    work_id: int
    dagster_run_id: str


def lock_run(connection: Connection, run_id: str) -> Row[Any] | None:
    """The row of the run, locked until the transaction ends.

    Whatever decides about a run as a whole locks it first: the start of a drive, its end, stop, retry and complete. So
    a drive that finds nothing left to do, and a retry that comes in the same moment, see each other.
    """
    return connection.execute(select(job_run).where(job_run.c.run_id == run_id).with_for_update()).one_or_none()


def open_drive(connection: Connection, run_id: str) -> Drive | None:
    """The drive of the run whose row of work is not closed."""
    query = (
        select(job_run_drive)
        .join(work, work.c.id == job_run_drive.c.work_id)
        .where(job_run_drive.c.run_id == run_id, work.c.status.in_(sorted(OPEN_STATUSES)))
        .order_by(job_run_drive.c.drive_no.desc())
        .limit(1)
    )
    row = connection.execute(query).one_or_none()
    return None if row is None else Drive(row.run_id, row.drive_no, row.work_id, row.dagster_run_id)


def find_drive(connection: Connection, dagster_run_id: str) -> Drive | None:
    """The drive that a Dagster run shows."""
    query = select(job_run_drive).where(job_run_drive.c.dagster_run_id == dagster_run_id)
    row = connection.execute(query).one_or_none()
    return None if row is None else Drive(row.run_id, row.drive_no, row.work_id, row.dagster_run_id)


def begin_drive(
    connection: Connection,
    run: Row[Any],
    reason: str,
    *,
    dagster_run_id: str | None = None,
    not_before: datetime | None = None,
) -> Drive:
    """Writes the next drive of a locked run, with its row of work. The caller wakes the runner after the commit.

    `dagster_run_id` is given if a Dagster run executes it already, because somebody launched the chain's job.
    """
    drive_no = run.drive_no + 1
    payload: Mapping[str, Any] = {"run_id": run.run_id, "drive_no": drive_no}
    row = None if dagster_run_id is None else rows.find_open(connection, dagster_run_id)
    if row is None:
        (row,) = rows.add(connection, CHAIN_RUN, [payload], not_before=not_before)
        if dagster_run_id is not None:
            leases.hand_to_dagster(connection, row.id, dagster_run_id)
    drive = Drive(run.run_id, drive_no, row.id, dagster_run_id or row.run_id)
    connection.execute(
        insert(job_run_drive).values(
            run_id=drive.run_id,
            drive_no=drive.drive_no,
            work_id=drive.work_id,
            dagster_run_id=drive.dagster_run_id,
            reason=reason,
        )
    )
    connection.execute(update(job_run).where(job_run.c.run_id == run.run_id).values(drive_no=drive_no))
    return drive
