"""PostgreSQL as a source. Its driver is an extra: a platform without such a source does without."""

import contextlib
import importlib
import os
import socket
import threading
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from itertools import chain, islice
from typing import Any

from sqlalchemy.engine import URL

from platform_defs.sources.errors import SourceError, error_text
from platform_defs.sources.reach import Reach
from platform_defs.sources.transactions import (
    ASK_TIMEOUT_S,
    FETCHED_ROWS,
    SOCKET_GRACE_S,
    Deadline,
    Query,
    ReadTransaction,
    Rows,
    comment,
    end_marked,
)
from platform_defs.store.engine import CONNECT_TIMEOUT_S

# What PostgreSQL says while it is down, overloaded or busy. The end of a query by its timeout or by pg_cancel_backend
# (57014) is not among them.
_TRANSIENT = frozenset(
    {
        "53300",  # too many connections
        *("57P01", "57P02", "57P03"),  # shuts down, crashed, starts
        *("40001", "40P01", "55P03"),  # serialization failure, deadlock, lock timeout
    }
)
_LOST_CONNECTION = "08"
# An error of connecting has no code. A server that answers and refuses says FATAL, also if it is only busy.
_REFUSED = ("FATAL:", "no password supplied", "SSL was required", "certificate")
_BUSY = ("too many", "remaining connection slots", "starting up", "shutting down", "recovery mode", "not yet accepting")


@contextmanager
def open_postgres(url: URL, deadline: Deadline, reach: Reach | None, mark: str | None) -> Iterator[ReadTransaction]:
    with _connection(url, deadline.timeout_s + SOCKET_GRACE_S, deadline) as connection:
        # The parser relies on strings without backslashes.
        connection.execute(
            "BEGIN TRANSACTION READ ONLY;"
            f" SET LOCAL statement_timeout = {max(1, int(deadline.timeout_s * 1000))};"
            " SET LOCAL standard_conforming_strings = on; SET LOCAL TimeZone = 'UTC'"
        )
        with contextlib.ExitStack() as results:

            def execute(query: Query) -> Rows:
                return _execute(connection, query, mark, results)

            yield ReadTransaction("postgres", execute, deadline, reach)


def end_statements(url: URL, marks: Collection[str]) -> set[str]:
    """Ends the statements with these marks; returns the marks of which none runs now."""
    with _connection(url, ASK_TIMEOUT_S + SOCKET_GRACE_S) as connection:
        connection.execute(f"SET statement_timeout = {ASK_TIMEOUT_S * 1000}")

        def end(pid: int, asked: int) -> None:
            # A server that waits for its client to read does not hear a cancellation, only that it shall leave.
            connection.execute(f"SELECT {'pg_cancel_backend' if asked < 2 else 'pg_terminate_backend'}({pid})")

        return end_marked(set(marks), lambda: _running_statements(connection, marks), end)


def is_transient(error: BaseException) -> bool:
    code = getattr(error, "sqlstate", None)
    if code is not None:
        return code in _TRANSIENT or code.startswith(_LOST_CONNECTION)
    if not isinstance(error, _driver().OperationalError):
        return False
    said = str(error)
    return any(word in said for word in _BUSY) or not any(word in said for word in _REFUSED)


def _driver() -> Any:
    """The driver, which mypy need not know: it is not installed everywhere."""
    try:
        return importlib.import_module("psycopg")
    except ImportError:
        raise SourceError("PostgreSQL needs its driver: pip install 'platform-defs[postgres]'") from None


@contextmanager
def _connection(url: URL, limit_s: float, deadline: Deadline | None = None) -> Iterator[Any]:
    """A connection that ends after `limit_s` at the latest, also if the server says nothing more."""
    driver = _driver()
    timed_out = threading.Event()
    try:
        with closing(_connect(driver, url)) as connection:
            # A file of our own: the driver may close its one, and the number be given to another, before the limit.
            watched = socket.socket(fileno=os.dup(connection.fileno()))
            timer = threading.Timer(limit_s, _shut_down, (watched, timed_out))
            timer.daemon = True
            timer.start()
            try:
                yield connection
            finally:
                timer.cancel()
                watched.close()
    except driver.Error as error:
        if deadline is not None:
            deadline.check()
        said = f"the server did not answer within {limit_s:g} s" if timed_out.is_set() else error_text(error, url)
        raise SourceError(said, is_transient=timed_out.is_set() or is_transient(error)) from None


def _connect(driver: Any, url: URL) -> Any:
    options = {"connect_timeout": CONNECT_TIMEOUT_S, "application_name": "platform", "client_encoding": "utf8"}
    return driver.connect(
        **options | dict(url.query),
        host=url.host,
        port=url.port,
        user=url.username,
        password=url.password,
        dbname=url.database,
        autocommit=True,
        # A parameter becomes a literal, whose type PostgreSQL takes from where it stands, as in any other database.
        cursor_factory=driver.ClientCursor,
    )


def _shut_down(watched: socket.socket, timed_out: threading.Event) -> None:
    timed_out.set()
    with contextlib.suppress(OSError):
        watched.shutdown(socket.SHUT_RDWR)


def _execute(connection: Any, query: Query, mark: str | None, results: contextlib.ExitStack) -> Rows:
    cursor = connection.cursor()
    statement = cursor.mogrify(query.sql, dict(query.parameters))
    marked = statement if mark is None else f"{comment(mark)} {statement}"
    # Streaming uses the protocol by which a server takes one statement only, whatever the parser may have missed.
    rows = cursor.stream(marked, size=FETCHED_ROWS)
    # Whoever reads no further ends the query; closing the connection alone would not.
    results.enter_context(closing(rows))
    first = list(islice(rows, FETCHED_ROWS))
    columns = [column.name for column in cursor.description] if first else _columns(connection, statement)
    batches = iter(lambda: list(islice(rows, FETCHED_ROWS)), [])
    return Rows(columns, chain([first] if first else [], batches))


def _columns(connection: Any, statement: str) -> list[str]:
    """The columns of a query that gave no rows, of which streaming does not tell the columns."""
    pgconn = connection.pgconn
    pgconn.prepare(b"", statement.encode())
    described = pgconn.describe_prepared(b"")
    return [described.fname(at).decode() for at in range(described.nfields)]


def _running_statements(connection: Any, marks: Collection[str]) -> dict[int, str]:
    """The marks of statements that run now, by the process ids of their connections."""
    query = "SELECT pid, query FROM pg_stat_activity WHERE state = 'active' AND pid <> pg_backend_pid()"
    found = {}
    for pid, statement in connection.execute(query):
        found.update({int(pid): mark for mark in marks if (statement or "").startswith(comment(mark))})
    return found
