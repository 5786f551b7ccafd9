"""Tenants whose graph must be rebuilt: a durable mark, which a rebuild that began after it takes away."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, Engine, select

from platform_defs.store.engine import read, transact
from platform_defs.store.lineage import lineage_rebuild
from platform_defs.store.metadata import now
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


def answer(engine: Engine, tenant_id: int, requested: int, *, first: datetime | None) -> None:
    """What was asked up to `requested` is done; a request that came during the rebuild stays open."""
    row = {
        "tenant_id": tenant_id,
        "requested": requested,
        "answered": requested,
        "requested_at": now(),
        "rebuilt_at": now(),
        "rebuilt_from": first,
    }
    changed = ["answered", "rebuilt_at", "rebuilt_from"]
    transact(
        engine,
        lambda connection: upsert(connection, lineage_rebuild, [row], key=("tenant_id",), update=changed),
    )
