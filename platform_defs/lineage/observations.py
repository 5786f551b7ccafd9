"""Finds the tables that new events read or write, for asset observations in the Dagster UI. It does not know Dagster.

A sensor asks at every tick, and gets at most one observation per table.
"""

import logging
from collections.abc import Iterator, Set
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, Engine, select

from platform_defs.lineage.events import Dataset
from platform_defs.lineage.new_events import newest_id, read_new_events
from platform_defs.lineage.sink.rows.linked_tables import ReadRow, read_tables
from platform_defs.lineage.tables.in_events import tables_in
from platform_defs.lineage.tables.keys import Table, table_of
from platform_defs.store.engine import read, transact
from platform_defs.store.metadata import now
from platform_defs.store.tables.lineage import lineage_cursor, lineage_events
from platform_defs.store.upsert import upsert

CURSOR = "observations"
TABLES_A_TICK = 500

log = logging.getLogger(__name__)

_events = lineage_events.c


@dataclass(frozen=True, slots=True)
class Observation:
    """The newest event of a tick that writes the table; if none writes it, the newest event that reads it.

    events: how many events of the tick read or write the table.
    """

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
    """How far observations have got: all events up to last_id, and the first `tables` tables of the next event."""

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
    """The observations of one tick, and the position at which the next tick begins."""

    observations: list[Observation]
    position: Position


def observe(engine: Engine, after: Position, *, without: Set[int], at: datetime | None = None) -> Tick:
    """Observations of the events after a position, for at most TABLES_A_TICK tables; the next tick gets the rest."""
    found: dict[Table, Observation] = {}
    after = position = _still_there(engine, after)
    for one in read_tables(engine, read_new_events(engine, after.last_id, at or now())):
        row = one.row
        by_table = {} if row.tenant_id in without else {o.table: o for o in _observations_of(one)}
        reported = after.tables if row.id == after.last_id + 1 else 0
        new = list(by_table.values())[reported:]
        if found and len(found.keys() | {o.table for o in new}) > TABLES_A_TICK:
            break
        for observation in new[:TABLES_A_TICK]:
            found[observation.table] = _combine(found.get(observation.table), observation)
        if len(new) > TABLES_A_TICK:
            position = Position(row.id - 1, reported + TABLES_A_TICK)
            break
        position = Position(row.id)
    return Tick(list(found.values()), position)


def _still_there(engine: Engine, after: Position) -> Position:
    """The position, or the newest event if that is before it."""
    newest = newest_id(engine)
    return after if after.last_id <= newest else Position(newest)


def save_position(engine: Engine, last_id: int) -> None:
    """Stores how far observations have got, for the metric of their lag."""
    row = {"name": CURSOR, "last_id": last_id}
    transact(engine, lambda connection: upsert(connection, lineage_cursor, [row], key=("name",)))


def observation_lag_s(engine: Engine, *, attempts: int = 5) -> float:
    """Age in seconds of the oldest event that is not observed yet; 0 if there is none."""

    def look(connection: Connection) -> float:
        last = connection.execute(select(lineage_cursor.c.last_id).where(lineage_cursor.c.name == CURSOR)).scalar()
        query = select(_events.created_at).where(_events.id > (last or 0)).order_by(_events.id).limit(1)
        oldest = connection.execute(query).scalar()
        return 0.0 if oldest is None else max(0.0, (now() - oldest).total_seconds())

    return read(engine, look, attempts=attempts)


def _observations_of(one: ReadRow) -> Iterator[Observation]:
    row = one.row
    if one.said is None:
        # the events after it must not wait for it
        log.warning("event %d of tenant %d is not observed: %s", row.id, row.tenant_id, one.refusal)
        return
    # Inputs come first: if the same event also writes the table, the caller keeps the later observation, the write.
    for found in tables_in(one.said.event, row.source_type, one.said.tables):
        yield Observation(
            table=table_of(row.tenant_id, found.ref),
            tenant_code=row.tenant_code,
            written=found.written,
            event_time=row.event_time,
            event_type=row.event_type,
            job=None if row.job_name is None else f"{row.job_namespace}/{row.job_name}",
            run_id=row.run_uuid,
            columns=tuple(_columns(found.dataset)),
            events=1,
        )


def _combine(before: Observation | None, new: Observation) -> Observation:
    if before is None:
        return new
    best = max(before, new, key=lambda o: (o.written, o.event_time))
    # if the newest event does not list the columns, those that another event listed are still valid
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
