"""What the one place that retries does with real deadlocks, lost connections, oversized packets and busy files."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from threading import Barrier

import mysql.connector
import pytest
from mysql.connector.errors import get_mysql_exception
from sqlalchemy import Connection, Engine, func, insert, select, text, update
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError

from platform_defs.store import engine as module
from platform_defs.store.engine import (
    Patience,
    is_refusal,
    is_unavailable,
    open_engine,
    read,
    server_packet_limit,
    transact,
)
from platform_defs.store.errors import PacketTooLarge, StoreUnavailable
from platform_defs.store.tables.arrivals import metrics_etl_log
from tests.waiting import PATIENCE_S

NOON = datetime(2025, 3, 1, 12, tzinfo=UTC)
log = metrics_etl_log.c
on_servers = pytest.mark.parametrize(
    "engine", [pytest.param(store, marks=pytest.mark.needs(store)) for store in ("mysql", "mariadb")], indirect=True
)


def arrive(connection: Connection, name: str) -> None:
    connection.execute(insert(metrics_etl_log).values(table_name=name, op_time="0", arrival_time=NOON))


def count(engine: Engine) -> int:
    return read(engine, lambda connection: connection.execute(select(func.count(log.id))).scalar_one())


@on_servers
def test_a_deadlock_is_tried_again_until_both_succeed(engine: Engine) -> None:
    transact(engine, lambda connection: [arrive(connection, name) for name in "ab"])
    met = Barrier(2)
    tries: list[str] = []

    def touch(order: str) -> None:
        def work(connection: Connection) -> None:
            first_try = order not in tries
            tries.append(order)
            for position, name in enumerate(order):
                connection.execute(
                    update(metrics_etl_log).where(log.table_name == name).values(op_time=log.op_time + "1")
                )
                if first_try and position == 0:
                    met.wait(timeout=PATIENCE_S)

        transact(engine, work)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(touch, ["ab", "ba"]))
    assert len(tries) == 3
    with engine.begin() as connection:
        lengths = connection.execute(select(func.length(log.op_time))).scalars().all()
    assert lengths[0] == lengths[1]


@on_servers
def test_a_connection_killed_in_mid_transaction_is_replaced_and_the_work_done_once(engine: Engine) -> None:
    tries: list[int] = []

    def work(connection: Connection) -> None:
        tries.append(connection.execute(text("SELECT CONNECTION_ID()")).scalar_one())
        arrive(connection, f"try {len(tries)}")
        if len(tries) == 1:
            with engine.begin() as other:
                other.execute(text(f"KILL {tries[0]}"))
        arrive(connection, "after")

    transact(engine, work)
    assert len(tries) == 2
    with engine.begin() as connection:
        assert set(connection.execute(select(log.table_name)).scalars()) == {"try 2", "after"}


@on_servers
def test_a_connection_killed_in_the_moment_of_its_commit_is_replaced_and_the_work_done_once(engine: Engine) -> None:
    tries: list[int] = []

    def work(connection: Connection) -> None:
        tries.append(connection.execute(text("SELECT CONNECTION_ID()")).scalar_one())
        arrive(connection, f"try {len(tries)}")
        if len(tries) == 1:
            with engine.begin() as other:
                other.execute(text(f"KILL {tries[0]}"))

    transact(engine, work)
    assert len(tries) == 2
    with engine.begin() as connection:
        assert set(connection.execute(select(log.table_name)).scalars()) == {"try 2"}


@on_servers
def test_a_statement_beyond_the_servers_packet_limit_is_refused_at_once(engine: Engine) -> None:
    limit = server_packet_limit(engine)
    assert limit is not None
    tries: list[int] = []

    def work(connection: Connection) -> None:
        tries.append(1)
        connection.execute(select(func.length("x" * (limit + 1024))))

    with pytest.raises(PacketTooLarge, match="max_allowed_packet"):
        transact(engine, work)
    assert tries == [1]
    assert count(engine) == 0


def test_a_violated_key_is_not_tried_again(engine: Engine) -> None:
    tries: list[int] = []

    def work(connection: Connection) -> None:
        tries.append(1)
        arrive(connection, "a")
        arrive(connection, "a")

    with pytest.raises(IntegrityError):
        transact(engine, work)
    assert tries == [1]
    assert count(engine) == 0


def test_many_writers_wait_for_each_other_and_none_fails(engine: Engine) -> None:
    transact(engine, lambda connection: arrive(connection, "shared"))

    def write(worker: int) -> None:
        for number in range(10):

            def work(connection: Connection, number: int = number) -> None:
                connection.execute(select(log.op_time).where(log.table_name == "shared").with_for_update()).one()
                arrive(connection, f"{worker}.{number}")
                connection.execute(update(metrics_etl_log).where(log.table_name == "shared").values(op_time="1"))

            transact(engine, work)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))
    assert count(engine) == 81


def test_a_reader_does_not_wait_for_a_writer(engine: Engine) -> None:
    with engine.begin() as writer:
        arrive(writer, "not yet committed")
        assert count(engine) == 0
    assert count(engine) == 1


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SQLITE_BUSY_TIMEOUT_S", 0.01)


@pytest.mark.usefixtures("impatient")
def test_a_file_that_stays_locked_is_an_error_after_bounded_tries(tmp_path: object) -> None:
    engine = open_engine(f"sqlite:///{tmp_path}/busy.db", patience=Patience(sqlite_busy=0.1))
    tries: list[int] = []
    with engine.begin(), pytest.raises((OperationalError, StoreUnavailable), match="locked"):
        transact(engine, lambda connection: tries.append(1), attempts=3)
    engine.dispose()
    assert tries == []


def test_a_thread_that_waits_too_long_for_another_one_is_told_that_the_file_is_locked(tmp_path: object) -> None:
    engine = open_engine(f"sqlite:///{tmp_path}/turns.db", patience=Patience(sqlite_busy=0.1))
    tries: list[int] = []

    def write_meanwhile(connection: Connection) -> None:
        with ThreadPoolExecutor(1) as pool:
            other = pool.submit(transact, engine, lambda connection: tries.append(1), attempts=2)
            with pytest.raises(StoreUnavailable, match="another thread wrote"):
                other.result()

    transact(engine, write_meanwhile)
    assert tries == []
    transact(engine, lambda connection: tries.append(1))
    engine.dispose()
    assert tries == [1]


def test_a_server_that_is_not_there_is_one_readable_line() -> None:
    engine = open_engine("mysql+mysqlconnector://root@127.0.0.1:1/none")
    with pytest.raises(StoreUnavailable, match="the database does not answer") as refused:
        read(engine, lambda connection: connection.execute(text("SELECT 1")), attempts=2)
    engine.dispose()
    assert "\n" not in str(refused.value)


@on_servers
def test_sessions_are_strict_utc_and_read_committed(engine: Engine) -> None:
    with engine.begin() as connection:
        zone, mode, isolation = connection.execute(
            text("SELECT @@session.time_zone, @@session.sql_mode, @@session.transaction_isolation")
            if not engine.dialect.is_mariadb  # type: ignore[attr-defined]
            else text("SELECT @@session.time_zone, @@session.sql_mode, @@session.tx_isolation")
        ).one()
    assert zone == "+00:00"
    assert "STRICT_TRANS_TABLES" in mode
    assert isolation == "READ-COMMITTED"


PINGS = """
    SELECT COUNT_STAR FROM performance_schema.events_statements_summary_by_thread_by_event_name
    JOIN performance_schema.threads USING (THREAD_ID)
    WHERE PROCESSLIST_ID = CONNECTION_ID() AND EVENT_NAME = 'statement/com/Ping'
"""


@pytest.mark.parametrize("engine", [pytest.param("mysql", marks=pytest.mark.needs("mysql"))], indirect=True)
def test_the_driver_asks_the_server_nothing_beside_the_statements_of_a_transaction(engine: Engine) -> None:
    def work(connection: Connection) -> tuple[int, int]:
        before = connection.execute(text(PINGS)).scalar_one()
        for _ in range(20):
            connection.execute(text("SELECT 1")).all()
        return before, connection.execute(text(PINGS)).scalar_one()

    before, after = transact(engine, work)
    assert before == after


def error_of_mysql(number: int, state: str) -> BaseException:
    """What a statement raises when MySQL answers with this error; of the driver's own errors too."""
    error = get_mysql_exception(number, "as the server says it", state)
    return DBAPIError.instance("SELECT 1", None, error, mysql.connector.Error)


@pytest.mark.parametrize(
    ("number", "state"),
    [
        *((1044, "42000"), (1045, "28000"), (1049, "42000"), (1698, "28000")),  # password, right, database
        *((1142, "42000"), (1143, "42000"), (1146, "42S02"), (1370, "42000")),  # the right to a table, or the table
        *((3118, "HY000"), (1820, "HY000"), (1862, "HY000")),  # the account is locked, its password has expired
        *((1251, "08004"), (2026, "HY000"), (2059, "HY000"), (2061, "HY000"), (3159, "HY000")),  # no way to log in
        *((1040, "08004"), (1203, "42000"), (1226, "42000"), (1135, "HY000")),  # too many connections
        *((1129, "HY000"), (1130, "HY000")),  # the host
        *((1290, "HY000"), (1792, "25006"), (1836, "HY000")),  # it only reads
        *((1021, "HY000"), (1114, "HY000")),  # its disk is full
    ],
)
def test_what_an_operator_must_mend_at_mysql_is_a_refusal_and_no_defect(number: int, state: str) -> None:
    error = error_of_mysql(number, state)
    assert is_refusal(error)
    assert is_unavailable(error)


@pytest.mark.parametrize(
    ("number", "state"), [(1205, "HY000"), (1213, "40001"), (2003, "HY000"), (2005, "HY000"), (2013, "HY000")]
)
def test_a_mysql_that_is_busy_or_away_refuses_nothing(number: int, state: str) -> None:
    error = error_of_mysql(number, state)
    assert is_unavailable(error)
    assert not is_refusal(error)


@pytest.mark.parametrize(
    ("number", "state"),
    [
        *((1064, "42000"), (1054, "42S22"), (1062, "23000"), (1406, "22001")),
        *((1364, "HY000"), (1366, "HY000"), (3819, "HY000"), (1267, "HY000")),  # MySQL says little of their kind
    ],
)
def test_a_mistake_in_a_statement_for_mysql_is_a_defect(number: int, state: str) -> None:
    assert not is_unavailable(error_of_mysql(number, state))


def test_sqlite_tells_mistakes_in_a_statement_from_a_file_that_cannot_be_used(tmp_path: Path) -> None:
    def error_of(path: Path, *statements: str) -> BaseException:
        engine = open_engine(f"sqlite:///{path}")
        try:
            with engine.connect() as connection:
                for statement in statements:
                    connection.execute(text(statement))
        except DBAPIError as error:
            return error
        finally:
            engine.dispose()
        raise AssertionError("expected an error")

    made = tmp_path / "some.db"
    mistakes = [error_of(made, "no SQL"), error_of(made, "SELECT a"), error_of(made, "SELECT 1; SELECT 2")]
    assert not any(map(is_unavailable, mistakes))
    (tmp_path / "text.db").write_text("this is no database, and long enough to be taken for one" * 10)
    refusals = [
        error_of(tmp_path / "absent" / "some.db", "SELECT 1"),
        error_of(tmp_path / "text.db", "SELECT 1"),
        error_of(made, "SELECT * FROM absent"),
        error_of(tmp_path / "full.db", "PRAGMA max_page_count = 1", "CREATE TABLE a (b)"),
    ]
    assert all(map(is_refusal, refusals))
