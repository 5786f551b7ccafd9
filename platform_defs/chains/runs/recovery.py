"""Goes on with runs whose process is gone: killed, terminated in the UI, or ended with the platform."""

import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from sqlalchemy import Connection, Engine, Row, and_, or_, select

from platform_defs.chains.dag import parse_snapshot
from platform_defs.chains.runs.drives import begin_drive, lock_run, open_drive
from platform_defs.chains.runs.operations import stop_locked, stop_text
from platform_defs.chains.runs.whole_run import end_run, node_statuses, stop_nodes
from platform_defs.chains.states import ENDED_RUNS, NodeStatus, RunStatus
from platform_defs.logs import SparseLog
from platform_defs.store.engine import read, transact
from platform_defs.store.tables.chains import job_run, job_run_drive, job_run_node
from platform_defs.store.tables.work import work
from platform_defs.work.each import for_each
from platform_defs.work.jobs import OPERATOR, RECOVERY
from platform_defs.work.rows import EndedBy, is_finished

# After this many processes in a row that could not even begin a node, the run is FAILED until somebody retries a node.
MOST_IN_VAIN = 5
LONGEST_PAUSE_S = 60
RUNS_PER_LOOK = 100
_log = logging.getLogger(__name__)
_failures = SparseLog(_log)


def continue_runs(engine: Engine) -> list[str]:
    """Continues, stops or gives up each run that has not ended and that nothing drives; returns their ids.

    A run that cannot be continued stops no other. The caller wakes the runner if there are any.
    """
    continued: list[str] = []

    def go_on(run_id: str) -> None:
        if transact(engine, partial(_go_on, run_id=run_id)):
            continued.append(run_id)

    for_each(read(engine, _find_abandoned), go_on, lambda run_id: f"run {run_id} cannot be continued", _failures)
    return continued


def _find_abandoned(connection: Connection) -> Sequence[str]:
    """Runs that are not over and whose newest drive has no open row of work."""
    newest = and_(job_run_drive.c.run_id == job_run.c.run_id, job_run_drive.c.drive_no == job_run.c.drive_no)
    query = (
        select(job_run.c.run_id)
        .outerjoin(job_run_drive, newest)
        .outerjoin(work, work.c.id == job_run_drive.c.work_id)
        .where(
            job_run.c.status.in_(sorted(set(RunStatus) - ENDED_RUNS)),
            or_(work.c.id.is_(None), is_finished(work.c.status)),
        )
        .order_by(job_run.c.created_at)
        .limit(RUNS_PER_LOOK)
    )
    return connection.execute(query).scalars().all()


def _go_on(connection: Connection, run_id: str) -> bool:
    """Begins another drive of the run, or ends it if it was stopped or given up; False if somebody else was faster."""
    run = lock_run(connection, run_id)
    if run is None or RunStatus(run.status).is_ended or open_drive(connection, run_id) is not None:
        return False
    last = _last_row(connection, run)
    now = datetime.now(UTC)
    if run.status == RunStatus.STOPPING:
        reason, dag = stop_text(run.stop_requested_by or OPERATOR), parse_snapshot(run.dag_json)
        stop_nodes(connection, run_id, dag, node_statuses(connection, run_id), reason=reason, at=now)
        end_run(connection, run_id, RunStatus.STOPPED, at=now)
        return True
    if last is not None and last.ended_by == EndedBy.OPERATOR:
        stop_locked(connection, run, actor=OPERATOR, reason="terminated in the Dagster UI")
        return True
    in_vain = _drives_in_vain(connection, run)
    if in_vain >= MOST_IN_VAIN:
        error = f"{in_vain} processes in a row ended before they began a node; the last: {last.error if last else '?'}"
        _log.error("run %s of %s is given up: %s", run_id, run.job_name, error)
        _give_up(connection, run, error, now)
        return True
    pause = timedelta(seconds=0 if in_vain < 2 else min(2**in_vain, LONGEST_PAUSE_S))
    drive = begin_drive(connection, run, RECOVERY, not_before=now + pause if pause else None)
    _log.warning(
        "run %s of %s goes on with drive %d: %s",
        run_id,
        run.job_name,
        drive.drive_no,
        (last.error if last else None) or "its process is gone",
    )
    return True


def _last_row(connection: Connection, run: Row[Any]) -> Row[Any] | None:
    newest = (job_run_drive.c.run_id == run.run_id) & (job_run_drive.c.drive_no == run.drive_no)
    query = select(work).join(job_run_drive, job_run_drive.c.work_id == work.c.id).where(newest)
    return connection.execute(query).one_or_none()


def _drives_in_vain(connection: Connection, run: Row[Any]) -> int:
    """How many of the newest drives, all of them begun here, have not changed any node."""
    last_change = select(job_run_node.c.updated_at).where(job_run_node.c.run_id == run.run_id)
    changed_at = max(connection.execute(last_change).scalars(), default=run.created_at)
    drives = (
        select(job_run_drive.c.reason, job_run_drive.c.created_at)
        .where(job_run_drive.c.run_id == run.run_id)
        .order_by(job_run_drive.c.drive_no.desc())
        .limit(MOST_IN_VAIN)
    )
    count = 0
    for drive in connection.execute(drives):
        if drive.reason != RECOVERY or drive.created_at <= changed_at:
            break
        count += 1
    return count


def _give_up(connection: Connection, run: Row[Any], error: str, now: datetime) -> None:
    """Ends the run as FAILED. The nodes that were next are FAILED too, so that they can be retried."""
    statuses, dag = node_statuses(connection, run.run_id), parse_snapshot(run.dag_json)
    stop_nodes(connection, run.run_id, dag, statuses, reason=error, at=now, becomes=NodeStatus.FAILED)
    end_run(connection, run.run_id, RunStatus.FAILED, at=now, error=error)
