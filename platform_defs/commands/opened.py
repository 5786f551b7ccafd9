"""The database of the settings, for the length of a command; refuses one that is behind its migrations."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine

from platform_defs.settings import Settings
from platform_defs.store.engine import open_engine
from platform_defs.store.migrate import require_current


@contextmanager
def opened_engine() -> Iterator[Engine]:
    engine = open_engine(Settings.load().database_url)
    try:
        require_current(engine)
        yield engine
    finally:
        engine.dispose()
