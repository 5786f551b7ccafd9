"""Which tables new events speak of: one observation per table and tick, for the Dagster UI. Knows no Dagster."""

import logging
from collections.abc import Iterator, Set
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote

from sqlalchemy import Connection, Engine, Row, select

from platform_defs.canonical import sha256_hex
from platform_defs.lineage.errors import EventRefused
from platform_defs.lineage.events import Dataset, parse_event
from platform_defs.store.engine import read, transact
from platform_defs.store.metadata import now
from platform_defs.store.tables.lineage import lineage_cursor, lineage_events
from platform_defs.store.upsert import upsert

CURSOR = "observations"
TABLES_A_TICK = 500
EVENTS_A_TICK = 5000
PAGE = 500
# rows get their number before they are committed: what is younger may still have older neighbours to come
SETTLED = timedelta(seconds=6)
# Dagster keeps a key in 512 characters, with its quotes and escapes
MAX_PART = 160

log = logging.getLogger(__name__)

_events = lineage_events.c


@dataclass(frozen=True, slots=True)
class Table:
    tenant_id: int
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Observation:
    """The newest event of a tick that writes the table, or reads it where none writes it."""

    table: Table
    tenant_code: str
    written: bool
    event_time: datetime
    event_type: str | None
    job: str | None
    run_id: str | None
    columns: tuple[tuple[str, str | None], ...]
    events: int


@dataclass(frozen=True, slots=True)
class Position:
    """How far observations are: all events up to an id, and so many tables of the event with the id after it."""

    last_id: int = 0
    tables: int = 0

    @classmethod
    def read(cls, text: str | None) -> "Position":
        last_id, _, tables = (text or "0").partition("+")
        return cls(int(last_id), int(tables or 0))

    def __str__(self) -> str:
        return f"{self.last_id}+{self.tables}" if self.tables else str(self.last_id)


@dataclass(frozen=True, slots=True)
class Tick:
    observations: list[Observation]
    position: Position


def key_of(table: Table) -> list[str]:
    """Injective: a part keeps letters, digits and `_.-~`, the rest is escaped; what is too long ends in its hash."""
    return ["lineage", str(table.tenant_id), _part(table.namespace), _part(table.name)]


def observe(engine: Engine, after: Position, *, without: Set[int], at: datetime | None = None) -> Tick:
    """What came after a position; at most as many tables as one tick can report, the rest comes with the next."""
    found: dict[Table, Observation] = {}
    position = after
    for row in _new(engine, after.last_id, (at or now()) - SETTLED):
        seen = {} if row.tenant_id in without else {o.table: o for o in _of(row)}
        told = after.tables if row.id == after.last_id + 1 else 0
        new = list(seen.values())[told:]
        if found and len(found.keys() | {o.table for o in new}) > TABLES_A_TICK:
            break
        for observation in new[:TABLES_A_TICK]:
            found[observation.table] = _newer(found.get(observation.table), observation)
        if len(new) > TABLES_A_TICK:
            position = Position(row.id - 1, told + TABLES_A_TICK)
            break
        position = Position(row.id)
    return Tick(list(found.values()), position)


def save(engine: Engine, last_id: int) -> None:
    row = {"name": CURSOR, "last_id": last_id}
    transact(engine, lambda connection: upsert(connection, lineage_cursor, [row], key=("name",)))


def lag_s(engine: Engine, *, attempts: int = 5) -> float:
    """Age of the oldest event that is not observed yet."""

    def look(connection: Connection) -> float:
        last = connection.execute(select(lineage_cursor.c.last_id).where(lineage_cursor.c.name == CURSOR)).scalar()
        query = select(_events.created_at).where(_events.id > (last or 0)).order_by(_events.id).limit(1)
        oldest = connection.execute(query).scalar()
        return 0.0 if oldest is None else max(0.0, (now() - oldest).total_seconds())

    return read(engine, look, attempts=attempts)


def _new(engine: Engine, after_id: int, before: datetime) -> Iterator[Row[Any]]:
    last, left = after_id, EVENTS_A_TICK
    while left > 0:
        query = (
            select(
                _events.id,
                _events.tenant_id,
                _events.tenant_code,
                _events.event_time,
                _events.event_type,
                _events.run_uuid,
                _events.job_namespace,
                _events.job_name,
                _events.event,
                _events.created_at,
            )
            .where(_events.id > last)
            .order_by(_events.id)
            .limit(min(PAGE, left))
        )
        rows = read(engine, lambda connection, query=query: connection.execute(query).all())  # type: ignore[misc]
        for row in rows:
            if row.created_at > before:
                return
            yield row
        if len(rows) < PAGE:
            return
        last, left = rows[-1].id, left - len(rows)


def _of(row: Row[Any]) -> Iterator[Observation]:
    try:
        event = parse_event(row.event)
    except EventRefused as error:  # accepted by rules of another day; the events after it must not wait for it
        log.warning("event %d of tenant %d is not observed: %s", row.id, row.tenant_id, error)
        return
    single = () if event.dataset is None else (event.dataset,)
    # reads first: the same table written by the same event overwrites them
    for written, datasets in ((False, event.inputs), (True, (*event.outputs, *single))):
        for dataset in datasets:
            yield Observation(
                table=Table(row.tenant_id, dataset.namespace, dataset.name),
                tenant_code=row.tenant_code,
                written=written,
                event_time=row.event_time,
                event_type=row.event_type,
                job=None if row.job_name is None else f"{row.job_namespace}/{row.job_name}",
                run_id=row.run_uuid,
                columns=tuple(_columns(dataset)),
                events=1,
            )


def _newer(before: Observation | None, new: Observation) -> Observation:
    if before is None:
        return new
    best = max(before, new, key=lambda o: (o.written, o.event_time))
    # a schema that the newest event does not repeat still holds
    columns = best.columns or before.columns or new.columns
    return Observation(
        table=best.table,
        tenant_code=best.tenant_code,
        written=best.written,
        event_time=best.event_time,
        event_type=best.event_type,
        job=best.job,
        run_id=best.run_id,
        columns=columns,
        events=before.events + new.events,
    )


def _columns(dataset: Dataset) -> Iterator[tuple[str, str | None]]:
    fields = dataset.facet("schema").get("fields")
    for field in fields if isinstance(fields, list) else []:
        if isinstance(field, dict) and isinstance(field.get("name"), str):
            kind = field.get("type")
            yield field["name"], kind if isinstance(kind, str) else None


def _part(text: str) -> str:
    escaped = quote(text, safe="")
    # an escape is always followed by two digits, so `%h` cannot be one
    return escaped if len(escaped) <= MAX_PART else f"{escaped[:80]}%h{sha256_hex(text)}"
