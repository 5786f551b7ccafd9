"""Named data sources: read-only queries with a time limit on the platform's own database or on another one.

SourceError (a PlatformError) is raised for an unknown source and for whatever its database says against a query.
"""

import math
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote

import mysql.connector
from sqlalchemy import Connection, Engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import DBAPIError

from platform_defs.errors import PlatformError, driver_error
from platform_defs.settings import normalize_database_url
from platform_defs.source_reach import HIDDEN, Reach, authorize_sqlite
from platform_defs.store.engine import open_engine

# the name of the platform's own database; every other name reads PLATFORM_SOURCE_<NAME>_URL
PLATFORM_SOURCE = "platform"
MAX_MESSAGE = 2000
FETCHED_ROWS = 1000
# The server ends a query in time; the socket's timeout, which is this much longer, is for a server that is gone.
SOCKET_GRACE_S = 10
ASK_TIMEOUT_S = 10
# How long a query waits for a SQLite file that somebody writes. After that its execution leaves its slot to others.
BUSY_TIMEOUT_S = 5
# Pauses while a statement that was told to end does so.
END_PAUSES_S = (0.05, 0.2, 0.5, 1.0)
# What MySQL and MariaDB say while they are down, overloaded or busy. A timeout (3024, 1969) and the end of a query by
# KILL (1317) are not among them.
_TRANSIENT = frozenset(
    {
        *(1040, 1203, 1226),  # too many connections, of all users or of this one
        *(1053, 1077, 1079, 1152, 1158, 1159, 1160, 1161, 1184, 1927, 3169),  # shuts down, or lost the connection
        *(1205, 1213),  # lock timeout, deadlock
        *(2002, 2003, 2005, 2006, 2013, 2055),  # refused, or lost on our side
    }
)
_RESOURCE = "source:"
# instructions of SQLite's virtual machine between two looks at the clock
_SQLITE_STEPS = 10_000

Dialect = Literal["mysql", "sqlite"]


class SourceError(PlatformError):
    """A source is not known or refused a query; the message is one line without the password of the source.

    `is_transient`: the source is down, overloaded or busy, so that the same query may succeed later.
    """

    def __init__(self, message: str, *, is_transient: bool = False) -> None:
        super().__init__(message)
        self.is_transient = is_transient


def source_resource(name: str | None) -> str:
    """The resource of rows of work that query this source, of which only so many run at a time."""
    return f"{_RESOURCE}{name or PLATFORM_SOURCE}"[:64]


def source_of_resource(resource: str) -> str:
    """The source of such a resource; of any other resource its own name."""
    return resource.removeprefix(_RESOURCE)


@dataclass(frozen=True)
class Query:
    """SQL as the driver takes it: a parameter is `:name` for SQLite and `%(name)s` for MySQL."""

    sql: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True)
class ReadTransaction:
    """An open read-only transaction on a source."""

    dialect: Dialect
    _execute: Callable[[Query], Any]
    _deadline: "_Deadline"
    # what the queries may read; None means whatever the source lets them
    reach: Reach | None = None

    def rows(self, query: Query) -> tuple[list[str], Iterator[tuple[Any, ...]]]:
        """The names of the columns, and the rows; at most a batch of rows is in memory."""
        cursor = self._execute(query)
        return [column[0] for column in cursor.description], self._fetch(cursor)

    def _fetch(self, cursor: Any) -> Iterator[tuple[Any, ...]]:
        while batch := cursor.fetchmany(FETCHED_ROWS):
            self._deadline.check()
            yield from batch


@dataclass(frozen=True)
class Sources:
    """Sources by name; `urls` has the values of PLATFORM_SOURCE_<NAME>_URL by <NAME>."""

    platform: Engine
    urls: Mapping[str, str]
    # further tables of the platform's database that models must not read
    hidden: frozenset[str] = frozenset()

    @contextmanager
    def read_transaction(self, name: str, timeout_s: float, mark: str | None = None) -> Iterator[ReadTransaction]:
        """One read-only transaction, in which all queries together may take `timeout_s`.

        Its queries begin with a comment that has the `mark`, by which end_statements() finds them.
        """
        url = self.url(name)
        deadline = _Deadline(timeout_s)
        open_source = _open_sqlite if url.get_backend_name() == "sqlite" else _open_mysql
        try:
            with open_source(url, deadline, self._reach(name), mark) as transaction:
                yield transaction
        except (sqlite3.Error, mysql.connector.Error, DBAPIError) as error:
            deadline.check()
            if _is_interrupt(error):
                raise KeyboardInterrupt from None
            raise SourceError(error_text(error, url), is_transient=_is_transient(error)) from None

    def ask(self, name: str) -> None:
        """Raises SourceError if the source does not answer."""
        with self.read_transaction(name, ASK_TIMEOUT_S) as transaction:
            list(transaction.rows(Query("SELECT 1", {}))[1])

    def end_statements(self, name: str, marks: Collection[str]) -> set[str]:
        """Ends the statements with these marks, whichever process sent them; returns the marks of which none runs now.

        The server does not notice that the client of a statement has died. A statement on SQLite ends with its process.
        """
        url = self.url(name)
        if url.get_backend_name() == "sqlite":
            return set(marks)
        engine = open_engine(url, pool_size=1, socket_timeout=ASK_TIMEOUT_S)
        try:
            with engine.connect() as connection:
                for pause in END_PAUSES_S:
                    running = _running_statements(connection, marks)
                    if not running:
                        break
                    for connection_id in running:
                        # one that has ended meanwhile is no error
                        with suppress(DBAPIError):
                            connection.exec_driver_sql(f"KILL QUERY {connection_id}")
                    time.sleep(pause)
                return set(marks) - set(_running_statements(connection, marks).values())
        except DBAPIError as error:
            raise SourceError(error_text(error, url), is_transient=_is_transient(error)) from None
        finally:
            engine.dispose()

    def _reach(self, name: str) -> Reach | None:
        if name != PLATFORM_SOURCE:
            return None
        schema = "main" if self.platform.dialect.name == "sqlite" else str(self.platform.url.database)
        return Reach(schema, HIDDEN | self.hidden)

    def url(self, name: str) -> URL:
        """Where the source is; raises SourceError if no variable names it."""
        if name == PLATFORM_SOURCE:
            return self.platform.url
        variable = f"PLATFORM_SOURCE_{name.upper()}_URL"
        written = self.urls.get(name.upper())
        if not written:
            raise SourceError(f"the source {name} is not known: {variable} is not set")
        try:
            return make_url(normalize_database_url(written))
        except ValueError as error:
            raise SourceError(f"{variable}: {error}") from None


class _Deadline:
    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._end = time.monotonic() + timeout_s

    def passed(self) -> bool:
        return time.monotonic() >= self._end

    def check(self) -> None:
        if self.passed():
            raise SourceError(f"the query did not end within {self.timeout_s:g} s")


@contextmanager
def _open_sqlite(url: URL, deadline: _Deadline, reach: Reach | None, mark: str | None) -> Iterator[ReadTransaction]:
    # mode=ro neither creates the file nor changes its journal mode
    address = f"file:{quote(url.database or '')}?mode=ro"
    busy_timeout = min(BUSY_TIMEOUT_S, deadline.timeout_s / 2)
    with closing(sqlite3.connect(address, uri=True, timeout=busy_timeout, isolation_level=None)) as connection:
        connection.set_progress_handler(deadline.passed, _SQLITE_STEPS)
        connection.execute("PRAGMA query_only = ON")
        connection.execute("BEGIN")
        connection.set_authorizer(authorize_sqlite(reach))
        execute = lambda query: connection.execute(query.sql, query.parameters)  # noqa: E731
        yield ReadTransaction("sqlite", execute, deadline, reach)


@contextmanager
def _open_mysql(url: URL, deadline: _Deadline, reach: Reach | None, mark: str | None) -> Iterator[ReadTransaction]:
    engine = open_engine(url, pool_size=2, socket_timeout=math.ceil(deadline.timeout_s) + SOCKET_GRACE_S)
    event.listen(engine, "do_connect", _do_not_buffer)
    try:
        borrowed = engine.raw_connection()
        connection: Any = borrowed.dbapi_connection
        try:
            _begin_read_only(engine, connection, deadline.timeout_s)
            yield ReadTransaction("mysql", lambda query: _execute_unbuffered(connection, query, mark), deadline, reach)
        finally:
            if connection.unread_result:
                kill_query(engine, connection.connection_id)
            borrowed.invalidate()
    finally:
        engine.dispose()


def _begin_read_only(engine: Engine, connection: Any, timeout_s: float) -> None:
    if getattr(engine.dialect, "is_mariadb", False):
        limit = f"max_statement_time = {timeout_s:.3f}"
    else:
        limit = f"max_execution_time = {max(1, int(timeout_s * 1000))}"
    with closing(connection.cursor()) as cursor:
        cursor.execute(f"SET SESSION {limit}")
        cursor.execute("START TRANSACTION READ ONLY")


def _do_not_buffer(dialect: object, record: object, arguments: object, options: dict[str, Any]) -> None:
    """Our engine has the driver fetch whole results, which a source's may be too large for."""
    options["buffered"] = False


def _execute_unbuffered(connection: Any, query: Query, mark: str | None) -> Any:
    cursor = connection.cursor()
    cursor.execute(query.sql if mark is None else f"{_comment(mark)} {query.sql}", query.parameters)
    return cursor


def _comment(mark: str) -> str:
    return f"/* {mark} */"


def _running_statements(connection: Connection, marks: Collection[str]) -> dict[int, str]:
    """The marks of statements that run now, by the ids of their connections."""
    found = {}
    for row in connection.exec_driver_sql("SHOW FULL PROCESSLIST").mappings():
        statement = row["Info"] or ""
        statement = statement.decode(errors="replace") if isinstance(statement, bytes) else statement
        found.update({int(row["Id"]): mark for mark in marks if statement.startswith(_comment(mark))})
    return found


def kill_query(engine: Engine, connection_id: int) -> None:
    """Ends the query, since closing a connection would read the rest of its result, however long that takes."""
    # a KILL that fails must not hide the error because of which the query is ended
    with suppress(DBAPIError), engine.connect() as other:
        other.exec_driver_sql(f"KILL QUERY {int(connection_id)}")


def _is_interrupt(error: Exception) -> bool:
    """Whether a signal handler raised an error while SQLite looked at the clock: SQLite hides that error."""
    return isinstance(error, sqlite3.OperationalError) and str(error) == "interrupted"


def _is_transient(error: Exception) -> bool:
    cause = driver_error(error)
    if isinstance(cause, sqlite3.OperationalError):
        return "locked" in str(cause) or "busy" in str(cause)
    return getattr(cause, "errno", None) in _TRANSIENT


def error_text(error: BaseException, url: URL) -> str:
    """What the database said, in one line without the password of the source."""
    text = " ".join(str(driver_error(error)).split())
    if url.password:
        for secret in (str(url.password), quote(str(url.password), safe="")):
            text = text.replace(secret, "***")
    return text[:MAX_MESSAGE]
