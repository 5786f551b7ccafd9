"""A SQLite file as a source."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from urllib.parse import quote

from sqlalchemy.engine import URL

from platform_defs.sources.reach import Reach, authorize_sqlite
from platform_defs.sources.transactions import Deadline, Query, ReadTransaction, Rows, rows_of_cursor

# How long a query waits for a SQLite file that somebody writes. After that its execution leaves its slot to others.
BUSY_TIMEOUT_S = 5
# instructions of SQLite's virtual machine between two looks at the clock
_STEPS = 10_000


@contextmanager
def open_sqlite(url: URL, deadline: Deadline, reach: Reach | None, mark: str | None) -> Iterator[ReadTransaction]:
    # mode=ro neither creates the file nor changes its journal mode
    address = f"file:{quote(url.database or '')}?mode=ro"
    busy_timeout = min(BUSY_TIMEOUT_S, deadline.timeout_s / 2)
    with closing(sqlite3.connect(address, uri=True, timeout=busy_timeout, isolation_level=None)) as connection:
        connection.set_progress_handler(deadline.passed, _STEPS)
        connection.execute("PRAGMA query_only = ON")
        connection.execute("BEGIN")
        connection.set_authorizer(authorize_sqlite(reach))

        def execute(query: Query) -> Rows:
            return rows_of_cursor(connection.execute(query.sql, query.parameters))

        yield ReadTransaction("sqlite", execute, deadline, reach)


def is_interrupt(error: Exception) -> bool:
    """Whether a signal handler raised an error while SQLite looked at the clock: SQLite hides that error."""
    return isinstance(error, sqlite3.OperationalError) and str(error) == "interrupted"


def is_transient(error: BaseException) -> bool:
    return isinstance(error, sqlite3.OperationalError) and ("locked" in str(error) or "busy" in str(error))
