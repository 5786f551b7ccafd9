"""How often each SQL ran (`executionCount`): every run is counted once, in the transaction that stores its event."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import Connection, Engine, delete, func, select

from platform_defs.store.chunks import chunks
from platform_defs.store.deletion import delete_old_rows
from platform_defs.store.engine import read, transact
from platform_defs.store.tables.lineage import lineage_sql, lineage_sql_run
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


def recount(engine: Engine, tenant_id: int, runs: Iterable[SqlRun]) -> None:
    """Counts a tenant's runs anew: those of stored events, and those that are counted while this happens."""
    wanted = sorted(set(runs))
    kept = {run.sql_id for run in wanted}
    count, run_table = lineage_sql.c, lineage_sql_run.c

    def write(connection: Connection) -> None:
        rows = [{"tenant_id": run.tenant_id, "sql_id": run.sql_id, "run_uuid": run.run_id} for run in wanted]
        _ADD_RUNS.run(connection, rows)
        known = connection.scalars(select(count.sql_id).where(count.tenant_id == tenant_id)).all()
        for some in chunks(sorted(set(known) - kept), PER_STATEMENT):
            connection.execute(
                delete(lineage_sql_run).where(run_table.tenant_id == tenant_id, run_table.sql_id.in_(some))
            )
            connection.execute(delete(lineage_sql).where(count.tenant_id == tenant_id, count.sql_id.in_(some)))
        query = (
            select(run_table.sql_id, func.count().label("runs"))
            .where(run_table.tenant_id == tenant_id)
            .group_by(run_table.sql_id)
        )
        counted = [
            {"tenant_id": tenant_id, "sql_id": row.sql_id, "runs": row.runs} for row in connection.execute(query)
        ]
        _SET_COUNTS.run(connection, counted)

    transact(engine, write)


def delete_older(engine: Engine, before: datetime) -> int:
    """Deletes runs whose events are too old to be sent again; the counts in `lineage_sql` keep them included."""
    created_at = lineage_sql_run.c.created_at
    return delete_old_rows(engine, lineage_sql_run, created_at < before, order_by=created_at, keep_newest=False)


def _lock_counts(connection: Connection, sqls: Sequence[tuple[int, str]]) -> dict[tuple[int, str], int]:
    """Reads the counts under row locks, so that two processes add to the same count one after the other."""
    found = _lock_known_counts(connection, sqls)
    if new := [sql for sql in sqls if sql not in found]:
        rows = [{"tenant_id": tenant_id, "sql_id": sql_id, "runs": 0} for tenant_id, sql_id in new]
        _ADD_COUNTS.run(connection, rows)
        found |= _lock_known_counts(connection, new)
    return found


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
