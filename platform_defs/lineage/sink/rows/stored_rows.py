"""Reads rows of `lineage_events` by their ids, in portions that fit into memory however large their events are."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, Engine, Row, Select, func, select

from platform_defs.store.chunks import chunks
from platform_defs.store.engine import read
from platform_defs.store.tables.lineage import lineage_events

# One event may have megabytes, and needs ten times as much memory once it is parsed.
EVENTS_AT_ONCE, BYTES_AT_ONCE = 500, 2 * 1024 * 1024
# Of so many events one statement finds the sizes, for which the server reads them.
MEASURED_AT_ONCE = 50

_events = lineage_events.c
_SIZE = func.length(_events.event).label("size")
_COLUMNS = (
    _events.id,
    _events.tenant_id,
    _events.tenant_code,
    _events.tenant_name,
    _events.event_time,
    _events.event_type,
    _events.run_uuid,
    _events.job_namespace,
    _events.job_name,
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
        yield from portion_by_id(reader, some)


def portion_by_id(reader: Reader, ids: Sequence[int]) -> Iterator[Row[Any]]:
    """The same for one portion, which is read at once."""
    by_id = {row.id: row for row in reader(SELECT_ROWS.where(_events.id.in_(ids)))}
    # pop, so that this generator keeps no row that it has yielded
    yield from (by_id.pop(id) for id in ids if id in by_id)


def portions_of(reader: Reader, ids: Sequence[int]) -> Iterator[list[int]]:
    """The ids in this order, in lists whose events may be in memory together."""
    return portions(measure(reader, ids), EVENTS_AT_ONCE, BYTES_AT_ONCE)


def measure(reader: Reader, ids: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The ids in this order, each with the size of its event: bytes on MySQL, characters on SQLite."""
    for some in chunks(ids, MEASURED_AT_ONCE):
        found = {row.id: row.size for row in reader(select(_events.id, _SIZE).where(_events.id.in_(some)))}
        yield from ((id, found[id]) for id in some if id in found)


def portions(sizes: Iterable[tuple[int, int]], most: int, most_size: int) -> Iterator[list[int]]:
    """The ids in lists of at most `most`, whose sizes are at most `most_size` together; a larger one is alone."""
    some: list[int] = []
    total = 0
    for id, size in sizes:
        if some and (len(some) == most or total + size > most_size):
            yield some
            some, total = [], 0
        some.append(id)
        total += size
    if some:
        yield some
