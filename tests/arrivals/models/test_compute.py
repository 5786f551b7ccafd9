"""Computing a model on a real source: counts and values, failures and their messages, and the memory it takes."""

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from dagster._core.storage.event_log.schema import SqlEventLogStorageMetadata
from dagster._core.storage.runs.schema import RunStorageSqlMetadata
from dagster._core.storage.schedules.schema import ScheduleStorageSqlMetadata
from sqlalchemy import Engine, event, text
from sqlalchemy.engine import URL

from platform_defs.arrivals.errors import ModelFailed
from platform_defs.arrivals.models.compute import Counts
from platform_defs.arrivals.models.model import Kpi
from platform_defs.canonical import canonical_hash
from platform_defs.sources.errors import SourceError
from platform_defs.sources.named import Sources
from platform_defs.sources.reach import DAGSTER_TABLES
from platform_defs.sources.transactions import Deadline, Query
from platform_defs.store.engine import open_engine, read
from platform_defs.store.exact_numbers import decimal_text
from platform_defs.store.tables.arrivals import metrics_kpi_value
from tests.arrivals.models.making import AMOUNT, BATCH, ORDERS, compute_model, model, run_statements, stored_values
from tests.conftest import STORES, needs, server_url

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def orders(engine: Engine) -> Iterator[Engine]:
    """A table of orders: two regions in batch 20251219, one of them without an amount, and one region in 20251220."""
    run_statements(
        engine,
        "CREATE TABLE orders (region VARCHAR(20), amount DECIMAL(10, 2), op_time VARCHAR(20))",
        "INSERT INTO orders VALUES ('north', 10.50, '20251219'), ('north', 2, '20251219'),"
        " ('south', NULL, '20251219'), ('north', 7, '20251220')",
    )
    yield engine
    run_statements(engine, "DROP TABLE orders")


@pytest.fixture
def numbers(engine: Engine) -> Iterator[Engine]:
    """A table of 55 rows: the product of three copies has 166,000 rows."""
    run_statements(engine, "CREATE TABLE numbers (n INT)")
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO numbers VALUES (:n)"), [{"n": n} for n in range(55)])
    yield engine
    run_statements(engine, "DROP TABLE numbers")


def test_rows_and_values_are_counted_and_stored_once_per_batch(orders: Engine) -> None:
    assert compute_model(orders, model()) == Counts(computed=2, stored=3)
    assert stored_values(orders) == [
        ("KD1001", {"region": "north"}, 12.5),
        ("KD1002", {"region": "north"}, 2),
        ("KD1002", {"region": "south"}, 1),
    ]
    assert compute_model(orders, model(), "20251220") == Counts(1, 2)
    run_statements(
        orders, "DELETE FROM orders WHERE region = 'north'", "INSERT INTO orders VALUES ('west', 1, '20251219')"
    )
    assert compute_model(orders, model(kpis=[AMOUNT])) == Counts(2, 1)
    assert stored_values(orders) == [("KD1001", {"region": "west"}, 1)], (
        "a re-run replaces, KPIs that are gone included"
    )
    assert len(stored_values(orders, "20251220")) == 2, "another batch is not touched"


def test_a_kpi_that_moved_to_another_model_has_one_set_of_values(orders: Engine) -> None:
    compute_model(orders, model(model_id="MODEL-OLD"))
    run_statements(orders, "UPDATE orders SET region = 'west' WHERE region = 'north'")
    assert compute_model(orders, model(kpis=[AMOUNT])) == Counts(2, 1)
    assert stored_values(orders) == [
        ("KD1001", {"region": "west"}, 12.5),
        ("KD1002", {"region": "north"}, 2),
        ("KD1002", {"region": "south"}, 1),
    ]


def test_a_reader_sees_the_old_values_until_all_new_ones_are_there(orders: Engine) -> None:
    compute_model(orders, model())
    before = stored_values(orders)
    run_statements(orders, "DELETE FROM orders WHERE region = 'south'", "UPDATE orders SET region = 'west'")
    seen = []

    def look(connection: object, cursor: object, statement: str, *others: object) -> None:
        if statement.startswith(("DELETE FROM metrics_kpi_value", "INSERT INTO metrics_kpi_value")):
            seen.append(stored_values(orders))

    event.listen(orders, "after_cursor_execute", look)
    try:
        compute_model(orders, model())
    finally:
        event.remove(orders, "after_cursor_execute", look)
    assert len(seen) >= 2
    assert all(values == before for values in seen)
    assert stored_values(orders) == [("KD1001", {"region": "west"}, 12.5), ("KD1002", {"region": "west"}, 2)]


def test_the_query_is_sent_as_it_is_written_and_the_batch_is_bound(orders: Engine) -> None:
    sql = (
        "SELECT ${kpis} FROM orders -- 100%(of) :them\n"
        " WHERE region LIKE 'n%' AND '12:30' <> ':op_time' AND '%s' <> '%(op_time)s' AND 5 %(3)%(2) = 0 AND"
        " (op_time = '${op_time}' OR op_time = ${op_time})"
    )
    assert compute_model(orders, model(sql, dimensions=[]), "' OR 1=1 -- ") == Counts(1, 1)
    assert stored_values(orders, "' OR 1=1 -- ") == [("KD1002", {}, 0)]
    assert compute_model(orders, model(sql, dimensions=[])) == Counts(1, 2)
    assert stored_values(orders) == [("KD1001", {}, 12.5), ("KD1002", {}, 2)]


def test_a_placeholder_in_a_tables_name_is_read_as_the_batch_has_it(orders: Engine) -> None:
    run_statements(orders, "CREATE TABLE orders_20251219 AS SELECT * FROM orders WHERE region = 'south'")
    sql = "SELECT orders_yyyymmdd.region, ${kpis} FROM orders_yyyymmdd GROUP BY orders_yyyymmdd.region"
    by_batch = model(sql, depends_on=["orders_yyyymmdd"])
    try:
        assert compute_model(orders, by_batch) == Counts(1, 1)
        with pytest.raises(ModelFailed, match="orders_20251220"):
            compute_model(orders, by_batch, "20251220")
    finally:
        run_statements(orders, "DROP TABLE orders_20251219")


def test_dimensions_are_stored_as_json_by_their_canonical_hash(orders: Engine) -> None:
    run_statements(
        orders, "CREATE TABLE facts (day DATE, price DECIMAL(8, 2), n INT, missing INT, 名称 VARCHAR(9), amount INT)"
    )
    run_statements(orders, "INSERT INTO facts VALUES ('2025-12-19', 1.50, 3, NULL, '北', 4)")
    names = ["day", "price", "n", "missing", "名称"]
    try:
        compute_model(
            orders, model("SELECT facts.*, ${kpis} FROM facts GROUP BY ${dimGroup}, amount", dimensions=names)
        )
        [(_, dims, _), _] = stored_values(orders)
        # SQLite has no types for dates and exact decimals, and returns the stored text and float.
        price = 1.5 if orders.dialect.name == "sqlite" else "1.50"
        assert dims == {"day": "2025-12-19", "price": price, "n": 3, "missing": None, "名称": "北"}
        hashes = read(
            orders,
            lambda connection: set(
                connection.scalars(metrics_kpi_value.select().with_only_columns(metrics_kpi_value.c.dims_hash))
            ),
        )
        assert hashes == {canonical_hash(dims)}
    finally:
        run_statements(orders, "DROP TABLE facts")


@pytest.mark.parametrize(
    ("sql", "kpis", "expected"),
    [
        ("SELECT ${dimGroup}, ${kpis} FROM nowhere GROUP BY region", [ORDERS], "nowhere"),
        ("SELECT ${dimGroup}, ${kpis} FROM orders GROUP BY region, amount", [ORDERS], '{"region":"north"}'),
        ("SELECT ${dimGroup}, ${kpis} FROM orders GROUP BY region", [Kpi("KT", "", "MAX(region)")], "KT of {"),
        ("SELECT * FROM orders", [AMOUNT], "no columns KD1001"),
        ("SELECT ${kpis}, o.* FROM orders o WHERE 1 = 0", [Kpi("region", "", "1")], "2 columns region"),
        ("SELECT ${dimGroup}, ${kpis} FROM orders FOR UPDATE", [ORDERS], "a locking clause"),
    ],
)
def test_what_fails_leaves_the_old_values_and_says_why(
    orders: Engine, sql: str, kpis: list[Kpi], expected: str
) -> None:
    compute_model(orders, model())
    before = stored_values(orders)
    with pytest.raises(ModelFailed) as caught:
        compute_model(orders, model(sql, kpis=kpis))
    assert expected in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) <= 2000
    assert stored_values(orders) == before


def test_a_number_that_no_double_holds_is_a_failure(engine: Engine) -> None:
    sql = "SELECT ${kpis}"
    with pytest.raises(ModelFailed, match=r"out of range|K of the whole batch is no number: 'inf'"):
        compute_model(engine, model(sql, dimensions=[], kpis=[Kpi("K", "", "1e308 * 10")]))
    assert compute_model(engine, model(sql, dimensions=[], kpis=[Kpi("K", "", "1 = 1")])) == Counts(1, 1)
    assert stored_values(engine) == [("K", {}, 1)]


def test_numbers_are_stored_exactly_from_the_source_through_the_file_into_the_table(engine: Engine) -> None:
    exact = "12345678901234.5678" if engine.dialect.name != "sqlite" else "'12345678901234.5678'"
    kpis = [Kpi("K1", "", "9007199254740993"), Kpi("K2", "", exact), Kpi("K3", "", "1e0 / 10")]
    compute_model(engine, model("SELECT ${kpis}", dimensions=[], kpis=kpis))
    assert [decimal_text(value) for _, _, value in stored_values(engine)] == [
        "9007199254740993",
        "12345678901234.5678",
        "0.1",
    ]
    with pytest.raises(ModelFailed, match="K9 of the whole batch has more than 28 digits before the decimal point"):
        compute_model(engine, model("SELECT ${kpis}", dimensions=[], kpis=[Kpi("K9", "", "1e28")]))


@pytest.mark.parametrize("database_url", STORES, indirect=True)
def test_a_named_source_is_read_without_being_written(database_url: URL, orders: Engine) -> None:
    source = open_engine(database_url)
    run_statements(
        source, "CREATE TABLE stock (region VARCHAR(20), amount INT)", "INSERT INTO stock VALUES ('east', 5)"
    )
    source.dispose()
    urls = {"WAREHOUSE": database_url.render_as_string(hide_password=False)}
    stock = model("SELECT ${dimGroup}, ${kpis} FROM stock GROUP BY region", source="Warehouse")
    assert compute_model(orders, stock, urls=urls) == Counts(1, 2)
    assert stored_values(orders)[0] == ("KD1001", {"region": "east"}, 5)


def test_a_source_that_is_not_there_is_named_without_its_password(engine: Engine, tmp_path: Path) -> None:
    elsewhere = model(source="dw")
    for url, expected in (
        ("", "PLATFORM_SOURCE_DW_URL is not set"),
        ("oracle://me:s3cret@host/db", "PLATFORM_SOURCE_DW_URL: oracle is not supported"),
        ("postgresql://s3cret:s3cret@127.0.0.1:1/db", "127.0.0.1"),
        ("mysql://s3cret:s3cret@127.0.0.1:1/db", "127.0.0.1:1"),
        (f"sqlite:///{tmp_path}/absent.db", "unable to open database file"),
    ):
        with pytest.raises(ModelFailed) as caught:
            compute_model(engine, elsewhere, urls={"DW": url})
        assert expected in str(caught.value)
        assert "s3cret" not in str(caught.value)
    assert not (tmp_path / "absent.db").exists()


def test_a_source_refuses_to_be_written(orders: Engine) -> None:
    sources = Sources(orders, {})
    with (
        pytest.raises(SourceError, match=r"(?i)read.?only"),
        sources.read_transaction("platform", 10) as transaction,
    ):
        transaction.rows(Query("DELETE FROM orders", {"op_time": BATCH}))
    assert compute_model(orders, model()) == Counts(2, 3)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT COUNT(*) AS K FROM api_keys",
        "SELECT COUNT(*) AS K FROM API_KEYS",
        "SELECT (SELECT COUNT(*) FROM work) AS K",
        "WITH x AS (SELECT * FROM metrics_webhook_subscription) SELECT COUNT(*) AS K FROM x",
        "SELECT COUNT(*) AS K FROM information_schema.tables",
        "SELECT COUNT(*) AS K FROM mysql.user",
        "SELECT COUNT(*) AS K FROM elsewhere.orders",
        "SELECT COUNT(*) AS K FROM sqlite_master",
        "SELECT COUNT(*) AS K FROM pragma_database_list",
        "SELECT LENGTH(LOAD_FILE('/etc/hostname')) AS K",
        "SELECT load_extension('x') AS K",
    ],
)
def test_a_model_on_the_platforms_database_reads_no_table_and_no_file_that_is_not_for_it(
    orders: Engine, sql: str
) -> None:
    with pytest.raises(ModelFailed, match=r"the source platform|is refused|prohibited|not authorized"):
        compute_model(orders, model(sql, dimensions=[], kpis=[Kpi("K", "", "1")]))


def test_a_model_on_the_platforms_database_reads_values_arrivals_and_executions(orders: Engine) -> None:
    compute_model(orders, model())
    own = "" if orders.dialect.name == "sqlite" else f"{orders.url.database}."
    sql = f"SELECT SUM(kpi_value) AS K FROM {own}metrics_kpi_value WHERE kpi_id = 'KD1001'"  # noqa: S608
    counted = model(sql, dimensions=[], kpis=[Kpi("K", "", "1")], model_id="SECOND")
    assert compute_model(orders, counted) == Counts(1, 1)
    assert stored_values(orders)[0] == ("K", {}, 12.5)
    for table in ("metrics_etl_log", "metrics_task_log"):
        sql = f"SELECT COUNT(*) AS K FROM {table}"  # noqa: S608
        assert compute_model(orders, model(sql, dimensions=[], kpis=[Kpi("K", "", "1")])) == Counts(1, 1)


def test_sqlite_itself_refuses_what_the_text_may_have_hidden(tmp_path: Path) -> None:
    engine = open_engine(f"sqlite:///{tmp_path}/platform.db")
    run_statements(
        engine, "CREATE TABLE api_keys (k TEXT)", "CREATE TABLE mine (k TEXT)", "INSERT INTO mine VALUES ('x')"
    )
    with Sources(engine, {}).read_transaction("platform", 10) as transaction:
        assert list(transaction.rows(Query("SELECT k FROM mine", {}))[1]) == [("x",)]
    for sql in (
        "SELECT k FROM api_keys",
        "SELECT name FROM sqlite_master",
        "ATTACH 'x.db' AS x",
        "PRAGMA user_version",
    ):
        with (
            pytest.raises(SourceError, match=r"prohibited|not authorized"),
            Sources(engine, {}).read_transaction("platform", 10) as transaction,
        ):
            transaction.rows(Query(sql, {}))
    engine.dispose()


def test_the_tables_of_dagster_are_all_known() -> None:
    stored = (SqlEventLogStorageMetadata, RunStorageSqlMetadata, ScheduleStorageSqlMetadata)
    assert {name for each in stored for name in each.tables} <= DAGSTER_TABLES


@pytest.mark.needs("mysql")
def test_a_password_that_a_message_repeats_is_masked(tmp_path: Path) -> None:
    engine = open_engine(f"sqlite:///{tmp_path}/platform.db")
    # TLS is needed here: without it the server may refuse an unknown user with a message that does not name the user.
    server = server_url("mysql").difference_update_query(["ssl_disabled"])
    nobody = server.set(username="s3cret", password="s3cret", database="mysql")
    urls = {"DW": nobody.render_as_string(hide_password=False)}
    with pytest.raises(ModelFailed, match=r"Access denied for user '\*\*\*'"):
        compute_model(engine, model(source="dw"), urls=urls)
    engine.dispose()


def test_a_query_ends_at_its_timeout_and_with_its_first_mistake(numbers: Engine) -> None:
    # A sum over all columns, because MySQL counts the rows of a join without reading them.
    total = Kpi("K", "", "SUM(a.n * b.n * c.n * d.n * e.n * f.n)")
    many = "FROM numbers a, numbers b, numbers c, numbers d"
    with pytest.raises(ModelFailed, match=r"did not end within 0\.3 s"):
        compute_model(
            numbers, model(f"SELECT ${{kpis}} {many}, numbers e, numbers f", dimensions=[], kpis=[total]), timeout_s=0.3
        )
    # A result that would take years to read: that this ends says that the rest of it is not read.
    endless = f"{many}, numbers e, numbers f, numbers g, numbers h"
    # The hint is MySQL's: with a hash join it would not send a first row either.
    sql = f"SELECT /*+ NO_BNL() */ 1 AS region, ${{kpis}} {endless}"
    with pytest.raises(ModelFailed, match="more than one row"):
        compute_model(numbers, model(sql, kpis=[Kpi("K", "", "1")]), timeout_s=86_400)


MEASURED = """
import sys
from pathlib import Path
from platform_defs.store.engine import open_engine
from tests.arrivals.models.making import Kpi, compute_model, model


def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) // 1024


sql = sys.argv[2]
engine = open_engine(sys.argv[1])
kpis = [Kpi("K", "", "CASE WHEN x.n = 1 THEN y.n END")]
compute_model(engine, model(sql + " WHERE x.n < 2 AND y.n < 2", kpis=kpis))
before = peak()
counts = compute_model(engine, model(sql, kpis=kpis), timeout_s=300)
print(counts.computed, counts.stored, peak() - before)
engine.dispose()
"""


@pytest.mark.parametrize("engine", [pytest.param("sqlite", marks=needs("time")), *STORES[1:]], indirect=True)
def test_memory_does_not_grow_with_the_result(numbers: Engine) -> None:
    wide = "'" + "w" * 200 + "'"
    parts = [wide, "x.n", "'/'", "y.n", "'/'", "z.n"]
    region = " || ".join(parts) if numbers.dialect.name == "sqlite" else f"CONCAT({', '.join(parts)})"
    sql = "SELECT REGION AS region, ${kpis} FROM numbers x, numbers y, numbers z".replace("REGION", region)
    url = numbers.url.render_as_string(hide_password=False)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", MEASURED, url, sql]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows, values, mebibytes = map(int, done.stdout.split())
    assert (rows, values) == (55**3, 55**2)
    assert mebibytes < 20, "the texts alone are 33 MiB"
    assert len(stored_values(numbers)) == 55**2


def test_a_query_on_sqlite_that_a_signal_interrupts_ends_as_interrupted_and_not_as_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sqlite3.connect(tmp_path / "source.db").close()
    sources = Sources(open_engine(f"sqlite:///{tmp_path}/platform.db"), {"S": f"sqlite:///{tmp_path}/source.db"})
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT MAX(i) FROM n"

    class Terminated(BaseException):
        pass

    def terminate(number: int, frame: object) -> None:
        raise Terminated

    def come(deadline: Deadline) -> bool:
        """The signal comes once, while SQLite looks at the clock in the middle of the query."""
        monkeypatch.setattr(Deadline, "passed", lambda deadline: False)
        signal.raise_signal(signal.SIGALRM)
        return False

    monkeypatch.setattr(Deadline, "passed", come)
    before = signal.signal(signal.SIGALRM, terminate)
    try:
        with pytest.raises(KeyboardInterrupt), sources.read_transaction("S", 60) as transaction:
            list(transaction.rows(Query(endless, {}))[1])
    finally:
        signal.signal(signal.SIGALRM, before)
        sources.platform.dispose()
