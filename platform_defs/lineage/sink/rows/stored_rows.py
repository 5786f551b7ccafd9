"""Reads rows of `lineage_events` by their ids, in portions that fit into memory however large their events are."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, Engine, Row, Select, func, select

from platform_defs.store.chunks import chunks
from platform_defs.store.engine import read
from platform_defs.store.tables.lineage import lineage_events

# One event may have megabytes, and needs ten times as much memory once it is parsed.
EVENTS_AT_ONCE, BYTES_AT_ONCE = 500, 2 * 1024 * 1024
IDS_PER_STATEMENT = 500

_events = lineage_events.c
_SIZE = func.length(_events.event).label("size")
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
    _events.version,
)
SELECT_ROWS: Select[Any] = select(*_COLUMNS)

# executes a query
Reader = Callable[[Select[Any]], Sequence[Row[Any]]]


def reader_of(engine: Engine) -> Reader:
    """Each query is a transaction of its own."""
    return lambda query: read(engine, lambda connection: connection.execute(query).all())


def reader_within(connection: Connection) -> Reader:
    return lambda query: connection.execute(query).all()


def rows_by_id(reader: Reader, ids: Sequence[int]) -> Iterator[Row[Any]]:
    """The rows in this order, without those that retention has deleted since their ids were read."""
    for some in portions_of(reader, ids):
        by_id = {row.id: row for row in reader(SELECT_ROWS.where(_events.id.in_(some)))}
        # what has been given away is the caller's alone
        yield from (by_id.pop(id) for id in some if id in by_id)


def portions_of(reader: Reader, ids: Sequence[int]) -> Iterator[list[int]]:
    """The ids in this order, in lists whose events may be in memory together."""
    for page in chunks(ids, IDS_PER_STATEMENT):
        found = {row.id: row.size for row in reader(select(_events.id, _SIZE).where(_events.id.in_(page)))}
        sizes = [(id, found[id]) for id in page if id in found]
        yield from portions(sizes, EVENTS_AT_ONCE, BYTES_AT_ONCE)


def portions(sizes: Iterable[tuple[int, int]], most: int, most_bytes: int) -> Iterator[list[int]]:
    """The ids in order, in lists of at most `most` ids and `most_bytes` bytes; an event with more bytes is alone.

    sizes: each id with the bytes of its event.
    """
    some: list[int] = []
    total = 0
    for id, size in sizes:
        if some and (len(some) == most or total + size > most_bytes):
            yield some
            some, total = [], 0
        some.append(id)
        total += size
    if some:
        yield some
