"""Forgets events for good: the graph becomes what it would be without them, and their rows are deleted."""

from collections.abc import Callable

from sqlalchemy import Connection, Engine, delete, func, select, update

from platform_defs.access.tenants import Tenant
from platform_defs.graph.port import Graph
from platform_defs.lineage.sink.rows import raw_events
from platform_defs.lineage.sink.rows.raw_events import StoredEvent
from platform_defs.lineage.upkeep.tenant_rebuild import rebuild_tenant
from platform_defs.lineage.version import Version
from platform_defs.store.chunks import chunks
from platform_defs.store.engine import read, transact
from platform_defs.store.tables.lineage import (
    lineage_cursor,
    lineage_events,
    lineage_sql,
    lineage_sql_run,
    lineage_table_seen,
)

PER_STATEMENT = 500


def forget_events(engine: Engine, graph: Graph, tenant: Tenant, is_gone: Callable[[StoredEvent], bool]) -> int:
    """Returns how many events were forgotten. What other events say stays, also if retention has deleted those.

    The graph goes first: if the process dies in between, the rows are found again by the next call.
    """
    ids: list[int] = []
    versions: set[Version] = set()
    sqls: set[str] = set()
    kept_sqls: set[str] = set()
    for stored in raw_events.read_in_version_order(engine, tenant.id):
        gone = is_gone(stored)
        if gone:
            ids.append(stored.id)
            versions.add(stored.event_facts.version)
        if stored.sql_id:
            (sqls if gone else kept_sqls).add(stored.sql_id)
    if not ids:
        return 0
    # before the rebuild, which writes the counts into the graph
    transact(engine, lambda connection: _delete_counts(connection, tenant.id, sorted(sqls - kept_sqls)))
    rebuild_tenant(engine, graph, tenant, keep_unexplained=True, forgotten=versions)
    unseen = _vanished_tables(engine, graph, tenant.id)
    transact(engine, lambda connection: _delete_events(connection, tenant.id, ids, unseen))
    return len(ids)


def _vanished_tables(engine: Engine, graph: Graph, tenant_id: int) -> list[str]:
    """Tables that events named and that the graph does not have."""
    seen = lineage_table_seen.c
    query = select(seen.table_id).where(seen.tenant_id == tenant_id)
    named = read(engine, lambda connection: list(connection.scalars(query)))
    store = graph.for_tenant(tenant_id)
    return sorted(id for some in chunks(named, PER_STATEMENT) for id in set(some) - store.nodes(some).keys())


def _delete_counts(connection: Connection, tenant_id: int, sql_ids: list[str]) -> None:
    for some in chunks(sql_ids, PER_STATEMENT):
        for table in (lineage_sql_run, lineage_sql):
            connection.execute(delete(table).where(table.c.tenant_id == tenant_id, table.c.sql_id.in_(some)))


def _delete_events(connection: Connection, tenant_id: int, ids: list[int], tables: list[str]) -> None:
    event, seen, cursor = lineage_events.c, lineage_table_seen.c, lineage_cursor.c
    for some in chunks(ids, PER_STATEMENT):
        connection.execute(delete(lineage_events).where(event.tenant_id == tenant_id, event.id.in_(some)))
    for some_tables in chunks(tables, PER_STATEMENT):
        vanished = (seen.tenant_id == tenant_id, seen.table_id.in_(some_tables))
        connection.execute(delete(lineage_table_seen).where(*vanished))
    # SQLite gives the ids of deleted newest rows again: whoever noted one would not read the row that gets it.
    newest = connection.scalar(select(func.max(event.id))) or 0
    connection.execute(update(lineage_cursor).where(cursor.last_id > newest).values(last_id=newest))
