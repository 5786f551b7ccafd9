"""How often an SQL ran: runs are counted once each, in the transaction that stores their raw rows."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import Connection, Engine, select

from platform_defs.store.chunks import chunks
from platform_defs.store.deletion import delete_old_rows
from platform_defs.store.engine import read
from platform_defs.store.tables.lineage import lineage_sql, lineage_sql_run
from platform_defs.store.upsert import upsert

PER_STATEMENT = 500
PAGE = 1000


class Run(NamedTuple):
    """An execution of an SQL."""

    tenant_id: int
    sql_id: str
    run_id: str


# by tenant, then by the id of the SQL node
Counts = Mapping[int, Mapping[str, int]]


def count_runs(connection: Connection, runs: Iterable[Run]) -> Counts:
    """Adds the runs that are new and returns the absolute count of every SQL that was named."""
    wanted = sorted(set(runs))
    if not wanted:
        return {}
    found = _locked(connection, sorted({(run.tenant_id, run.sql_id) for run in wanted}))
    known = _known(connection, wanted)
    new = [run for run in wanted if run not in known]
    if new:
        rows = [{"tenant_id": run.tenant_id, "sql_id": run.sql_id, "run_uuid": run.run_id} for run in new]
        upsert(connection, lineage_sql_run, rows, key=("tenant_id", "sql_id", "run_uuid"), update="nothing")
        added = Counter((run.tenant_id, run.sql_id) for run in new)
        found |= {key: found[key] + number for key, number in added.items()}
        changed = [{"tenant_id": key[0], "sql_id": key[1], "runs": found[key]} for key in sorted(added)]
        upsert(connection, lineage_sql, changed, key=("tenant_id", "sql_id"), update=["runs"])
    counts: dict[int, dict[str, int]] = {}
    for (tenant_id, sql_id), number in found.items():
        counts.setdefault(tenant_id, {})[sql_id] = number
    return counts


def all_counts(engine: Engine, tenant_id: int) -> Iterator[dict[str, int]]:
    """Every count of a tenant, page by page."""
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


def forget_older(engine: Engine, before: datetime) -> int:
    """Forgets runs that can no longer be delivered again; what they counted stays counted."""
    created_at = lineage_sql_run.c.created_at
    return delete_old_rows(engine, lineage_sql_run, created_at < before, order_by=created_at, keep_newest=False)


def _locked(connection: Connection, sqls: Sequence[tuple[int, str]]) -> dict[tuple[int, str], int]:
    """The counts under a lock each, so that two processes add to them one after the other."""
    rows = [{"tenant_id": tenant_id, "sql_id": sql_id, "runs": 0} for tenant_id, sql_id in sqls]
    upsert(connection, lineage_sql, rows, key=("tenant_id", "sql_id"), update="nothing")
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


def _known(connection: Connection, runs: Sequence[Run]) -> set[Run]:
    table = lineage_sql_run.c
    found: set[Run] = set()
    for tenant_id in sorted({run.tenant_id for run in runs}):
        mine = [run for run in runs if run.tenant_id == tenant_id]
        for some in chunks(mine, PER_STATEMENT):
            # both conditions follow the key; pairs that were not asked for are dropped here
            query = select(table.sql_id, table.run_uuid).where(
                table.tenant_id == tenant_id,
                table.sql_id.in_({run.sql_id for run in some}),
                table.run_uuid.in_({run.run_id for run in some}),
            )
            found |= {Run(tenant_id, row.sql_id, row.run_uuid) for row in connection.execute(query)}
    return found
