"""Statements of nodes on named data sources: one transaction, which another thread can interrupt at any time."""

import math
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import mysql.connector
from sqlalchemy import Connection, CursorResult, Engine, create_engine, event
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from platform_defs.chains.nodes.port import StopSignal
from platform_defs.sources.errors import error_text
from platform_defs.sources.mysql import kill_query
from platform_defs.sources.transactions import SOCKET_GRACE_S
from platform_defs.store.engine import SQLITE_BUSY_TIMEOUT_S, Patience, open_engine

# The interrupt is repeated, because the first one may come before the server has begun the statement.
_REPEAT_S = 0.2
# How long a node without a time limit of its own waits for an answer of the server.
LONGEST_STATEMENT_S = 86_400.0
# Statements that reach files of this machine, such as the platform's own database.
_REFUSED_ACTIONS = frozenset({sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH})


class SqlFailed(Exception):
    """What the database said, in one line without the password of the source."""


@dataclass(frozen=True)
class Session:
    """An open transaction."""

    connection: Connection
    _interrupt: Callable[[], None]

    def leave(self, result: CursorResult[Any]) -> None:
        """Gives up the rest of a result, which may be longer than anybody can wait for."""
        if self.connection.dialect.name == "sqlite":
            result.close()
            return
        self._interrupt()
        with suppress(DBAPIError):
            while result.fetchmany(1000):
                pass


@contextmanager
def transaction(url: URL, stop: StopSignal, timeout_s: float | None) -> Iterator[Session]:
    """An open transaction, committed at the end of the block. The stop signal interrupts whatever it executes."""
    is_sqlite = url.get_backend_name() == "sqlite"
    engine = _sqlite_engine(url) if is_sqlite else _mysql_engine(url, timeout_s or LONGEST_STATEMENT_S)
    done = threading.Event()
    try:
        with engine.connect() as connection:
            raw: Any = connection.connection.dbapi_connection
            interrupt = raw.interrupt if is_sqlite else _killer(url, raw.connection_id)
            with stop.interrupting(lambda: _repeat(interrupt, done)):
                try:
                    with connection.begin():
                        yield Session(connection, interrupt)
                finally:
                    done.set()
    except (sqlite3.Error, mysql.connector.Error, SQLAlchemyError) as error:
        raise SqlFailed(error_text(error, url)) from None
    finally:
        done.set()
        engine.dispose()


def _repeat(interrupt: Callable[[], None], done: threading.Event) -> None:
    """In a thread of its own: whoever gives the signal must not wait for a server."""

    def work() -> None:
        while not done.is_set():
            with suppress(sqlite3.Error, SQLAlchemyError, mysql.connector.Error):
                interrupt()
            done.wait(_REPEAT_S)

    threading.Thread(target=work, name="sql interrupt", daemon=True).start()


def _killer(url: URL, connection_id: int) -> Callable[[], None]:
    def kill() -> None:
        engine = open_engine(url, pool_size=1, socket_timeout=2, patience=Patience(connect=1))
        try:
            kill_query(engine, connection_id)
        finally:
            engine.dispose()

    return kill


def _sqlite_engine(url: URL) -> Engine:
    def connect() -> sqlite3.Connection:
        # mode=rw creates no file; our own engine would also change the journal mode of somebody else's database
        address = f"file:{quote(url.database or '')}?mode=rw"
        connection = sqlite3.connect(
            address, uri=True, timeout=SQLITE_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
        )
        connection.set_authorizer(
            lambda action, *_: sqlite3.SQLITE_DENY if action in _REFUSED_ACTIONS else sqlite3.SQLITE_OK
        )
        return connection

    engine = create_engine("sqlite://", creator=connect, poolclass=NullPool)
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
    return engine


def _mysql_engine(url: URL, timeout_s: float) -> Engine:
    engine = open_engine(url, pool_size=1, socket_timeout=math.ceil(timeout_s) + SOCKET_GRACE_S)

    def connect(dialect: object, record: object, arguments: object, options: dict[str, Any]) -> None:
        options["buffered"] = False  # a result may be larger than the memory of this process
        options["allow_local_infile"] = False  # LOAD DATA LOCAL would read files of this machine

    event.listen(engine, "do_connect", connect)
    return engine
