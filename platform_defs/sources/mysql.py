"""MySQL and MariaDB as sources."""

import math
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

from sqlalchemy import Connection, Engine, event
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError

from platform_defs.sources.reach import Reach
from platform_defs.sources.transactions import (
    ASK_TIMEOUT_S,
    SOCKET_GRACE_S,
    Deadline,
    Query,
    ReadTransaction,
    Rows,
    comment,
    end_marked,
    rows_of_cursor,
)
from platform_defs.store.engine import MYSQL_CONTENTION, MYSQL_CROWDED, MYSQL_LOST, open_engine

# A timeout (3024, 1969) and the end of a query by KILL (1317) are not among them.
_TRANSIENT = MYSQL_CROWDED | MYSQL_LOST | MYSQL_CONTENTION


@contextmanager
def open_mysql(url: URL, deadline: Deadline, reach: Reach | None, mark: str | None) -> Iterator[ReadTransaction]:
    engine = open_engine(url, pool_size=2, socket_timeout=math.ceil(deadline.timeout_s) + SOCKET_GRACE_S)
    event.listen(engine, "do_connect", _do_not_buffer)
    try:
        borrowed = engine.raw_connection()
        connection: Any = borrowed.dbapi_connection
        try:
            _begin_read_only(engine, connection, deadline.timeout_s)
            yield ReadTransaction("mysql", lambda query: _execute(connection, query, mark), deadline, reach)
        finally:
            if connection.unread_result:
                kill_query(engine, connection.connection_id)
            borrowed.invalidate()
    finally:
        engine.dispose()


def end_statements(url: URL, marks: Collection[str]) -> set[str]:
    """Ends the statements with these marks; returns the marks of which none runs now."""
    engine = open_engine(url, pool_size=1, socket_timeout=ASK_TIMEOUT_S)
    try:
        with engine.connect() as connection:

            def end(connection_id: int, asked: int) -> None:
                # one that has ended meanwhile is no error
                with suppress(DBAPIError):
                    connection.exec_driver_sql(f"KILL QUERY {connection_id}")

            return end_marked(set(marks), lambda: _running_statements(connection, marks), end)
    finally:
        engine.dispose()


def kill_query(engine: Engine, connection_id: int) -> None:
    """Ends the query, since closing a connection would read the rest of its result, however long that takes."""
    # a KILL that fails must not hide the error because of which the query is ended
    with suppress(DBAPIError), engine.connect() as other:
        other.exec_driver_sql(f"KILL QUERY {int(connection_id)}")


def is_transient(error: BaseException) -> bool:
    return getattr(error, "errno", None) in _TRANSIENT


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


def _execute(connection: Any, query: Query, mark: str | None) -> Rows:
    cursor = connection.cursor()
    cursor.execute(query.sql if mark is None else f"{comment(mark)} {query.sql}", query.parameters)
    return rows_of_cursor(cursor)


def _running_statements(connection: Connection, marks: Collection[str]) -> dict[int, str]:
    """The marks of statements that run now, by the ids of their connections."""
    found = {}
    for row in connection.exec_driver_sql("SHOW FULL PROCESSLIST").mappings():
        statement = row["Info"] or ""
        statement = statement.decode(errors="replace") if isinstance(statement, bytes) else statement
        found.update({int(row["Id"]): mark for mark in marks if statement.startswith(comment(mark))})
    return found
