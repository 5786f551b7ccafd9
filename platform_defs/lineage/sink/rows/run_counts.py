"""How often each SQL ran (`executionCount`): every run is counted once, in the transaction that stores its event."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import Connection, Engine, and_, delete, exists, func, select

from platform_defs.lineage.new_events import WRONG_CLOCK
from platform_defs.lineage.sink.rows import raw_events
from platform_defs.store.chunks import chunks
from platform_defs.store.deletion import delete_old_rows
from platform_defs.store.engine import read, transact
from platform_defs.store.tables.lineage import lineage_events, lineage_sql, lineage_sql_run
from platform_defs.store.upsert import Upsert

PER_STATEMENT = 500
PAGE = 1000

_ADD_RUNS = Upsert(lineage_sql_run, ("tenant_id", "sql_id", "run_uuid"), "nothing")
_ADD_COUNTS = Upsert(lineage_sql, ("tenant_id", "sql_id"), "nothing")
_SET_COUNTS = Upsert(lineage_sql, ("tenant_id", "sql_id"), ["runs"])


class SqlRun(NamedTuple):
    """One execution of one SQL."""

    tenant_id: int
    sql_id: str
    run_id: str


# execution counts by tenant, then by the id of the SQL node
Counts = Mapping[int, Mapping[str, int]]


def count_runs(connection: Connection, runs: Iterable[SqlRun]) -> Counts:
    """Adds the runs that are new and returns the total count of every SQL among `runs`."""
    wanted = sorted(set(runs))
    if not wanted:
        return {}
    found = _lock_counts(connection, sorted({(run.tenant_id, run.sql_id) for run in wanted}))
    known = _find_counted(connection, wanted)
    new = [run for run in wanted if run not in known]
    if new:
        rows = [{"tenant_id": run.tenant_id, "sql_id": run.sql_id, "run_uuid": run.run_id} for run in new]
        _ADD_RUNS.run(connection, rows)
        added = Counter((run.tenant_id, run.sql_id) for run in new)
        found |= {key: found[key] + number for key, number in added.items()}
        changed = [{"tenant_id": key[0], "sql_id": key[1], "runs": found[key]} for key in sorted(added)]
        _SET_COUNTS.run(connection, changed)
    counts: dict[int, dict[str, int]] = {}
    for (tenant_id, sql_id), number in found.items():
        counts.setdefault(tenant_id, {})[sql_id] = number
    return counts


def read_counts(engine: Engine, tenant_id: int) -> Iterator[dict[str, int]]:
    """All counts of a tenant, one page at a time."""
    last = ""
    while True:
        query = (
            select(lineage_sql.c.sql_id, lineage_sql.c.runs)
            .where(lineage_sql.c.tenant_id == tenant_id, lineage_sql.c.sql_id > last)
            .order_by(lineage_sql.c.sql_id)
            .limit(PAGE)
        )
        rows = read(engine, lambda connection, query=query: connection.execute(query).all())  # type: ignore[misc]
        if not rows:
            return
        yield {row.sql_id: row.runs for row in rows}
        last = rows[-1].sql_id


def recount(engine: Engine, tenant_id: int, runs: Iterable[SqlRun], *, read_events: Set[int], since: datetime) -> None:
    """Counts a tenant's runs anew: those of stored events, and those that are counted while this happens.

    runs: those of the events with these ids, which the caller has read since then. Others may have been stored
    meanwhile, and only these are read here: nobody can store an event that runs an SQL until this has ended.
    """
    wanted = sorted(set(runs))
    kept = {run.sql_id for run in wanted}
    run_table = lineage_sql_run.c

    def write(connection: Connection) -> None:
        # Whoever counts a run locks its SQL first: what is locked here stays as it is until this transaction ends.
        known = _lock_all_counts(connection, tenant_id)
        _lock_counts(connection, [(tenant_id, sql_id) for sql_id in sorted(kept - known)])
        rows = [{"tenant_id": run.tenant_id, "sql_id": run.sql_id, "run_uuid": run.run_id} for run in wanted]
        _ADD_RUNS.run(connection, rows)
        gone = known - kept
        gone -= _find_new_sqls(connection, tenant_id, gone, read_events, since)
        for some in chunks(sorted(gone), PER_STATEMENT):
            for table in (lineage_sql_run, lineage_sql):
                connection.execute(delete(table).where(table.c.tenant_id == tenant_id, table.c.sql_id.in_(some)))
        # an SQL that came after those were locked is counted by whoever stores its events
        locked = known | kept
        query = (
            select(run_table.sql_id, func.count().label("runs"))
            .where(run_table.tenant_id == tenant_id)
            .group_by(run_table.sql_id)
        )
        counted = [
            {"tenant_id": tenant_id, "sql_id": row.sql_id, "runs": row.runs}
            for row in connection.execute(query)
            if row.sql_id in locked
        ]
        _SET_COUNTS.run(connection, counted)

    transact(engine, write)


def _find_new_sqls(
    connection: Connection, tenant_id: int, sqls: Collection[str], read_events: Set[int], since: datetime
) -> set[str]:
    """Those of the SQLs that other events ran, which have been stored since then."""
    table, runs = lineage_sql_run.c, set[str]()
    for some in chunks(sorted(sqls), PER_STATEMENT):
        lately = (table.sql_id.in_(some), table.created_at > since - WRONG_CLOCK)
        runs |= set(connection.scalars(select(table.run_uuid).where(table.tenant_id == tenant_id, *lately)))
    events = raw_events.read_of_runs(connection, tenant_id, runs, without=read_events)
    return {stored.sql_id for stored in events if stored.sql_id is not None and stored.sql_id in sqls}


def delete_older(engine: Engine, before: datetime) -> int:
    """Deletes runs whose events are too old to be sent again; the counts in `lineage_sql` keep them included.

    A run that still sends events, as a stream does for months, would count again with the next of them: it stays until
    retention has deleted its last one.
    """
    run, event = lineage_sql_run.c, lineage_events.c
    is_stored = exists().where(event.tenant_id == run.tenant_id, event.run_uuid == run.run_uuid)
    old = and_(run.created_at < before, ~is_stored)
    return delete_old_rows(engine, lineage_sql_run, old, order_by=run.created_at, keep_newest=False)


def _lock_counts(connection: Connection, sqls: Sequence[tuple[int, str]]) -> dict[tuple[int, str], int]:
    """Reads the counts under row locks, so that two processes add to the same count one after the other."""
    found = _lock_known_counts(connection, sqls)
    if new := [sql for sql in sqls if sql not in found]:
        rows = [{"tenant_id": tenant_id, "sql_id": sql_id, "runs": 0} for tenant_id, sql_id in new]
        _ADD_COUNTS.run(connection, rows)
        found |= _lock_known_counts(connection, new)
    return found


def _lock_all_counts(connection: Connection, tenant_id: int) -> set[str]:
    table = lineage_sql.c
    query = select(table.sql_id).where(table.tenant_id == tenant_id).order_by(table.sql_id).with_for_update()
    return set(connection.scalars(query))


def _lock_known_counts(connection: Connection, sqls: Sequence[tuple[int, str]]) -> dict[tuple[int, str], int]:
    table, found = lineage_sql.c, dict[tuple[int, str], int]()
    for tenant_id in sorted({tenant_id for tenant_id, _ in sqls}):
        ids = [sql_id for tenant, sql_id in sqls if tenant == tenant_id]
        for some in chunks(ids, PER_STATEMENT):
            query = (
                select(table.sql_id, table.runs)
                .where(table.tenant_id == tenant_id, table.sql_id.in_(some))
                .order_by(table.sql_id)
                .with_for_update()
            )
            found |= {(tenant_id, row.sql_id): row.runs for row in connection.execute(query)}
    return found


def _find_counted(connection: Connection, runs: Sequence[SqlRun]) -> set[SqlRun]:
    """The runs that are counted already."""
    table = lineage_sql_run.c
    found: set[SqlRun] = set()
    for tenant_id in sorted({run.tenant_id for run in runs}):
        mine = [run for run in runs if run.tenant_id == tenant_id]
        for some in chunks(mine, PER_STATEMENT):
            # Both conditions use the primary key. They also find pairs (sql, run) that are not in `runs`, which the
            # caller ignores.
            query = select(table.sql_id, table.run_uuid).where(
                table.tenant_id == tenant_id,
                table.sql_id.in_({run.sql_id for run in some}),
                table.run_uuid.in_({run.run_id for run in some}),
            )
            found |= {SqlRun(tenant_id, row.sql_id, row.run_uuid) for row in connection.execute(query)}
    return found
