"""Requests to rebuild a tenant's graph, in `lineage_rebuild`: one row per tenant, with numbered requests.

`requested` is the number of the newest request and `answered` the newest one that a rebuild has answered. A rebuild
answers the requests that were made before it began; a request that is made while it runs stays open.

A rebuild that nobody has requested requests itself before it writes (`RebuildUnderWay`): if its process dies in the
middle, the request is open and the recovery rebuilds the graph.

`rebuilt_at` tells a writer that a rebuild may have undone its changes: see `record_rewrite`. `symlink_changes` tells it
that names may mean other tables than it has found (sink/rows/symlinks.py).
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, Engine, case, select

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


class Overtaken(Exception):
    """A rebuild that began later has ended: the graph is newer than what this one would write."""


class RebuildUnderWay:
    """The request that a rebuild answers. Some request is open as long as the rebuild has written only a part.

    To be made before the events are read.
    """

    def __init__(self, engine: Engine, tenant_id: int) -> None:
        self._engine = engine
        self._tenant_id = tenant_id
        # 0 if there was no request
        self._latest, answered = read(engine, self._numbers)
        self._open = self._latest if self._latest > answered else None

    def before_write(self) -> None:
        """To be called before each transaction that changes the graph.

        Raises Overtaken if the process has slept so long, or was so slow, that another one has rebuilt the graph since.
        """
        if self._open is None:
            self._open = transact(self._engine, self._request)
        elif read(self._engine, self._numbers)[1] >= self._open:
            raise Overtaken

    def answer(self, first: datetime | None) -> None:
        """Closes the requests that were made before the rebuild began. `first`: the time of its oldest event."""
        # others that came before its own request came after its events were read: then its own stays open for them
        own = self._open == self._latest + 1
        answer_up_to(self._engine, self._tenant_id, self._latest + int(own), first=first)

    def _request(self, connection: Connection) -> int:
        request_rebuild(connection, [self._tenant_id])
        return self._numbers(connection)[0]

    def _numbers(self, connection: Connection) -> tuple[int, int]:
        query = select(_requests.requested, _requests.answered).where(_requests.tenant_id == self._tenant_id)
        row = connection.execute(query).one_or_none()
        return (0, 0) if row is None else (row.requested, row.answered)


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

    def changed(incoming: Any) -> dict[str, Any]:
        # a rebuild that began earlier and ends later opens nothing again
        newest = case((_requests.answered > number, _requests.answered), else_=number)
        return {"answered": newest, "rebuilt_from": incoming.rebuilt_from}

    transact(
        engine,
        lambda connection: upsert(connection, lineage_rebuild, [row], key=("tenant_id",), update=changed),
    )
