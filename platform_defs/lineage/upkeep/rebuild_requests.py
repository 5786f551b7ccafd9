"""Tenants whose graph must be rebuilt: a durable mark, which a rebuild that began after it takes away.

rebuilt_at is also how a writer sees that a rebuild may have undone what it wrote: see `rewritten`.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, Engine, select

from platform_defs.store.engine import read, transact
from platform_defs.store.metadata import now
from platform_defs.store.tables.lineage import lineage_rebuild
from platform_defs.store.upsert import upsert

_marks = lineage_rebuild.c


@dataclass(frozen=True, slots=True)
class Mark:
    tenant_id: int
    requested: int


def request(connection: Connection, tenant_ids: Iterable[int]) -> None:
    rows = [{"tenant_id": tenant_id, "requested": 1, "requested_at": now()} for tenant_id in sorted(set(tenant_ids))]
    upsert(
        connection,
        lineage_rebuild,
        rows,
        key=("tenant_id",),
        update=lambda incoming: {"requested": _marks.requested + 1, "requested_at": incoming.requested_at},
    )


def pending(engine: Engine, *, attempts: int = 5) -> list[Mark]:
    """Requests that no rebuild has answered, the oldest first."""
    query = (
        select(_marks.tenant_id, _marks.requested)
        .where(_marks.requested > _marks.answered)
        .order_by(_marks.requested_at, _marks.tenant_id)
    )
    rows = read(engine, lambda connection: connection.execute(query).all(), attempts=attempts)
    return [Mark(row.tenant_id, row.requested) for row in rows]


def requested(engine: Engine, tenant_id: int) -> int:
    """The number of the latest request; 0 where none was ever made. To be read before a rebuild begins."""
    query = select(_marks.requested).where(_marks.tenant_id == tenant_id)
    return read(engine, lambda connection: connection.execute(query).scalar_one_or_none()) or 0


def rewritten(engine: Engine, tenant_id: int) -> None:
    """A rebuild has written the tenant's graph; to be recorded before it reads which events it has not seen.

    A writer whose raw row that read does not find wrote it later, and so sees that rebuilt_at has changed meanwhile.
    """
    row = {"tenant_id": tenant_id, "requested": 0, "requested_at": now(), "rebuilt_at": now()}
    transact(
        engine,
        lambda connection: upsert(connection, lineage_rebuild, [row], key=("tenant_id",), update=["rebuilt_at"]),
    )


def rewritten_at(connection: Connection, tenant_ids: Collection[int]) -> Mapping[int, datetime]:
    """When the graphs of these tenants were last rewritten; tenants of whom none was are left out."""
    query = select(_marks.tenant_id, _marks.rebuilt_at).where(
        _marks.tenant_id.in_(sorted(tenant_ids)), _marks.rebuilt_at.is_not(None)
    )
    return {row.tenant_id: row.rebuilt_at for row in connection.execute(query)}


def answer(engine: Engine, tenant_id: int, requested: int, *, first: datetime | None) -> None:
    """What was asked up to `requested` is done; a request that came during the rebuild stays open."""
    row = {
        "tenant_id": tenant_id,
        "requested": requested,
        "answered": requested,
        "requested_at": now(),
        "rebuilt_from": first,
    }
    changed = ["answered", "rebuilt_from"]
    transact(
        engine,
        lambda connection: upsert(connection, lineage_rebuild, [row], key=("tenant_id",), update=changed),
    )
