"""What job chains forget every night: runs that ended long ago with all that belongs to them, audit, request keys."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, Connection, Engine, delete, select

from platform_defs.chains.states import ENDED_RUNS
from platform_defs.store.deletion import delete_old_rows
from platform_defs.store.engine import read, transact
from platform_defs.store.tables.chains import (
    job_audit,
    job_request_key,
    job_run,
    job_run_checkpoint,
    job_run_drive,
    job_run_node,
)

# A run has up to 2,000 nodes, which go in one transaction with it.
RUNS_PER_TRANSACTION = 10
# A client that has had no answer for this many days does not send its request again.
KEY_DAYS = 7


@dataclass(frozen=True, slots=True)
class ForgottenCounts:
    """How many rows were deleted."""

    runs: int = 0
    audit: int = 0
    request_keys: int = 0


def forget_old_rows(engine: Engine, *, days: int, at: datetime) -> ForgottenCounts:
    """Deletes what ended more than `days` ago; with 0 days only request keys. It may be stopped and called again."""
    old_key = job_request_key.c.created_at < at - timedelta(days=KEY_DAYS)
    keys = delete_old_rows(engine, job_request_key, old_key, order_by=job_request_key.c.created_at, keep_newest=False)
    if days == 0:
        return ForgottenCounts(request_keys=keys)
    before = at - timedelta(days=days)
    return ForgottenCounts(
        runs=_forget_runs(engine, before),
        audit=delete_old_rows(engine, job_audit, job_audit.c.created_at < before, order_by=job_audit.c.created_at),
        request_keys=keys,
    )


def _forget_runs(engine: Engine, before: datetime) -> int:
    total = 0
    while True:
        query = select(job_run.c.run_id).where(_is_old(before)).order_by(job_run.c.created_at)
        some = query.limit(RUNS_PER_TRANSACTION)
        run_ids = read(engine, lambda connection, some=some: list(connection.execute(some).scalars()))  # type: ignore[misc]
        if not run_ids:
            return total
        deleted = transact(engine, lambda connection, run_ids=run_ids: _delete(connection, run_ids, before))  # type: ignore[misc]
        if not deleted:
            return total  # somebody works on all of them; the next night meets them again
        total += deleted


def _delete(connection: Connection, run_ids: list[str], before: datetime) -> int:
    """Deletes those of the runs that are still old: a retry may have brought one back."""
    still_old = select(job_run.c.run_id).where(job_run.c.run_id.in_(run_ids), _is_old(before))
    locked = list(connection.execute(still_old.with_for_update(skip_locked=True)).scalars())
    if locked:
        for table in (job_run_node, job_run_checkpoint, job_run_drive, job_run):
            connection.execute(delete(table).where(table.c.run_id.in_(locked)))
    return len(locked)


def _is_old(before: datetime) -> ColumnElement[bool]:
    """Created before the time too, so that the index over status and created_at finds the runs."""
    return job_run.c.status.in_(sorted(ENDED_RUNS)) & (job_run.c.created_at < before) & (job_run.c.ended_at < before)
