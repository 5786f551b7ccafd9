"""The raw events in `lineage_events`: each event once, however often a client sends it.

The column `graph_applied_at` is the mark that the graph contains the event; NULL means that the graph still lacks it.
"""

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
from platform_defs.lineage.sink.apply import EventFacts
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
_COLUMNS = (
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
class EventKey:
    """Identifies an event: two deliveries of the same event to the same tenant have the same key."""

    tenant_id: int
    fingerprint: str


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """A stored row, with its event parsed again and the facts of that event."""

    id: int
    tenant: Tenant
    fingerprint: str
    event: Event
    source_type: SourceType
    event_facts: EventFacts
    sql_id: str | None
    created_at: datetime
    applied: bool


def event_row(tenant: Tenant, event: Event, fingerprint: str, source_type: SourceType) -> dict[str, Any]:
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


def find_stored(connection: Connection, keys: Sequence[EventKey]) -> dict[EventKey, bool]:
    """The given keys that are stored already, each with whether the graph has its event."""
    found: dict[EventKey, bool] = {}
    for tenant_id, fingerprints in _by_tenant(keys):
        for some in chunks(fingerprints, KEYS_PER_STATEMENT):
            query = select(_events.fingerprint, _events.graph_applied_at).where(
                _events.tenant_id == tenant_id, _events.fingerprint.in_(some)
            )
            found |= {
                EventKey(tenant_id, row.fingerprint): row.graph_applied_at is not None
                for row in connection.execute(query)
            }
    return found


def insert_rows(connection: Connection, rows: Sequence[dict[str, Any]], *, applied_at: datetime | None = None) -> None:
    """Inserts new rows. A row that another process has inserted in the meantime is left unchanged."""
    marked = [row | {"graph_applied_at": applied_at} for row in rows]
    upsert(connection, lineage_events, marked, key=("tenant_id", "fingerprint"), update="nothing")


def mark_applied(connection: Connection, keys: Sequence[EventKey], at: datetime | None = None) -> None:
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


def remove_unapplied(connection: Connection, keys: Sequence[EventKey]) -> None:
    """Deletes rows of events that the graph refused because of their content: a refused event is stored nowhere."""
    for tenant_id, fingerprints in _by_tenant(keys):
        for some in chunks(fingerprints, KEYS_PER_STATEMENT):
            connection.execute(
                delete(lineage_events).where(
                    _events.tenant_id == tenant_id, _events.fingerprint.in_(some), _events.graph_applied_at.is_(None)
                )
            )


def read_unapplied(engine: Engine, *, before: datetime, after_id: int = 0, limit: int = PAGE) -> list[StoredEvent]:
    """Events stored before that time which the graph lacks, oldest first."""
    query: Select[Any] = (
        select(*_COLUMNS)
        .where(_events.graph_applied_at.is_(None), _events.created_at < before, _events.id > after_id)
        .order_by(_events.id)
        .limit(limit)
    )
    return [read_row(row) for row in read(engine, lambda connection: connection.execute(query).all())]


def count_unapplied(engine: Engine, *, before: datetime, attempts: int = 5) -> int:
    query = (
        select(func.count())
        .select_from(lineage_events)
        .where(_events.graph_applied_at.is_(None), _events.created_at < before)
    )
    return int(read(engine, lambda connection: connection.execute(query).scalar_one(), attempts=attempts))


def count_events(engine: Engine, tenant_id: int, *, at_most: int) -> int:
    """How many events the tenant has; counting stops at `at_most`, so that a large tenant costs no more."""
    some = select(_events.id).where(_events.tenant_id == tenant_id).limit(at_most).subquery()
    query = select(func.count()).select_from(some)
    return int(read(engine, lambda connection: connection.execute(query).scalar_one()))


def oldest_time(engine: Engine, tenant_id: int) -> datetime | None:
    query = select(func.min(_events.event_time)).where(_events.tenant_id == tenant_id)
    found: datetime | None = read(engine, lambda connection: connection.execute(query).scalar_one())
    return found


def read_in_version_order(engine: Engine, tenant_id: int) -> Iterator[StoredEvent]:
    """All events of a tenant in the order of their versions, page by page along the index on (tenant, time)."""
    last: tuple[datetime, str] | None = None
    while True:
        query = _page(tenant_id, last)
        rows = read(engine, lambda connection, query=query: connection.execute(query).all())  # type: ignore[misc]
        for row in rows:
            yield read_row(row)
        if len(rows) < PAGE:
            return
        last = (rows[-1].event_time, rows[-1].fingerprint)


def _page(tenant_id: int, last: tuple[datetime, str] | None) -> Select[Any]:
    query = (
        select(*_COLUMNS)
        .where(_events.tenant_id == tenant_id)
        .order_by(_events.event_time, _events.fingerprint)
        .limit(PAGE)
    )
    if last is None:
        return query
    time, fingerprint = last
    later = (_events.event_time > time) | ((_events.event_time == time) & (_events.fingerprint > fingerprint))
    # `later` implies the first condition, which is repeated because the index can only be searched by that one
    return query.where(_events.event_time >= time, later)


def _parse_event_of(row: Row[Any]) -> Event:
    try:
        return parse_event(row.event)
    except InvalidEvent:
        # An earlier version accepted more spellings of eventTime. The column has the time as it was read then.
        return parse_event({**row.event, "eventTime": row.event_time.isoformat()})


def read_row(row: Row[Any]) -> StoredEvent:
    event = _parse_event_of(row)
    source_type = SourceType(row.source_type or SourceType.COMPUTE)
    extraction = facts_of(event, source_type)
    return StoredEvent(
        id=row.id,
        tenant=Tenant(row.tenant_id, row.tenant_code, row.tenant_name),
        fingerprint=row.fingerprint,
        event=event,
        source_type=source_type,
        event_facts=EventFacts(version_of(row.event_time, row.fingerprint), extraction.facts),
        sql_id=None if extraction.sql is None else extraction.sql.id,
        created_at=row.created_at,
        applied=row.graph_applied_at is not None,
    )


def delete_older(engine: Engine, before: datetime) -> int:
    """Deletes events stored before this time; returns how many."""
    old = _events.created_at < before
    return delete_old_rows(engine, lineage_events, old, order_by=_events.created_at, keep_newest=False)


def _by_tenant(keys: Sequence[EventKey]) -> Iterator[tuple[int, list[str]]]:
    tenants: dict[int, list[str]] = {}
    for key in sorted(keys, key=lambda key: (key.tenant_id, key.fingerprint)):
        tenants.setdefault(key.tenant_id, []).append(key.fingerprint)
    yield from tenants.items()
