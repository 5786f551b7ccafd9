"""The logical tables of stored events, for readers of many events: what names mean is read once for each portion."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, Engine, Row

from platform_defs.lineage.errors import EventRefused
from platform_defs.lineage.events import Event, parse_event
from platform_defs.lineage.extract.compute.names import LogicalTables
from platform_defs.lineage.facts import Ref
from platform_defs.lineage.sink.rows.meanings import Meanings, linked_names
from platform_defs.lineage.sink.rows.symlinks import read_meanings
from platform_defs.lineage.upkeep.rebuild_requests import read_marks
from platform_defs.lineage.version import Version, version_of
from platform_defs.store.engine import read


class Said(NamedTuple):
    """The event of a row, and the tables that its datasets mean."""

    event: Event
    tables: LogicalTables


class ReadRow(NamedTuple):
    """said: None if the event is refused today; an earlier version accepted it. refusal: why."""

    row: Row[Any]
    said: Said | None
    refusal: str = ""


def read_tables(engine: Engine, portions: Iterable[Iterable[Row[Any]]]) -> Iterator[ReadRow]:
    """Each row with the logical tables of its event. A portion should fit into memory."""
    for portion in portions:
        yield from _read_portion(engine, portion)


def _read_portion(engine: Engine, portion: Iterable[Row[Any]]) -> Iterator[ReadRow]:
    parsed = [_parse(row) for row in portion]
    meanings = _read_meanings(engine, parsed)
    yield from (one._replace(said=_linked(one, meanings.get(one.row.tenant_id, {}))) for one in parsed)


def _parse(row: Row[Any]) -> ReadRow:
    try:
        event = parse_event(row.event)
    except EventRefused as error:
        return ReadRow(row, None, str(error))
    return ReadRow(row, Said(event, LogicalTables(event, {})))


def _read_meanings(engine: Engine, parsed: Sequence[ReadRow]) -> dict[int, Meanings]:
    names: dict[int, set[Ref]] = {}
    for one in parsed:
        if one.said is not None:
            names.setdefault(one.row.tenant_id, set()).update(one.said.tables.plain)

    def look(connection: Connection) -> dict[int, Meanings]:
        marks = read_marks(connection, names.keys())
        linking = [tenant_id for tenant_id in sorted(names) if marks[tenant_id].symlink_changes]
        return {tenant_id: read_meanings(connection, tenant_id, names[tenant_id]) for tenant_id in linking}

    return read(engine, look) if names else {}


def _linked(one: ReadRow, meanings: Meanings) -> Said | None:
    if one.said is None or not meanings:
        return one.said
    event, tables = one.said
    # rows of an older release may have no version
    at = Version(one.row.version) if one.row.version else version_of(event.event_time, event.payload_hash)
    linked = linked_names(meanings, tables.plain, at)
    return Said(event, LogicalTables(event, linked)) if linked else one.said
