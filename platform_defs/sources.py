"""Where models read: the platform's own database or a named source, read-only, row by row and not for ever."""

import math
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import mysql.connector
from sqlalchemy import Engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import DBAPIError

from platform_defs.arrivals.errors import ModelFailed
from platform_defs.arrivals.models.model import PLATFORM_SOURCE
from platform_defs.arrivals.models.sql import Dialect, Query
from platform_defs.settings import usable_url
from platform_defs.store.engine import SQLITE_BUSY_TIMEOUT_S, open_engine

MAX_MESSAGE = 2000
FETCHED_ROWS = 1000
# the server ends a query in time; the socket only guards against a server that is gone
SOCKET_GRACE_S = 10
_SQLITE_STEPS = 10_000


@dataclass(frozen=True)
class Reading:
    """An open read-only transaction on a source."""

    dialect: Dialect
    _execute: Callable[[Query], Any]
    _deadline: "_Deadline"

    def rows(self, query: Query) -> tuple[list[str], Iterator[tuple[Any, ...]]]:
        """The names of the columns and the rows; only a batch of them is ever in memory."""
        cursor = self._execute(query)
        return [column[0] for column in cursor.description], self._fetched(cursor)

    def _fetched(self, cursor: Any) -> Iterator[tuple[Any, ...]]:
        while batch := cursor.fetchmany(FETCHED_ROWS):
            self._deadline.check()
            yield from batch


@dataclass(frozen=True)
class Sources:
    """The sources by the names that models know them by; urls are PLATFORM_SOURCE_<NAME>_URL by their <NAME>."""

    platform: Engine
    urls: Mapping[str, str]

    @contextmanager
    def reading(self, name: str, timeout_s: float) -> Iterator[Reading]:
        """One read-only transaction; what the database says against it is a ModelFailed."""
        url = self._url(name)
        deadline = _Deadline(timeout_s)
        opened = _sqlite if url.get_backend_name() == "sqlite" else _mysql
        try:
            with opened(url, deadline) as reading:
                yield reading
        except (sqlite3.Error, mysql.connector.Error, DBAPIError) as error:
            deadline.check()
            raise ModelFailed(_message(error, url)) from None

    def _url(self, name: str) -> URL:
        if name == PLATFORM_SOURCE:
            return self.platform.url
        variable = f"PLATFORM_SOURCE_{name.upper()}_URL"
        written = self.urls.get(name.upper())
        if not written:
            raise ModelFailed(f"the source {name} is not known: {variable} is not set")
        try:
            return make_url(usable_url(written))
        except ValueError as error:
            raise ModelFailed(f"{variable}: {error}") from None


class _Deadline:
    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._end = time.monotonic() + timeout_s

    def passed(self) -> bool:
        return time.monotonic() >= self._end

    def check(self) -> None:
        if self.passed():
            raise ModelFailed(f"the query did not end within {self.timeout_s:g} s")


@contextmanager
def _sqlite(url: URL, deadline: _Deadline) -> Iterator[Reading]:
    # a URI with mode=ro neither creates the file nor changes how it is kept
    address = f"file:{quote(url.database or '')}?mode=ro"
    patience = min(SQLITE_BUSY_TIMEOUT_S, deadline.timeout_s)
    with closing(sqlite3.connect(address, uri=True, timeout=patience, isolation_level=None)) as connection:
        connection.set_progress_handler(deadline.passed, _SQLITE_STEPS)
        connection.execute("PRAGMA query_only = ON")
        connection.execute("BEGIN")
        yield Reading("sqlite", lambda query: connection.execute(query.sql, query.parameters), deadline)


@contextmanager
def _mysql(url: URL, deadline: _Deadline) -> Iterator[Reading]:
    engine = open_engine(url, pool_size=2, socket_timeout=math.ceil(deadline.timeout_s) + SOCKET_GRACE_S)
    event.listen(engine, "do_connect", _do_not_buffer)
    try:
        borrowed = engine.raw_connection()
        connection: Any = borrowed.dbapi_connection
        try:
            _begin_read_only(engine, connection, deadline.timeout_s)
            yield Reading("mysql", lambda query: _streamed(connection, query), deadline)
        finally:
            if connection.unread_result:
                _stop(engine, connection.connection_id)
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
    """SQLAlchemy has the driver fetch whole results, as most are small; its own cursors still do."""
    options["buffered"] = False


def _streamed(connection: Any, query: Query) -> Any:
    cursor = connection.cursor()
    cursor.execute(query.sql, query.parameters)
    return cursor


def _stop(engine: Engine, connection_id: int) -> None:
    """Closing a connection reads what is left of its result, however long that takes, unless the query ends."""
    # where it cannot be stopped the reason for stopping it still counts
    with suppress(DBAPIError), engine.connect() as other:
        other.exec_driver_sql(f"KILL QUERY {int(connection_id)}")


def _message(error: BaseException, url: URL) -> str:
    text = " ".join(str(getattr(error, "orig", None) or error).split())
    if url.password:
        for secret in (str(url.password), quote(str(url.password), safe="")):
            text = text.replace(secret, "***")
    return text[:MAX_MESSAGE]
