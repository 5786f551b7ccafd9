"""Reads stored events in the order of their ids, for readers that keep a position: observations and tables."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Any

from sqlalchemy import Engine, Row, func, select

from platform_defs.lineage.sink.rows.stored_rows import portion_by_id, portions_of, reader_of
from platform_defs.store.engine import has_one_writer, read
from platform_defs.store.tables.lineage import lineage_events

EVENTS_AT_ONCE = 5000
PAGE = 500
# A row gets its id before its transaction commits, so a row with a smaller id may become visible later than one with a
# larger id. Rows younger than this are not read yet, because such a row may still be missing before them. Where one
# transaction writes at a time, ids become visible in their order.
SETTLED = timedelta(seconds=6)
# A row that says it was stored so much later than now was stored before a wrong clock was set back. It is not young:
# until the clock gets there again years may pass.
WRONG_CLOCK = timedelta(minutes=10)

_events = lineage_events.c


def newest_id(engine: Engine) -> int:
    """0 if there are no events. SQLite gives the ids of deleted newest rows again: a position may be beyond it."""
    return read(engine, lambda connection: connection.scalar(select(func.max(_events.id)))) or 0


def read_new_events(engine: Engine, after_id: int, at: datetime) -> Iterator[Iterator[Row[Any]]]:
    """The settled events after this one, at most EVENTS_AT_ONCE of them, in portions that fit into memory."""
    reader, last, left, ahead = reader_of(engine), after_id, EVENTS_AT_ONCE, at + WRONG_CLOCK
    settled = at if has_one_writer(engine) else at - SETTLED
    while left > 0:
        query = (
            select(_events.id, _events.created_at).where(_events.id > last).order_by(_events.id).limit(min(PAGE, left))
        )
        found = reader(query)
        ids = [row.id for row in takewhile(lambda row: not settled < row.created_at <= ahead, found)]
        yield from (portion_by_id(reader, some) for some in portions_of(reader, ids))
        if len(ids) < PAGE:
            return
        last, left = ids[-1], left - len(ids)
