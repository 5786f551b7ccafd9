"""Reads stored events in the order of their ids, for readers that keep a position: observations and tables."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Engine, Row, func, select

from platform_defs.store.engine import read
from platform_defs.store.tables.lineage import lineage_events

EVENTS_AT_ONCE = 5000
PAGE = 500
# A row gets its id before its transaction commits, so a row with a smaller id may become visible later than one with a
# larger id. Rows younger than this are not read yet, because such a row may still be missing before them.
SETTLED = timedelta(seconds=6)
# A row that says it was stored so much later than now was stored before a wrong clock was set back. It is not young:
# until the clock gets there again years may pass.
WRONG_CLOCK = timedelta(minutes=10)

_events = lineage_events.c


def newest_id(engine: Engine) -> int:
    """0 if there are no events. SQLite gives the ids of deleted newest rows again: a position may be beyond it."""
    return read(engine, lambda connection: connection.scalar(select(func.max(_events.id)))) or 0


def read_new_events(engine: Engine, after_id: int, at: datetime) -> Iterator[Row[Any]]:
    """The settled events after this one, at most EVENTS_AT_ONCE of them."""
    last, left, settled, ahead = after_id, EVENTS_AT_ONCE, at - SETTLED, at + WRONG_CLOCK
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
                _events.source_type,
                _events.version,
            )
            .where(_events.id > last)
            .order_by(_events.id)
            .limit(min(PAGE, left))
        )
        rows = read(engine, lambda connection, query=query: connection.execute(query).all())  # type: ignore[misc]
        for row in rows:
            if settled < row.created_at <= ahead:
                return
            yield row
        if len(rows) < PAGE:
            return
        last, left = rows[-1].id, left - len(rows)
