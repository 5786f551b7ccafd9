"""Requests to rebuild a tenant's graph, in `lineage_rebuild`: one row per tenant, with numbered requests.

`requested` is the number of the newest request and `answered` the newest one that a rebuild has answered. A rebuild
answers the requests that were made before it began; a request that is made while it runs stays open.

`rebuilt_at` tells a writer that a rebuild may have undone its changes: see `record_rewrite`. `symlink_changes` tells it
that names may mean other tables than it has found (sink/symlinks.py).
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import Connection, Engine, select

from platform_defs.store.engine import read, transact
from platform_defs.store.metadata import now
from platform_defs.store.tables.lineage import lineage_rebuild
from platform_defs.store.upsert import upsert

_requests = lineage_rebuild.c


@dataclass(frozen=True, slots=True)
class RebuildRequest:
    tenant_id: int
    number: int


def request_rebuild(connection: Connection, tenant_ids: Iterable[int]) -> None:
    """Writes a request for each of the tenants, in the caller's transaction."""
    rows = [{"tenant_id": tenant_id, "requested": 1, "requested_at": now()} for tenant_id in sorted(set(tenant_ids))]
    upsert(
        connection,
        lineage_rebuild,
        rows,
        key=("tenant_id",),
        update=lambda incoming: {"requested": _requests.requested + 1, "requested_at": incoming.requested_at},
    )


def list_open(engine: Engine, *, attempts: int = 5) -> list[RebuildRequest]:
    """The newest request of each tenant that has an unanswered one, the oldest first."""
    query = (
        select(_requests.tenant_id, _requests.requested)
        .where(_requests.requested > _requests.answered)
        .order_by(_requests.requested_at, _requests.tenant_id)
    )
    rows = read(engine, lambda connection: connection.execute(query).all(), attempts=attempts)
    return [RebuildRequest(row.tenant_id, row.requested) for row in rows]


def latest_number(engine: Engine, tenant_id: int) -> int:
    """The number of the tenant's newest request, 0 if there was none. A rebuild reads it before it begins."""
    query = select(_requests.requested).where(_requests.tenant_id == tenant_id)
    return read(engine, lambda connection: connection.execute(query).scalar_one_or_none()) or 0


def record_rewrite(engine: Engine, tenant_id: int) -> None:
    """Records that a rebuild has written the tenant's graph. The rebuild calls this before it reads the events again.

    If that second reading does not find the row of some event, the row was committed after `rebuilt_at` had changed.
    So the event's writer sees the change, and leaves the event to the recovery.
    """
    row = {"tenant_id": tenant_id, "requested": 0, "requested_at": now(), "rebuilt_at": now()}
    transact(
        engine,
        lambda connection: upsert(connection, lineage_rebuild, [row], key=("tenant_id",), update=["rebuilt_at"]),
    )


class TenantMarks(NamedTuple):
    """When a rebuild last wrote the tenant's graph, and how often symlinks of its names have changed."""

    rebuilt_at: datetime | None = None
    symlink_changes: int = 0


def read_marks(connection: Connection, tenant_ids: Collection[int]) -> Mapping[int, TenantMarks]:
    query = select(_requests.tenant_id, _requests.rebuilt_at, _requests.symlink_changes).where(
        _requests.tenant_id.in_(sorted(tenant_ids))
    )
    found = {row.tenant_id: TenantMarks(row.rebuilt_at, row.symlink_changes) for row in connection.execute(query)}
    return {tenant_id: found.get(tenant_id, TenantMarks()) for tenant_id in tenant_ids}


def count_symlink_change(connection: Connection, tenant_id: int) -> None:
    """Tells all writers that names of this tenant may mean other tables from now on."""
    row = {"tenant_id": tenant_id, "requested": 0, "requested_at": now(), "symlink_changes": 1}
    upsert(
        connection,
        lineage_rebuild,
        [row],
        key=("tenant_id",),
        update=lambda incoming: {"symlink_changes": _requests.symlink_changes + 1},
    )


def answer_up_to(engine: Engine, tenant_id: int, number: int, *, first: datetime | None) -> None:
    """Closes the tenant's requests up to this number. `first` is the time of the oldest event that was rebuilt."""
    row = {
        "tenant_id": tenant_id,
        "requested": number,
        "answered": number,
        "requested_at": now(),
        "rebuilt_from": first,
    }
    changed = ["answered", "rebuilt_from"]
    transact(
        engine,
        lambda connection: upsert(connection, lineage_rebuild, [row], key=("tenant_id",), update=changed),
    )
