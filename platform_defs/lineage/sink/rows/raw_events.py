"""The raw events in `lineage_events`: each event once, however often a client sends it.

The column `graph_applied_at` is the mark that the graph contains the event; NULL means that the graph still lacks it.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, Row, Select, delete, func, select, update

from platform_defs.access.principal import SourceType
from platform_defs.access.tenants import Tenant
from platform_defs.lineage.errors import InvalidEvent
from platform_defs.lineage.events import Event, parse_event
from platform_defs.lineage.extract.facts_of import Extraction, facts_of
from platform_defs.lineage.facts import Fact, Ref
from platform_defs.lineage.new_events import WRONG_CLOCK
from platform_defs.lineage.sink.apply import EventFacts
from platform_defs.lineage.sink.rows.stored_rows import (
    SELECT_ROWS,
    measure,
    portion_by_id,
    portions_of,
    reader_of,
    reader_within,
    rows_by_id,
)
from platform_defs.lineage.sink.rows.symlinks import EventNames, NameUse
from platform_defs.lineage.version import Version, is_ahead, version_at_arrival, version_of
from platform_defs.store.chunks import chunks
from platform_defs.store.deletion import delete_old_rows
from platform_defs.store.engine import read, transact
from platform_defs.store.metadata import now
from platform_defs.store.tables.lineage import lineage_events
from platform_defs.store.types import JsonText
from platform_defs.store.upsert import Upsert

PAGE = 500
KEYS_PER_STATEMENT = 500

_events = lineage_events.c
_INSERT = Upsert(lineage_events, ("tenant_id", "fingerprint"), "nothing")


@dataclass(frozen=True, slots=True)
class EventKey:
    """Identifies an event: two deliveries of the same event to the same tenant have the same key."""

    tenant_id: int
    fingerprint: str


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """A stored row, with its event parsed again and the facts of that event, by the event's own names of tables."""

    id: int
    tenant: Tenant
    fingerprint: str
    event: Event
    source_type: SourceType
    event_facts: EventFacts
    names: EventNames
    sql_id: str | None
    created_at: datetime
    applied: bool

    @property
    def name_use(self) -> NameUse:
        return NameUse(self.tenant.id, self.event_facts.version, self.names)

    def facts_with(self, linked: Mapping[Ref, Ref]) -> EventFacts:
        """The facts, if these names mean other tables than their own."""
        return replace(self.event_facts, facts=self.names.facts_with(linked)) if linked else self.event_facts


@dataclass(frozen=True, slots=True)
class StoredState:
    """What the table says of an event that it has: whether the graph has the event too, and the event's version."""

    applied: bool
    version: Version


def event_row(
    tenant: Tenant, event: Event, fingerprint: str, source_type: SourceType, version: Version
) -> dict[str, Any]:
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
        "event": JsonText(event.text),
        "fingerprint": fingerprint,
        "source_type": str(source_type),
        "version": version,
    }


def names_of(event: Event, source_type: SourceType, extraction: Extraction) -> EventNames:
    def facts_with(linked: Mapping[Ref, Ref]) -> tuple[Fact, ...]:
        return facts_of(event, source_type, linked).facts

    return EventNames(extraction.symlinks, extraction.plain_names, facts_with)


def find_stored(connection: Connection, keys: Sequence[EventKey]) -> dict[EventKey, StoredState]:
    """The given keys that are stored already."""
    found: dict[EventKey, StoredState] = {}
    for tenant_id, fingerprints in _by_tenant(keys):
        for some in chunks(fingerprints, KEYS_PER_STATEMENT):
            query = select(_events.fingerprint, _events.graph_applied_at, _events.event_time, _events.version).where(
                _events.tenant_id == tenant_id, _events.fingerprint.in_(some)
            )
            found |= {
                EventKey(tenant_id, row.fingerprint): StoredState(row.graph_applied_at is not None, _version(row))
                for row in connection.execute(query)
            }
    return found


def insert_rows(connection: Connection, rows: Sequence[dict[str, Any]], *, applied_at: datetime | None = None) -> None:
    """Inserts new rows. A row that another process has inserted in the meantime is left unchanged."""
    marked = [row | {"graph_applied_at": applied_at} for row in rows]
    _INSERT.run(connection, marked)


def mark_applied(connection: Connection, keys: Sequence[EventKey], at: datetime | None = None) -> None:
    """Notes that the graph has these events; those that are marked already keep their time."""
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


def read_unapplied(engine: Engine, *, before: datetime) -> Iterator[list[StoredEvent]]:
    """Events stored before that time which the graph lacks, oldest first, in portions that fit into memory."""
    reader, last = reader_of(engine), 0
    while True:
        query: Select[Any] = (
            select(_events.id).where(*_waits_since(before), _events.id > last).order_by(_events.id).limit(PAGE)
        )
        ids = [row.id for row in reader(query)]
        for some in portions_of(reader, ids):
            # a rebuild by another process may have applied some of them meanwhile
            yield [read_row(row) for row in portion_by_id(reader, some) if row.graph_applied_at is None]
        if len(ids) < PAGE:
            return
        last = ids[-1]


def count_unapplied(engine: Engine, *, before: datetime, attempts: int = 5) -> int:
    query = select(func.count()).select_from(lineage_events).where(*_waits_since(before))
    return int(read(engine, lambda connection: connection.execute(query).scalar_one(), attempts=attempts))


def _waits_since(before: datetime) -> tuple[ColumnElement[bool], ...]:
    """The graph lacks the event, which was stored before that time, or by a clock that has been set back since."""
    old = (_events.created_at < before) | (_events.created_at > max(before, now()) + WRONG_CLOCK)
    return _events.graph_applied_at.is_(None), old


def are_few(engine: Engine, tenant_id: int, *, most: int, most_size: int) -> bool:
    """Whether the tenant has at most so many events, of at most this size together; a large tenant costs no more."""
    reader, size = reader_of(engine), 0
    ids = [row.id for row in reader(select(_events.id).where(_events.tenant_id == tenant_id).limit(most + 1))]
    return len(ids) <= most and all((size := size + one) <= most_size for _, one in measure(reader, ids))


def oldest_time(engine: Engine, tenant_id: int) -> datetime | None:
    query = select(func.min(_events.event_time)).where(_events.tenant_id == tenant_id)
    found: datetime | None = read(engine, lambda connection: connection.execute(query).scalar_one())
    return found


def read_in_version_order(engine: Engine, tenant_id: int) -> Iterator[StoredEvent]:
    """All events of a tenant in the order of their versions.

    Pages hold ids only, along the index on (tenant, version): a server that sorted whole rows would need room for
    their JSON, which MySQL does not grant. The events are then fetched by id.
    """
    fill_versions(engine, tenant_id)
    last: tuple[str, int] = ("", 0)
    while True:
        query = _page(tenant_id, *last)
        page = read(engine, lambda connection, query=query: connection.execute(query).all())  # type: ignore[misc]
        yield from map(read_row, rows_by_id(reader_of(engine), [row.id for row in page]))
        if len(page) < PAGE:
            return
        last = (page[-1].version, page[-1].id)


def read_versions(connection: Connection, tenant_id: int, versions: Collection[Version]) -> list[StoredEvent]:
    """The events with these versions, which should be few."""
    query = SELECT_ROWS.where(_events.tenant_id == tenant_id, _events.version.in_(sorted(versions)))
    return [read_row(row) for row in connection.execute(query)]


def read_of_runs(
    connection: Connection, tenant_id: int, run_ids: Collection[str], *, without: Set[int]
) -> Iterator[StoredEvent]:
    """All events of these runs but those with the ids in `without`, in the caller's transaction."""
    for some in chunks(sorted(run_ids), KEYS_PER_STATEMENT):
        query = select(_events.id).where(_events.tenant_id == tenant_id, _events.run_uuid.in_(some))
        ids = sorted(set(connection.scalars(query)) - without)
        yield from map(read_row, rows_by_id(reader_within(connection), ids))


def _page(tenant_id: int, version: str, id: int) -> Select[Any]:
    later = (_events.version > version) | ((_events.version == version) & (_events.id > id))
    return (
        select(_events.id, _events.version)
        # `later` implies the second condition, which is repeated because the index can only be searched by that one
        .where(_events.tenant_id == tenant_id, _events.version >= version, later)
        .order_by(_events.version, _events.id)
        .limit(PAGE)
    )


def fill_versions(engine: Engine, tenant_id: int) -> None:
    """Writes the version into rows of a release that had no such column: the one by which the graph knows them."""
    query = (
        select(_events.id, _events.event_time, _events.fingerprint, _events.version)
        .where(_events.tenant_id == tenant_id, _events.version.is_(None))
        .limit(PAGE)
    )
    while rows := read(engine, lambda connection: connection.execute(query).all()):
        _write_versions(engine, tenant_id, {row.id: _version(row) for row in rows})


def renew_versions(engine: Engine, tenant_id: int) -> None:
    """Gives every row the version that a new row gets, which rows of an older release do not have."""
    after = 0
    while True:
        query = (
            select(_events.id)
            .where(_events.tenant_id == tenant_id, _events.id > after)
            .order_by(_events.id)
            .limit(PAGE)
        )
        ids = read(engine, lambda connection, query=query: connection.scalars(query).all())  # type: ignore[misc]
        if not ids:
            return
        changed: dict[int, Version] = {}
        for row in rows_by_id(reader_of(engine), ids):
            wanted = version_at_arrival(row.event_time, row.created_at, _parse_event_of(row).payload_hash)
            # the time at which a row is stored may follow the arrival by some milliseconds
            if not _is_same_order(row, wanted):
                changed[row.id] = wanted
        _write_versions(engine, tenant_id, changed)
        after = ids[-1]


def _is_same_order(row: Row[Any], wanted: Version) -> bool:
    if row.version is None or row.version[16:] != wanted[16:]:
        return False
    return row.version == wanted or is_ahead(row.event_time, row.created_at)


def _write_versions(engine: Engine, tenant_id: int, versions: Mapping[int, Version]) -> None:
    def write(connection: Connection) -> None:
        for id, version in versions.items():
            where = (_events.tenant_id == tenant_id, _events.id == id)
            connection.execute(update(lineage_events).where(*where).values(version=version))

    if versions:
        transact(engine, write)


def _version(row: Any) -> Version:
    return Version(row.version) if row.version else version_of(row.event_time, row.fingerprint)


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
        event_facts=EventFacts(_version(row), extraction.facts),
        names=names_of(event, source_type, extraction),
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
