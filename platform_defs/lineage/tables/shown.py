"""The snapshot of tables and dependencies that Dagster shows: computed from the graph, loaded from the database."""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass

from sqlalchemy import Connection, Engine, delete, select

from platform_defs.graph.model import Node
from platform_defs.graph.port import Graph
from platform_defs.lineage.tables.seen import SeenTable, newest_tables
from platform_defs.store.chunks import chunks
from platform_defs.store.engine import read, transact
from platform_defs.store.primary_key import has_key_among
from platform_defs.store.tables.lineage import lineage_table_shown
from platform_defs.store.upsert import upsert
from platform_defs.work.definition_versions import LINEAGE_TABLES, bump

# Tables that were dropped are still among those that events named, so more are looked at than are shown.
_LOOKED_AT = 2
# A table with more dependencies than this could not be read in the UI anyway.
DEPENDENCIES_PER_TABLE = 50
KEYS_PER_STATEMENT = 500
_shown = lineage_table_shown.c


@dataclass(frozen=True, slots=True)
class ShownTable:
    """A table and the ids of the shown tables of the same tenant that its rows come from."""

    tenant_id: int
    table_id: str
    tenant_code: str
    namespace: str
    name: str
    upstream: tuple[str, ...]


def refresh(engine: Engine, graph: Graph, *, limit: int, without: Set[int]) -> bool:
    """Stores what the graph says now, if that differs; then the code server loads it. Returns whether it differs.

    While the graph does not answer this raises, and the snapshot stays as it is.
    """
    newest = read(engine, lambda connection: newest_tables(connection, _LOOKED_AT * limit, without))
    return _store(engine, tables_of_graph(graph, newest, limit))


def tables_of_graph(graph: Graph, newest: Sequence[SeenTable], limit: int) -> list[ShownTable]:
    """The first `limit` of these tables that exist; if fewer do, also tables that only dependencies name."""
    by_tenant: dict[int, list[str]] = defaultdict(list)
    for table in newest:
        by_tenant[table.tenant_id].append(table.table_id)
    existing = {(tenant, id) for tenant, ids in by_tenant.items() for id in _existing_tables(graph, tenant, ids)}
    chosen = [table for table in newest if (table.tenant_id, table.table_id) in existing][:limit]
    upstream: dict[tuple[int, str], list[str]] = defaultdict(list)
    codes = {table.tenant_id: table.tenant_code for table in chosen}
    shown = {(table.tenant_id, table.table_id): table for table in chosen}
    for tenant in codes:
        store = graph.for_tenant(tenant)
        ids = [table.table_id for table in chosen if table.tenant_id == tenant]
        for below, above in store.upstream_tables(ids, limit=DEPENDENCIES_PER_TABLE * len(ids)):
            upstream[tenant, below].append(above)
        unseen = {above for id in ids for above in upstream[tenant, id] if (tenant, above) not in shown}
        room = sorted(unseen)[: max(0, limit - len(shown))]
        for id, node in _existing_tables(graph, tenant, room).items():
            namespace, name = node.props.get("namespace"), node.props.get("qualifiedName")
            if isinstance(namespace, str) and isinstance(name, str):
                shown[tenant, id] = SeenTable(tenant, id, codes[tenant], namespace, name)
    return [
        ShownTable(
            table.tenant_id,
            table.table_id,
            table.tenant_code,
            table.namespace,
            table.name,
            tuple(sorted(above for above in upstream[key] if (key[0], above) in shown)),
        )
        for key, table in sorted(shown.items())
    ]


def load_shown(connection: Connection) -> list[ShownTable]:
    columns = (_shown.tenant_id, _shown.table_id, _shown.tenant_code, _shown.namespace, _shown.name, _shown.upstream)
    query = select(*columns).order_by(_shown.tenant_id, _shown.table_id)
    return [ShownTable(*row[:-1], tuple(json.loads(row.upstream))) for row in connection.execute(query)]


def _existing_tables(graph: Graph, tenant: int, ids: Sequence[str]) -> dict[str, Node]:
    if not ids:
        return {}
    return {id: node for id, node in graph.for_tenant(tenant).nodes(ids).items() if "Table" in node.labels}


def _store(engine: Engine, tables: Sequence[ShownTable]) -> bool:
    def work(connection: Connection) -> bool:
        stored = {(table.tenant_id, table.table_id): table for table in load_shown(connection)}
        wanted = {(table.tenant_id, table.table_id): table for table in tables}
        if stored == wanted:
            return False
        _delete(connection, stored.keys() - wanted.keys())
        changed = [table for key, table in wanted.items() if stored.get(key) != table]
        rows = [
            {name: getattr(table, name) for name in ("tenant_id", "table_id", "tenant_code", "namespace", "name")}
            | {"upstream": json.dumps(table.upstream)}
            for table in changed
        ]
        upsert(connection, lineage_table_shown, rows, key=("tenant_id", "table_id"))
        bump(connection, LINEAGE_TABLES)
        return True

    return transact(engine, work)


def _delete(connection: Connection, keys: Iterable[tuple[int, str]]) -> None:
    for some in chunks(sorted(keys), KEYS_PER_STATEMENT):
        connection.execute(delete(lineage_table_shown).where(has_key_among(lineage_table_shown, some)))
