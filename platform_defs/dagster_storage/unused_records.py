"""Deletes snapshots of jobs and plans that no run refers to any more, and old backfills of which no run is left.

A run that is being created has its snapshots stored, or finds them stored, a moment before it is stored itself. So a
snapshot is deleted only if two looks, with other work between them, find no run of it; and one that a run refers to
after all is put back.
"""

import re
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

from dagster._core.execution.backfill import BulkActionStatus
from dagster._core.storage.runs.schema import BackfillTagsTable, BulkActionsTable, RunsTable, SnapshotsTable
from dagster._core.storage.runs.sql_run_storage import SqlRunStorage
from sqlalchemy import delete, insert, select

AT_ONCE = 100
# Far longer than the moment between a look for a snapshot and the creation of its run.
LAST_LOOK_AFTER_S = 1.0
_REFERENCE = re.compile(r'"\w*snapshot_id": ?"([0-9a-f]{8,})"')
_FINISHED = [
    status.value
    for status in (
        BulkActionStatus.COMPLETED,
        BulkActionStatus.COMPLETED_SUCCESS,
        BulkActionStatus.COMPLETED_FAILED,
        BulkActionStatus.FAILED,
        BulkActionStatus.CANCELED,
    )
]


def unused_snapshots(runs: SqlRunStorage) -> set[str]:
    """Snapshots that neither a run refers to nor a snapshot of a run, such as that of the job of which it is a part."""
    with runs.connect() as connection:
        stored = set(connection.scalars(select(SnapshotsTable.c.snapshot_id)))
    unused = stored - _references(_run_bodies(runs))
    return unused - _references(_snapshot_bodies(runs, sorted(stored - unused)))


def delete_snapshots(runs: SqlRunStorage, candidates: set[str]) -> int:
    """Deletes those of the candidates that are still unused; returns how many."""
    snapshot = SnapshotsTable.c
    deleted: list[dict[str, Any]] = []
    for some in _pages(sorted(candidates & unused_snapshots(runs)), AT_ONCE):
        with runs.connect() as connection:
            columns = (snapshot.snapshot_id, snapshot.snapshot_body, snapshot.snapshot_type)
            deleted += [dict(row._mapping) for row in connection.execute(select(*columns).where(_among(some)))]
            connection.execute(delete(SnapshotsTable).where(_among(some)))
    if not deleted:
        return 0
    time.sleep(LAST_LOOK_AFTER_S)
    referred = _references(_run_bodies(runs))
    back = [row for row in deleted if row["snapshot_id"] in referred]
    if back:
        with runs.connect() as connection:
            there = set(connection.scalars(select(snapshot.snapshot_id)))
            for row in back:
                if row["snapshot_id"] not in there:
                    connection.execute(insert(SnapshotsTable).values(row))
    return len(deleted) - len(back)


def delete_backfills(runs: SqlRunStorage, before: datetime) -> int:
    """Deletes finished backfills that were asked for before then and of which no run is left; returns how many."""
    backfill = BulkActionsTable.c
    has_run = select(RunsTable.c.id).where(RunsTable.c.backfill_id == backfill.key).exists()
    old = select(backfill.key).where(backfill.status.in_(_FINISHED), backfill.timestamp < before, ~has_run)
    count = 0
    while True:
        with runs.connect() as connection:
            keys = list(connection.scalars(old.limit(AT_ONCE)))
            if not keys:
                return count
            connection.execute(delete(BackfillTagsTable).where(BackfillTagsTable.c.backfill_id.in_(keys)))
            connection.execute(delete(BulkActionsTable).where(backfill.key.in_(keys)))
        count += len(keys)


def _among(ids: Sequence[str]) -> Any:
    return SnapshotsTable.c.snapshot_id.in_(ids)


def _references(bodies: Iterable[str]) -> set[str]:
    return {found for body in bodies for found in _REFERENCE.findall(body)}


def _run_bodies(runs: SqlRunStorage) -> Iterator[str]:
    last = 0
    query = select(RunsTable.c.id, RunsTable.c.run_body).order_by(RunsTable.c.id).limit(1000)
    while True:
        with runs.connect() as connection:
            page = connection.execute(query.where(RunsTable.c.id > last)).all()
        if not page:
            return
        last = page[-1].id
        yield from (row.run_body for row in page)


def _snapshot_bodies(runs: SqlRunStorage, ids: Sequence[str]) -> Iterator[str]:
    for some in _pages(ids, AT_ONCE):
        with runs.connect() as connection:
            bodies = connection.scalars(select(SnapshotsTable.c.snapshot_body).where(_among(some))).all()
        yield from (zlib.decompress(body).decode() for body in bodies)


def _pages(ids: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (ids[start : start + size] for start in range(0, len(ids), size))
