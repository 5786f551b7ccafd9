"""Remembers which tables events name, and the newest event of each: the newest of them are shown in Dagster."""

from collections.abc import Set
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Engine, delete, func, select, update

from platform_defs.lineage.new_events import newest_id, read_new_events
from platform_defs.lineage.sink.rows.linked_tables import ReadRow, read_tables
from platform_defs.lineage.tables.in_events import tables_in
from platform_defs.lineage.tables.keys import table_of
from platform_defs.store.engine import read, transact
from platform_defs.store.metadata import now
from platform_defs.store.tables.lineage import lineage_cursor, lineage_table_seen
from platform_defs.store.upsert import upsert

CURSOR = "tables"
_seen = lineage_table_seen.c


@dataclass(frozen=True, slots=True)
class SeenTable:
    """A table that events have named; the graph may have dropped it since."""

    tenant_id: int
    table_id: str
    tenant_code: str
    namespace: str
    name: str


def note_new_tables(engine: Engine, *, at: datetime | None = None) -> int:
    """Reads events since the last call, a bounded number of them; returns how many."""
    position = select(lineage_cursor.c.last_id).where(lineage_cursor.c.name == CURSOR)
    last: int = read(engine, lambda connection: connection.execute(position).scalar()) or 0
    if (newest := newest_id(engine)) < last:
        last = 0
        transact(engine, lambda connection: _come_back(connection, newest))
    found: dict[tuple[int, str], dict[str, Any]] = {}
    count = 0
    for one in read_tables(engine, read_new_events(engine, last, at or now())):
        last, count = one.row.id, count + 1
        found |= {(table["tenant_id"], table["table_id"]): table for table in _tables_of(one)}
    if not count:
        return 0

    def work(connection: Connection) -> None:
        # sorted: two transactions that write the same rows in the same order do not deadlock
        rows = [found[key] for key in sorted(found)]
        upsert(connection, lineage_table_seen, rows, key=("tenant_id", "table_id"))
        upsert(connection, lineage_cursor, [{"name": CURSOR, "last_id": last}], key=("name",))

    transact(engine, work)
    return count


def _come_back(connection: Connection, newest: int) -> None:
    """Retention has deleted the newest events: the ids that are noted would hide the tables of events that get them."""
    beyond = _seen.last_event_id > newest
    connection.execute(update(lineage_table_seen).where(beyond).values(last_event_id=newest))
    cursor = lineage_cursor.c.name == CURSOR
    connection.execute(update(lineage_cursor).where(cursor).values(last_id=0))


def newest_event(connection: Connection) -> int:
    """The newest event that named a table; 0 if none did."""
    return connection.execute(select(func.max(_seen.last_event_id))).scalar() or 0


def newest_tables(connection: Connection, limit: int, without: Set[int]) -> list[SeenTable]:
    """The tables with the newest events, newest first, without those of these tenants."""
    query = select(_seen.tenant_id, _seen.table_id, _seen.tenant_code, _seen.namespace, _seen.name)
    if without:
        query = query.where(_seen.tenant_id.not_in(without))
    query = query.order_by(_seen.last_event_id.desc(), _seen.tenant_id, _seen.table_id).limit(limit)
    return [SeenTable(*row) for row in connection.execute(query)]


def forget_older(engine: Engine, keep: int) -> None:
    """Forgets all tables but about this many with the newest events."""
    oldest = select(_seen.last_event_id).order_by(_seen.last_event_id.desc()).limit(1).offset(keep)
    beyond = read(engine, lambda connection: connection.execute(oldest).scalar())
    if beyond is not None:
        transact(
            engine,
            lambda connection: connection.execute(delete(lineage_table_seen).where(_seen.last_event_id < beyond)),
        )


def _tables_of(one: ReadRow) -> list[dict[str, Any]]:
    row, rows = one.row, list[dict[str, Any]]()
    if one.said is None:
        return rows  # the observations log it
    for found in tables_in(one.said.event, row.source_type, one.said.tables):
        table = table_of(row.tenant_id, found.ref)
        rows.append(
            {
                "tenant_id": row.tenant_id,
                "table_id": found.ref.id,
                "tenant_code": row.tenant_code,
                "namespace": table.namespace,
                "name": table.name,
                "last_event_id": row.id,
            }
        )
    return rows
