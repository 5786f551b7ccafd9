"""Opens the database and the graph that the settings name, for as long as a process or a command needs them."""

import errno
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from platform_defs.errors import PlatformError, StoreError, driver_error, one_line
from platform_defs.graph.port import Graph
from platform_defs.home import require_platform
from platform_defs.settings import Settings
from platform_defs.store.engine import MYSQL_CROWDED, is_refusal, open_engine
from platform_defs.store.errors import StoreUnavailable

POOL_SIZE = 10
# MySQL: the server's name is not known, or the database is not there
_UNKNOWN_HOST, _UNKNOWN_DATABASE = 2005, 1049


@dataclass(frozen=True)
class Stores:
    settings: Settings
    engine: Engine
    graph: Graph


@contextmanager
def open_database(
    settings: Settings | None = None, *, pool_size: int = POOL_SIZE, any_schema: bool = False, create: bool = False
) -> Iterator[Engine]:
    """The database of the settings; raises one line that says what to do unless it has the schema of this code.

    `any_schema` is for callers that report on a database which may not be migrated yet, `create` for those that migrate
    it: everybody else is told that there is no platform.
    """
    settings = settings or Settings.load()
    if not create:
        require_platform(settings)
    engine = open_engine(settings.database_url, pool_size=pool_size)
    try:
        if not any_schema:
            # imported here: Alembic would delay the supervisor, which only asks for runners that are alive
            from platform_defs.store.migrate import require_current

            require_current(engine)
        yield engine
    finally:
        engine.dispose()


@contextmanager
def open_stores(settings: Settings | None = None) -> Iterator[Stores]:
    """The database, checked as in `open_database`, and the graph, which connects when it is first used."""
    # imported here: most commands need no graph, and the Neo4j driver is slow to import
    from platform_defs.graph.open import open_graph

    settings = settings or Settings.load()
    with open_database(settings) as engine, closing(open_graph(settings, engine)) as graph:
        yield Stores(settings, engine, graph)


def explain(error: BaseException) -> str:
    """One readable line of an error, with the setting to mend or the command that helps, if there is one."""
    line = one_line(error)
    if "disk is full" in line or (isinstance(error, OSError) and error.errno == errno.ENOSPC):
        return f"{line}; free some space on the disk of PLATFORM_HOME"
    if isinstance(error, StoreUnavailable):
        return f"{line}; start its server, or mend PLATFORM_DB_URL"
    cause = error.__cause__ if isinstance(error, StoreError) and error.__cause__ else error
    if _is_not_let_in(cause):
        first = "run `platform db upgrade`, or " if _mysql_errno(cause) == _UNKNOWN_DATABASE else ""
        return f"{line}; {first}mend PLATFORM_DB_URL"
    advice = error.advice if isinstance(error, PlatformError) else ""
    return f"{line}; {advice}" if advice else line


def _is_not_let_in(error: BaseException) -> bool:
    """Whether MySQL refused the connection itself: wrong or expired password, locked account, unknown database, …

    What it has no room for at the moment is let in later, with the same URL.
    """
    if not isinstance(error, DBAPIError) or error.statement is not None:
        return False
    number = _mysql_errno(error)
    return number == _UNKNOWN_HOST or (number is not None and number not in MYSQL_CROWDED and is_refusal(error))


def _mysql_errno(error: BaseException) -> int | None:
    number = getattr(driver_error(error), "errno", None)
    return number if isinstance(number, int) else None
