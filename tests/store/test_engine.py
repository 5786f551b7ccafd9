"""What the one place that retries does with real deadlocks, lost connections, oversized packets and busy files."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from threading import Barrier

import pytest
from sqlalchemy import Connection, Engine, func, insert, select, text, update
from sqlalchemy.exc import IntegrityError, OperationalError

from platform_defs.store import engine as module
from platform_defs.store.engine import Patience, open_engine, read, server_packet_limit, transact
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
