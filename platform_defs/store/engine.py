"""Opens the database with the settings that the platform relies on, and runs transactions with retries."""

import json
import random
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import URL, ExceptionContext, make_url
from sqlalchemy.exc import DatabaseError, DataError, DBAPIError, IntegrityError, ProgrammingError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from platform_defs.errors import one_line
from platform_defs.store.driver import MYSQL_PACKET_TOO_LARGE, execute
from platform_defs.store.errors import PacketTooLarge, StoreUnavailable
from platform_defs.store.mysql_driver import prepare_driver
from platform_defs.store.sqlite_turns import turn
from platform_defs.store.types import JsonText

T = TypeVar("T")

CONNECT_TIMEOUT_S = 5
SOCKET_TIMEOUT_S = 60
POOL_TIMEOUT_S = 10
SQLITE_BUSY_TIMEOUT_S = 30
ATTEMPTS = 5
SQL_MODE = "STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ZERO_DATE,NO_ZERO_IN_DATE,NO_ENGINE_SUBSTITUTION"

# What MySQL and MariaDB say while they are busy, while they are away, and while they have no room for a connection.
MYSQL_CONTENTION = frozenset({1205, 1213})  # lock wait timeout, deadlock
MYSQL_LOST = frozenset(
    {
        *(1053, 1077, 1079, 1152, 1158, 1159, 1160, 1161, 1184, 1927, 3169),  # shuts down, or lost the connection
        *(2002, 2003, 2005, 2006, 2013, 2055),  # refused, or lost on our side
    }
)
MYSQL_CROWDED = frozenset({1040, 1203, 1226})  # too many connections, of all users or of this one
# What the driver calls an error of the statement, although an operator must mend something: the password or a right is
# wrong, the database or a table is not there, the session may only read. Those above 2000 are of the driver itself: it
# cannot agree with the server on TLS or on a way to log in, as with a changed password on a connection without TLS.
_MYSQL_REFUSES = MYSQL_CROWDED | {1044, 1045, 1049, 1142, 1143, 1146, 1370, 1698, 1792, 2026, 2059, 2061}
# What is an error of the statement or of a value in it, although MySQL calls it a general error: collations that do not
# match, text in another encoding, no value or a wrong one for a column, a constraint that is not kept.
_MYSQL_MISTAKES = {1093, 1267, 1270, 1271, 1300, 1364, 1366, 1390, 1411, 3819, 3988}
_READ_ONLY = "platform_read_only"
_AUTOCOMMIT = "platform_autocommit"
_SQLITE_BUSY = "platform_sqlite_busy"


@dataclass(frozen=True)
class Patience:
    """How many seconds to wait for the database; code that must answer a client soon waits less."""

    connect: int = CONNECT_TIMEOUT_S
    pool: float = POOL_TIMEOUT_S
    sqlite_busy: float = SQLITE_BUSY_TIMEOUT_S


def open_engine(
    url: URL | str,
    *,
    pool_size: int = 10,
    socket_timeout: int | None = SOCKET_TIMEOUT_S,
    patience: Patience = Patience(),  # noqa: B008  # frozen
    autocommit: bool = False,
    survives_power_loss: bool = True,
) -> Engine:
    """An engine with the settings the platform relies on; it connects on first use.

    socket_timeout bounds one statement; only a migration, which may rebuild a large table, goes without. autocommit
    makes each statement its own transaction on a server: what is locked is then never held by a client that hangs.
    On SQLite, rows that need not survive a power loss need not wait for the disk; they survive kill -9 all the same.
    """
    url = make_url(url)
    if url.get_backend_name() == "sqlite":
        return _open_sqlite(url, pool_size, patience, "FULL" if survives_power_loss else "NORMAL")
    return _open_mysql(url, pool_size, socket_timeout, patience, autocommit)


def transact(engine: Engine, work: Callable[[Connection], T], *, attempts: int = ATTEMPTS) -> T:
    """Runs work in one transaction. After a deadlock or a lost connection it runs again, so it must be idempotent."""
    return _attempt(engine, work, attempts, lambda: _begun(engine))


def read(engine: Engine, work: Callable[[Connection], T], *, attempts: int = ATTEMPTS) -> T:
    """Runs work that only reads, with the same retries; on SQLite it does not wait for writers."""
    return _attempt(engine, work, attempts, engine.execution_options(**{_READ_ONLY: True}).begin)


def transact_by_driver(engine: Engine, work: Callable[[Connection], T], *, attempts: int = ATTEMPTS) -> T:
    """Like `transact`, for work that consists of statements of store/driver.py: the driver begins and commits too."""
    return _attempt(engine, work, attempts, lambda: _begun_by_driver(engine))


@contextmanager
def _begun(engine: Engine) -> Iterator[Connection]:
    with engine.connect() as connection, _turn(engine), connection.begin():
        yield connection


@contextmanager
def _begun_by_driver(engine: Engine) -> Iterator[Connection]:
    """After an error the pool rolls back what was not committed."""
    with engine.connect() as connection, _turn(engine):
        if engine.dialect.name == "sqlite":
            execute(connection, "BEGIN IMMEDIATE")
        yield connection
        if not engine.get_execution_options().get(_AUTOCOMMIT):
            execute(connection, "COMMIT")


def _turn(engine: Engine) -> AbstractContextManager[None]:
    """The wait of this thread for the writers before it; on a server everybody writes at once."""
    file = engine.url.database
    if not has_one_writer(engine) or file in (None, "", ":memory:"):
        return nullcontext()
    return turn(str(file), engine.get_execution_options().get(_SQLITE_BUSY, SQLITE_BUSY_TIMEOUT_S))


def has_one_writer(engine: Engine) -> bool:
    """Whether a transaction that writes has waited for all earlier ones, and so sees everything they wrote."""
    return engine.dialect.name == "sqlite"


def server_packet_limit(engine: Engine) -> int | None:
    """The server's max_allowed_packet in bytes; None on SQLite, which has no such limit."""
    if engine.dialect.name == "sqlite":
        return None
    return read(engine, lambda connection: int(connection.execute(text("SELECT @@max_allowed_packet")).scalar_one()))


def is_transient(error: BaseException) -> bool:
    """Whether running the same transaction again may succeed."""
    if isinstance(error, PoolTimeout):
        return True
    if not isinstance(error, DBAPIError) or _is_packet_too_large(error):
        return False
    if isinstance(error.orig, sqlite3.OperationalError):
        return "locked" in str(error.orig) or "busy" in str(error.orig)
    return error.connection_invalidated or _errno(error) in MYSQL_CONTENTION | MYSQL_LOST


def is_unavailable(error: BaseException) -> bool:
    """Whether the database is the reason and not the statement: once it is mended, the same statement succeeds.

    It does not answer, is busy, or refuses (`is_refusal`). The caller is asked to try again, and not told of a defect.
    """
    return isinstance(error, StoreUnavailable) or is_transient(error) or is_refusal(error)


def is_refusal(error: BaseException) -> bool:
    """Whether the database answers, but does not do what it should until somebody mends a password, a right, a disk, …

    MySQL has too many such errors to list them: what is listed are those that the driver takes for others.
    """
    if not isinstance(error, DBAPIError) or is_transient(error):
        return False
    if _errno(error) in _MYSQL_REFUSES:
        return True
    if isinstance(error, DataError | IntegrityError | ProgrammingError) or _is_mistake(error):
        return False
    return isinstance(error, DatabaseError)


def _attempt(
    engine: Engine,
    work: Callable[[Connection], T],
    attempts: int,
    begin: Callable[[], AbstractContextManager[Connection]],
) -> T:
    for attempt in range(1, attempts + 1):
        try:
            with begin() as connection:
                return work(connection)
        except (DBAPIError, PoolTimeout) as error:
            _raise_if_too_large(engine, error)
            if not is_transient(error):
                raise
            if attempt == attempts:
                if _is_lost(error):
                    raise StoreUnavailable(f"the database does not answer: {one_line(error)}") from error
                raise
        # random, so that two transactions that deadlocked do not meet again
        time.sleep(random.uniform(0.5, 1.0) * 0.02 * 2**attempt)
    raise AssertionError("unreachable: attempts is at least 1")


def _is_lost(error: DBAPIError | PoolTimeout) -> bool:
    """Whether a transient error means that the database does not answer; else another transaction is in the way."""
    return not isinstance(error, DBAPIError) or _errno(error) not in MYSQL_CONTENTION


def _errno(error: DBAPIError) -> int | None:
    number = getattr(error.orig, "errno", None)
    return number if isinstance(number, int) else None


def _is_mistake(error: DBAPIError) -> bool:
    """Whether a general error of the server is one of the statement. A table that is not there is none, as on MySQL."""
    if getattr(error.orig, "sqlite_errorcode", None) == sqlite3.SQLITE_ERROR:
        return "no such table" not in str(error.orig)
    return _is_packet_too_large(error) or _errno(error) in _MYSQL_MISTAKES


def _is_packet_too_large(error: DBAPIError) -> bool:
    return _errno(error) in MYSQL_PACKET_TOO_LARGE


def _raise_if_too_large(engine: Engine, error: DBAPIError | PoolTimeout) -> None:
    """MySQL often closes the connection on a large packet, which would otherwise look like a lost connection."""
    if not isinstance(error, DBAPIError) or engine.dialect.name == "sqlite":
        return
    if _is_packet_too_large(error):
        raise PacketTooLarge(f"a statement exceeds the server's max_allowed_packet: {one_line(error)}") from error
    limit = engine.dialect.__dict__.get("platform_packet_limit")
    if limit and _errno(error) in MYSQL_LOST and _count_bytes(error.params) + len(error.statement or "") > limit:
        raise PacketTooLarge(f"a statement exceeds the server's max_allowed_packet of {limit} bytes") from error


def _count_bytes(params: Any) -> int:
    if isinstance(params, str | bytes):
        return len(params)
    if isinstance(params, Mapping):
        return sum(_count_bytes(value) for value in params.values())
    if isinstance(params, Iterable):
        return sum(_count_bytes(value) for value in params)
    return 8


# made once: json.dumps would make an encoder for each value
_encode_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


def dump_json(value: Any) -> str:
    """The text of a Json column."""
    return value.text if isinstance(value, JsonText) else _encode_json(value)


def _open_sqlite(url: URL, pool_size: int, patience: Patience, synchronous: str) -> Engine:
    engine = create_engine(
        url,
        execution_options={_SQLITE_BUSY: patience.sqlite_busy},
        connect_args={"timeout": patience.sqlite_busy, "check_same_thread": False},
        json_serializer=dump_json,
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=patience.pool,
    )

    @event.listens_for(engine, "connect")
    def prepare(connection: sqlite3.Connection, record: object) -> None:
        # the driver's own BEGIN is deferred: two transactions that read and then write would fail instead of waiting
        connection.isolation_level = None
        _switch_to_wal(connection)
        for pragma in (f"synchronous={synchronous}", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}").close()

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        read_only = connection.get_execution_options().get(_READ_ONLY, False)
        execute(connection, "BEGIN" if read_only else "BEGIN IMMEDIATE")

    return engine


def _switch_to_wal(connection: sqlite3.Connection) -> None:
    """Retries, because this pragma ignores the busy timeout: two processes that open a new file would collide."""
    deadline = time.monotonic() + SQLITE_BUSY_TIMEOUT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL").close()
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
        time.sleep(random.uniform(0.005, 0.02))


def _open_mysql(url: URL, pool_size: int, socket_timeout: int | None, patience: Patience, autocommit: bool) -> Engine:
    prepare_driver()
    engine = create_engine(
        url,
        isolation_level="AUTOCOMMIT" if autocommit else "READ COMMITTED",
        execution_options={_AUTOCOMMIT: autocommit},
        # where each statement commits by itself there is nothing to roll back, and a round trip to spare
        pool_reset_on_return=None if autocommit else "rollback",
        paramstyle="format",  # the driver fills positions twice as fast as names
        connect_args={
            "connection_timeout": patience.connect,
            "read_timeout": socket_timeout,
            "write_timeout": socket_timeout,
            "time_zone": "+00:00",
            "sql_mode": SQL_MODE,
            # the driver's default collation is unknown to MariaDB; this one exists on both
            "charset": "utf8mb4",
            "collation": "utf8mb4_bin",
        },
        json_serializer=dump_json,
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=patience.pool,
        pool_recycle=1800,
        pool_pre_ping=True,
    )

    @event.listens_for(engine, "connect")
    def remember_limit(connection: Any, record: object) -> None:
        if "platform_packet_limit" not in engine.dialect.__dict__:
            cursor = connection.cursor()
            cursor.execute("SELECT @@max_allowed_packet")
            engine.dialect.platform_packet_limit = int(cursor.fetchone()[0])  # type: ignore[attr-defined]
            cursor.close()

    @event.listens_for(engine, "handle_error")
    def drop_connection(context: ExceptionContext) -> None:
        # the server closes the connection after this answer: a ROLLBACK on it would fail and hide the reason
        if getattr(context.original_exception, "errno", None) in MYSQL_PACKET_TOO_LARGE:
            context.is_disconnect = True
            context.invalidate_pool_on_disconnect = False

    return engine
