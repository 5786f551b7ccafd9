"""The raw events: one row per event, stored once whatever the client repeats, with a mark that the graph has it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Engine, Row, Select, delete, func, select, update

from platform_defs.access.principal import SourceType
from platform_defs.access.tenants import Tenant
from platform_defs.lineage.errors import InvalidEvent
from platform_defs.lineage.events import Event, parse_event
from platform_defs.lineage.extract.facts_of import facts_of
from platform_defs.lineage.sink.apply import Stamped
from platform_defs.lineage.version import version_of
from platform_defs.store.chunks import chunks
from platform_defs.store.deletion import delete_old_rows
from platform_defs.store.engine import read
from platform_defs.store.metadata import now
from platform_defs.store.tables.lineage import lineage_events
from platform_defs.store.upsert import upsert

PAGE = 500
KEYS_PER_STATEMENT = 500

_events = lineage_events.c
_NEEDED = (
    _events.id,
    _events.tenant_id,
    _events.tenant_code,
    _events.tenant_name,
    _events.event_time,
    _events.event,
    _events.fingerprint,
    _events.source_type,
    _events.created_at,
    _events.graph_applied_at,
)


@dataclass(frozen=True, slots=True)
class Key:
    """What makes an event one event."""

    tenant_id: int
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Stored:
    """A row as it is read back, with what the graph needs of it."""

    id: int
    tenant: Tenant
    fingerprint: str
    event: Event
    source_type: SourceType
    stamped: Stamped
    sql_id: str | None
    created_at: datetime
    applied: bool


def row_of(tenant: Tenant, event: Event, fingerprint: str, source_type: SourceType) -> dict[str, Any]:
    return {
        "tenant_id": tenant.id,
        "tenant_code": tenant.code,
        "tenant_name": tenant.name,
        "event_time": event.event_time,
        "event_type": event.event_type,
        "run_uuid": event.run_id,
        "job_name": event.job_name,
        "job_namespace": event.job_namespace,
        "producer": event.producer,
        "_event_type": str(event.kind),
        "event": event.raw,
        "fingerprint": fingerprint,
        "source_type": str(source_type),
    }


def known(connection: Connection, keys: Sequence[Key]) -> dict[Key, bool]:
    """Those of the keys that are stored, and whether the graph has them."""
    found: dict[Key, bool] = {}
    for tenant_id, fingerprints in _by_tenant(keys):
        for some in chunks(fingerprints, KEYS_PER_STATEMENT):
            query = select(_events.fingerprint, _events.graph_applied_at).where(
                _events.tenant_id == tenant_id, _events.fingerprint.in_(some)
            )
            found |= {
                Key(tenant_id, row.fingerprint): row.graph_applied_at is not None for row in connection.execute(query)
            }
    return found


def insert(connection: Connection, rows: Sequence[dict[str, Any]], *, applied_at: datetime | None = None) -> None:
    """New rows; one that another process stored in the meantime stays as it is."""
    marked = [row | {"graph_applied_at": applied_at} for row in rows]
    upsert(connection, lineage_events, marked, key=("tenant_id", "fingerprint"), update="nothing")


def mark_applied(connection: Connection, keys: Sequence[Key], at: datetime | None = None) -> None:
    for tenant_id, fingerprints in _by_tenant(keys):
        for some in chunks(fingerprints, KEYS_PER_STATEMENT):
            connection.execute(
                update(lineage_events)
                .where(
                    _events.tenant_id == tenant_id,
                    _events.fingerprint.in_(some),
                    _events.graph_applied_at.is_(None),
                )
                .values(graph_applied_at=at or now())
            )


def remove_unapplied(connection: Connection, keys: Sequence[Key]) -> None:
    """Takes back rows whose graph write was refused for what they are: a refused event is stored nowhere."""
    for tenant_id, fingerprints in _by_tenant(keys):
        for some in chunks(fingerprints, KEYS_PER_STATEMENT):
            connection.execute(
                delete(lineage_events).where(
                    _events.tenant_id == tenant_id, _events.fingerprint.in_(some), _events.graph_applied_at.is_(None)
                )
            )


def unapplied(engine: Engine, *, before: datetime, after_id: int = 0, limit: int = PAGE) -> list[Stored]:
    """Rows that the graph lacks and that no request is working on any more, oldest first."""
    query: Select[Any] = (
        select(*_NEEDED)
        .where(_events.graph_applied_at.is_(None), _events.created_at < before, _events.id > after_id)
        .order_by(_events.id)
        .limit(limit)
    )
    return [stored(row) for row in read(engine, lambda connection: connection.execute(query).all())]


def lacking(engine: Engine, *, before: datetime, attempts: int = 5) -> int:
    query = (
        select(func.count())
        .select_from(lineage_events)
        .where(_events.graph_applied_at.is_(None), _events.created_at < before)
    )
    return int(read(engine, lambda connection: connection.execute(query).scalar_one(), attempts=attempts))


def count(engine: Engine, tenant_id: int, *, at_most: int) -> int:
    """How many events a tenant has, counted no further than asked."""
    some = select(_events.id).where(_events.tenant_id == tenant_id).limit(at_most).subquery()
    query = select(func.count()).select_from(some)
    return int(read(engine, lambda connection: connection.execute(query).scalar_one()))


def oldest_time(engine: Engine, tenant_id: int) -> datetime | None:
    query = select(func.min(_events.event_time)).where(_events.tenant_id == tenant_id)
    found: datetime | None = read(engine, lambda connection: connection.execute(query).scalar_one())
    return found


def in_version_order(engine: Engine, tenant_id: int) -> Iterator[Stored]:
    """All events of a tenant as the graph orders them, page by page along the index on (tenant, time)."""
    last: tuple[datetime, str] | None = None
    while True:
        query = _page(tenant_id, last)
        rows = read(engine, lambda connection, query=query: connection.execute(query).all())  # type: ignore[misc]
        for row in rows:
            yield stored(row)
        if len(rows) < PAGE:
            return
        last = (rows[-1].event_time, rows[-1].fingerprint)


def _page(tenant_id: int, last: tuple[datetime, str] | None) -> Select[Any]:
    query = (
        select(*_NEEDED)
        .where(_events.tenant_id == tenant_id)
        .order_by(_events.event_time, _events.fingerprint)
        .limit(PAGE)
    )
    if last is None:
        return query
    time, fingerprint = last
    later = (_events.event_time > time) | ((_events.event_time == time) & (_events.fingerprint > fingerprint))
    # the first condition alone is what an index can begin at
    return query.where(_events.event_time >= time, later)


def _parsed(row: Row[Any]) -> Event:
    try:
        return parse_event(row.event)
    except InvalidEvent:
        # accepted when more spellings of a time were: the column has it as it was understood then
        return parse_event({**row.event, "eventTime": row.event_time.isoformat()})


def stored(row: Row[Any]) -> Stored:
    """A row with the facts of its event."""
    event = _parsed(row)
    source_type = SourceType(row.source_type or SourceType.COMPUTE)
    extraction = facts_of(event, source_type)
    return Stored(
        id=row.id,
        tenant=Tenant(row.tenant_id, row.tenant_code, row.tenant_name),
        fingerprint=row.fingerprint,
        event=event,
        source_type=source_type,
        stamped=Stamped(version_of(row.event_time, row.fingerprint), extraction.facts),
        sql_id=None if extraction.sql is None else extraction.sql.id,
        created_at=row.created_at,
        applied=row.graph_applied_at is not None,
    )


def delete_older(engine: Engine, before: datetime) -> int:
    """Deletes events stored before this time; returns how many."""
    old = _events.created_at < before
    return delete_old_rows(engine, lineage_events, old, order_by=_events.created_at, keep_newest=False)


def _by_tenant(keys: Sequence[Key]) -> Iterator[tuple[int, list[str]]]:
    tenants: dict[int, list[str]] = {}
    for key in sorted(keys, key=lambda key: (key.tenant_id, key.fingerprint)):
        tenants.setdefault(key.tenant_id, []).append(key.fingerprint)
    yield from tenants.items()
