"""Notes how each tick of a sensor ended, so that `/readyz` can tell of a sensor that stands still."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from sqlalchemy import Engine

from platform_defs.errors import one_line
from platform_defs.work.sensor_ticks import note_tick
from resources.database import DatabaseResource


@contextmanager
def noted_tick(name: str) -> Iterator[Engine]:
    """The database for one tick. Only for sensors that always exist: one that is removed would count as stuck."""
    with DatabaseResource().open() as engine:
        try:
            yield engine
        except Exception as error:
            # The database may be what failed: then the error itself counts, not that it could not be noted.
            with suppress(Exception):
                note_tick(engine, name, one_line(error))
            raise
        note_tick(engine, name, None)
