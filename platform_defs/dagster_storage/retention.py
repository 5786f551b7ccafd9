"""Deletes what Dagster would keep for ever: finished runs with their events, events that no run wrote, unused records.

The newest materialisation of every partition stays, whatever its age. Without it Dagster would show the partition as
missing, and a backfill of missing partitions would compute it again.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from dagster import DagsterEventType, DagsterInstance, DagsterRunStatus
from dagster._core.instance import RUNLESS_RUN_ID
from dagster._core.storage.event_log.schema import (
    AssetCheckExecutionsTable,
    AssetEventTagsTable,
    SqlEventLogStorageTable,
)
from dagster._core.storage.event_log.sql_event_log import SqlEventLogStorage
from dagster._core.storage.runs.schema import RunsTable, RunTagsTable
from dagster._core.storage.runs.sql_run_storage import SqlRunStorage
from sqlalchemy import ColumnElement, Connection, and_, delete, or_, select

from platform_defs.dagster_storage.unused_records import delete_backfills, delete_snapshots, unused_snapshots

# Few enough that other processes do not wait long for the locks of one transaction.
RUNS_AT_ONCE = 100
EVENTS_AT_ONCE = 2000
_FINISHED = [status.value for status in (DagsterRunStatus.SUCCESS, DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED)]
# Of these the newest one of each asset and partition stays.
_LASTING = [DagsterEventType.ASSET_MATERIALIZATION.value, DagsterEventType.ASSET_OBSERVATION.value]


@dataclass(frozen=True)
class Pruned:
    runs: int = 0
    events: int = 0
    checks: int = 0
    snapshots: int = 0
    backfills: int = 0


def prune(instance: DagsterInstance, *, days: int, at: datetime) -> Pruned:
    """Deletes what ended more than `days` ago; with 0 days nothing. It may be stopped at any point and called again."""
    events, runs = instance.event_log_storage, instance.run_storage
    if days == 0 or not isinstance(events, SqlEventLogStorage) or not isinstance(runs, SqlRunStorage):
        return Pruned()
    # Dagster stores times without a zone, in UTC.
    before = (at - timedelta(days=days)).replace(tzinfo=None)
    unused = unused_snapshots(runs)
    pruned_runs = pruned_events = 0
    while run_ids := _old_runs(runs, before):
        # The run goes last: a run without events is found again the next night, events without a run are not.
        pruned_events += _delete_events_of(events, run_ids)
        for run_id in run_ids:
            instance.compute_log_manager.delete_logs(prefix=[run_id])
        _delete_runs(runs, run_ids)
        pruned_runs += len(run_ids)
    last = 0
    while (found := _old_runless_events(events, before, last)) is not None:
        last, ids = found
        pruned_events += _delete_events(events, ids)
    checks = _delete_checks(events, before)
    backfills = delete_backfills(runs, before)
    return Pruned(pruned_runs, pruned_events, checks, delete_snapshots(runs, unused), backfills)


def _old_runs(runs: SqlRunStorage, before: datetime) -> list[str]:
    run = RunsTable.c
    query = (
        select(run.run_id)
        .where(run.status.in_(_FINISHED), run.update_timestamp < before)
        .order_by(run.id)
        .limit(RUNS_AT_ONCE)
    )
    with runs.connect() as connection:
        return list(connection.scalars(query))


def _delete_runs(runs: SqlRunStorage, run_ids: list[str]) -> None:
    with runs.connect() as connection:
        # Tags by name: SQLite deletes them with their run only if it is told to keep foreign keys.
        connection.execute(delete(RunTagsTable).where(RunTagsTable.c.run_id.in_(run_ids)))
        connection.execute(delete(RunsTable).where(RunsTable.c.run_id.in_(run_ids)))


def _delete_events_of(events: SqlEventLogStorage, run_ids: list[str]) -> int:
    event = SqlEventLogStorageTable.c
    with events.index_connection() as connection:
        lasting = set(connection.scalars(select(event.id).where(event.run_id.in_(run_ids), _is_newest())))
        every = connection.scalars(select(event.id).where(event.run_id.in_(run_ids))).all()
    return _delete_events(events, [id_ for id_ in every if id_ not in lasting])


def _old_runless_events(events: SqlEventLogStorage, before: datetime, after: int) -> tuple[int, list[int]] | None:
    """The last id of a page of old events that no run wrote, and those of them to delete; None after the last page."""
    event = SqlEventLogStorageTable.c
    page = (
        select(event.id)
        .where(event.run_id == RUNLESS_RUN_ID, event.id > after, event.timestamp < before)
        .order_by(event.id)
        .limit(EVENTS_AT_ONCE)
    )
    with events.index_connection() as connection:
        ids = list(connection.scalars(page))
        if not ids:
            return None
        lasting = set(connection.scalars(select(event.id).where(event.id.in_(ids), _is_newest())))
    return ids[-1], [id_ for id_ in ids if id_ not in lasting]


def _is_newest() -> ColumnElement[bool]:
    """No later event of the same type is about the same asset and partition."""
    event, later = SqlEventLogStorageTable.c, SqlEventLogStorageTable.alias("later")
    same_partition = or_(
        later.c.partition == event.partition, and_(later.c.partition.is_(None), event.partition.is_(None))
    )
    newer = (
        select(later.c.id)
        .where(later.c.asset_key == event.asset_key, later.c.dagster_event_type == event.dagster_event_type)
        .where(same_partition, later.c.id > event.id)
        .exists()
    )
    return and_(event.dagster_event_type.in_(_LASTING), ~newer)


def _delete_events(events: SqlEventLogStorage, ids: list[int]) -> int:
    for start in range(0, len(ids), EVENTS_AT_ONCE):
        some = ids[start : start + EVENTS_AT_ONCE]
        with events.index_connection() as connection:
            connection.execute(delete(AssetEventTagsTable).where(AssetEventTagsTable.c.event_id.in_(some)))
            connection.execute(delete(SqlEventLogStorageTable).where(SqlEventLogStorageTable.c.id.in_(some)))
    return len(ids)


def _delete_checks(events: SqlEventLogStorage, before: datetime) -> int:
    """Old evaluations of checks but the last one of each."""
    check, later = AssetCheckExecutionsTable.c, AssetCheckExecutionsTable.alias("later")
    newer = (
        select(later.c.id)
        .where(later.c.asset_key == check.asset_key, later.c.check_name == check.check_name, later.c.id > check.id)
        .exists()
    )
    old = select(check.id).where(check.create_timestamp < before, newer).limit(EVENTS_AT_ONCE)
    count = 0
    while ids := _ids(events, old):
        with events.index_connection() as connection:
            connection.execute(delete(AssetCheckExecutionsTable).where(check.id.in_(ids)))
        count += len(ids)
    return count


def _ids(events: SqlEventLogStorage, query: object) -> list[int]:
    connection: Connection
    with events.index_connection() as connection:
        found: Iterable[int] = connection.scalars(query)  # type: ignore[call-overload]
        return list(found)
