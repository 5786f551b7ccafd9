"""PostgreSQL as a source of models: what it reads, what it refuses, how it ends, and which failures are tried again."""

import os
import signal
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.engine import URL, make_url

from platform_defs.arrivals.errors import ModelFailed
from platform_defs.arrivals.models.compute import Counts
from platform_defs.arrivals.models.model import Kpi
from platform_defs.arrivals.models.sql import InvalidSql, check_query
from platform_defs.sources.errors import SourceError
from platform_defs.sources.named import Sources
from platform_defs.sources.transactions import Query
from tests.arrivals.models.making import ORDERS, compute_model, model, stored_values
from tests.conftest import needs, require
from tests.waiting import PATIENCE_S, until

pytestmark = needs("postgres")
ROOT = Path(__file__).resolve().parents[3]
K = Kpi("K", "", "1")


@pytest.fixture(scope="module")
def server() -> URL:
    return make_url(require("postgres"))


@contextmanager
def connected(url: URL) -> Iterator[Any]:
    import psycopg

    with psycopg.connect(url.render_as_string(hide_password=False), autocommit=True) as connection:
        yield connection


@pytest.fixture(scope="module")
def warehouse(server: URL) -> Iterator[URL]:
    """A database with orders, and a role that owns nothing else."""
    name = f"platform_test_{uuid.uuid4().hex[:12]}"
    with connected(server) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    url = server.set(database=name)
    with connected(url) as connection:
        connection.execute("CREATE TABLE orders (region text, amount numeric(10, 2), op_time varchar(20))")
        connection.execute(
            "INSERT INTO orders VALUES ('north', 10.50, '20251219'), ('north', 2, '20251219'),"
            " ('south', NULL, '20251219'), ('north', 7, '20251220')"
        )
        connection.execute("CREATE TABLE orders_20251219 AS SELECT * FROM orders WHERE region = 'south'")
    yield url
    with connected(server) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, migrated: dict[str, Engine]) -> Engine:
    return migrated["sqlite"]


@pytest.fixture
def urls(warehouse: URL) -> dict[str, str]:
    return {"DW": warehouse.render_as_string(hide_password=False)}


@pytest.fixture
def sources(store: Engine, urls: dict[str, str]) -> Sources:
    return Sources(store, urls)


def one_value(expression: str) -> Any:
    return model(f"SELECT {expression} AS K", dimensions=[], kpis=[K], source="dw")


def test_a_model_reads_postgresql_as_it_reads_any_source(store: Engine, urls: dict[str, str]) -> None:
    assert compute_model(store, model(source="dw"), urls=urls) == Counts(computed=2, stored=3)
    assert stored_values(store) == [
        ("KD1001", {"region": "north"}, Decimal("12.5")),
        ("KD1002", {"region": "north"}, 2),
        ("KD1002", {"region": "south"}, 1),
    ]
    assert compute_model(store, model(source="dw"), "20240101", urls=urls) == Counts(0, 0), "no rows, but its columns"


def test_the_batch_is_bound_and_the_rest_is_sent_as_it_is_written(store: Engine, urls: dict[str, str]) -> None:
    sql = (
        "SELECT ${kpis} FROM orders -- 100%(of) :them\n"
        " WHERE region LIKE 'n%' AND '%s' <> '%(op_time)s' AND E'it\\'s ${' <> $tag$ ' ${x} $tag$ AND 5 %(3) = 2"
        " AND '{\"a\": 1}'::jsonb ? 'a' AND (op_time = '${op_time}' OR op_time = CONCAT('', ${op_time}))"
        " AND ${op_time}::text <> 'x'"
    )
    with pytest.raises(ModelFailed, match=r"unknown placeholder|inside"):
        compute_model(store, model(sql.replace("$tag$", "'"), dimensions=[], source="dw"), urls=urls)
    sql = sql.replace("${x}", "x").replace("${'", "'")
    assert compute_model(store, model(sql, dimensions=[], source="dw"), "' OR 1=1 -- ", urls=urls) == Counts(1, 1)
    assert compute_model(store, model(sql, dimensions=[], source="dw"), urls=urls) == Counts(1, 2)
    assert stored_values(store)[0] == ("KD1001", {}, Decimal("12.5"))


def test_a_batchs_table_is_found_as_postgresql_spells_names(store: Engine, urls: dict[str, str]) -> None:
    sql = "SELECT ORDERS_yyyymmdd.region, ${kpis} FROM public.ORDERS_yyyymmdd GROUP BY ORDERS_yyyymmdd.region"
    by_batch = model(sql, depends_on=["ORDERS_yyyymmdd"], source="dw", kpis=[ORDERS])
    assert compute_model(store, by_batch, urls=urls) == Counts(1, 1)
    with pytest.raises(ModelFailed, match="orders_20251220"):
        compute_model(store, by_batch, "20251220", urls=urls)


def test_values_of_all_types_are_dimensions_and_numbers_stay_exact(store: Engine, urls: dict[str, str]) -> None:
    sql = (
        "SELECT DATE '2025-12-19' AS d, 1.50 AS p, '{\"b\": [1, \"北\"]}'::jsonb AS j, ARRAY[1, 2] AS a, true AS t,"
        " 12345678901234.5678 AS K"
    )
    compute_model(store, model(sql, dimensions=["d", "p", "j", "a", "t"], kpis=[K], source="dw"), urls=urls)
    [(_, dims, value)] = stored_values(store)[-1:]
    assert dims == {"d": "2025-12-19", "p": "1.50", "j": '{"b": [1, "北"]}', "a": "[1, 2]", "t": True}
    assert value == Decimal("12345678901234.5678")
    for bad, said in (("'NaN'::numeric", "is no number"), ("1e28", "more than 28 digits"), ("1/0", "division by zero")):
        with pytest.raises(ModelFailed, match=said):
            compute_model(store, one_value(bad), urls=urls)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT length(pg_read_file('/etc/hostname')) AS K",
        "SELECT length(PG_READ_FILE('/etc/hostname')) AS K",
        "SELECT length(\"pg_read_file\"('/etc/hostname')) AS K",
        "SELECT length(pg_catalog.pg_read_file('/etc/hostname')) AS K",
        "SELECT length(pg_catalog.\"pg_read_binary_file\"('/etc/hostname')::text) AS K",
        "SELECT length(pg_read_file /* here */ ('/etc/hostname')) AS K",
        "SELECT COUNT(*) AS K FROM pg_ls_dir('/')",
        "SELECT COUNT(*) AS K FROM ROWS FROM (pg_ls_dir('/')) x",
        "SELECT COUNT(*) AS K FROM orders, LATERAL pg_ls_logdir() x",
        "SELECT 1 AS K WHERE EXISTS (SELECT pg_stat_file('/etc/passwd'))",
        "SELECT lo_import('/etc/passwd') AS K",
        "SELECT lo_export(1, '/tmp/x') AS K",
        "SELECT COUNT(*) AS K FROM dblink('host=elsewhere', 'SELECT 1') AS t(a int)",
        "SELECT length(query_to_xml('SELECT pg_read_file(1)', true, true, '')::text) AS K",
        "SELECT COUNT(*) AS K FROM ts_stat('SELECT 1')",
        "SELECT set_config('transaction_read_only', 'off', true)::int AS K",
        "SELECT pg_terminate_backend(1)::int AS K",
        "SELECT COUNT(*) AS K FROM pg_hba_file_rules",
        "SELECT COUNT(*) AS K FROM pg_catalog.pg_file_settings",
        "SELECT length(U&\"\\0070g_read_file\"('/etc/hostname')) AS K",
        "SELECT 1 AS K /* /* */ , length(pg_read_file('/etc/hostname')) /* */ AS L",
        "SELECT 1 AS K INTO elsewhere",
        "SELECT 1 AS K FROM orders FOR UPDATE",
        "WITH gone AS (DELETE FROM orders RETURNING 1) SELECT COUNT(*) AS K FROM gone",
        "COPY orders TO '/tmp/x'",
        "COPY (SELECT 1 AS K) TO PROGRAM 'id'",
        "SELECT 1 AS K; DROP TABLE orders",
        "EXPLAIN ANALYZE SELECT 1 AS K",
        "DO $$ BEGIN END $$",
        "CALL something()",
        "VALUES (1)",
        "SHOW ALL",
        "SELECT $1 AS K",
    ],
)
def test_what_is_no_plain_query_is_refused_when_it_is_loaded_or_at_the_latest_when_it_runs(
    store: Engine, urls: dict[str, str], sql: str
) -> None:
    with pytest.raises(ModelFailed, match=r"is refused|expected one read-only query|parse|unknown parameter"):
        compute_model(store, model(sql, dimensions=[], kpis=[K], source="dw"), urls=urls)


def test_a_file_with_postgresqls_grammar_is_loaded() -> None:
    check_query(
        "SELECT DISTINCT ON (region) ${dimGroup}, ${kpis} FROM orders WHERE data @> '{\"a\": 1}'::jsonb"
        " AND op_time = ${op_time} GROUP BY ${dimGroup}",
        ["region"],
        [ORDERS],
    )
    with pytest.raises(InvalidSql, match="PG_READ_FILE is refused"):
        check_query("SELECT pg_read_file('x') AS \"KD1002\"", [], [ORDERS])


def test_the_server_itself_takes_one_statement_that_only_reads(sources: Sources) -> None:
    for sql, said in (
        ("DELETE FROM orders", "read-only transaction"),
        ("SELECT nextval('x')", "x"),
        ("SELECT 1; COMMIT; DELETE FROM orders", "multiple commands"),
        ("COMMIT", "produce a result"),
        ("SELECT set_config('transaction_read_only', 'off', true)", "read-write mode"),
    ):
        with pytest.raises(SourceError, match=said), sources.read_transaction("dw", 10) as transaction:
            list(transaction.rows(Query(sql, {}))[1])
    with sources.read_transaction("dw", 10) as transaction:
        assert list(transaction.rows(Query("SELECT COUNT(*) FROM orders", {}))[1]) == [(4,)]


def test_a_query_ends_at_its_timeout_and_with_its_first_mistake(
    store: Engine, sources: Sources, urls: dict[str, str], warehouse: URL
) -> None:
    with pytest.raises(ModelFailed, match=r"did not end within 0\.3 s") as caught:
        compute_model(store, one_value("pg_sleep(30)::text"), urls=urls, timeout_s=0.3)
    assert not caught.value.source_is_down, "a timeout of ours is no outage"
    # in the list of columns, because in FROM PostgreSQL would make all of it before it sends the first row
    endless = "SELECT 1 AS region, ${kpis}, generate_series(1, 1000000000000)"
    with pytest.raises(ModelFailed, match="more than one row"):
        compute_model(store, model(endless, kpis=[Kpi("K", "", "1")], source="dw"), urls=urls, timeout_s=86_400)
    with connected(warehouse) as connection:
        left = "SELECT query FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%generate_series%'"
        until("its query ends", lambda: connection.execute(left + " AND pid <> pg_backend_pid()").fetchall() == [])


WAITING = """
import sys
from platform_defs.sources.named import Sources
from platform_defs.sources.transactions import Query
from platform_defs.store.engine import open_engine
sources = Sources(open_engine("sqlite:///unused.db"), {"DW": sys.argv[1]})
with sources.read_transaction("dw", 600, sys.argv[2]) as transaction:
    names, rows = transaction.rows(Query(sys.argv[3], {}))
    print("reads", next(rows), flush=True)
    sys.stdin.readline()
"""
# tests that run beside these look at the same server
RUN = uuid.uuid4()
MARK, ANOTHER_MARK = f"platform task 7 run {RUN}", f"platform task 77 run {RUN}"


@contextmanager
def another_process(urls: dict[str, str], sql: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", WAITING, urls["DW"], MARK, sql]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=os.environ
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.communicate()


def active(url: URL) -> list[Any]:
    with connected(url) as connection:
        query = "SELECT pid FROM pg_stat_activity WHERE state = 'active' AND query LIKE %s"
        return connection.execute(query, [f"/* {MARK} */%"]).fetchall()


@pytest.mark.parametrize("sql", ["SELECT pg_sleep(600)", "SELECT repeat('x', 1000), generate_series(1, 10000000)"])
def test_a_statement_of_a_process_that_hangs_is_found_by_its_task_and_ended(
    sources: Sources, urls: dict[str, str], warehouse: URL, sql: str
) -> None:
    with another_process(urls, sql) as process:
        until("its statement runs", lambda: len(active(warehouse)) == 1)
        # the second one waits for its client, which reads no further
        process.send_signal(signal.SIGSTOP)
        assert sources.end_statements("dw", [MARK, ANOTHER_MARK]) == {MARK, ANOTHER_MARK}
        assert active(warehouse) == []


def transient(act: Callable[[], object]) -> bool:
    with pytest.raises(SourceError) as caught:
        act()
    return caught.value.is_transient


def test_only_outages_are_tried_again(warehouse: URL, store: Engine) -> None:
    def asking(url: URL) -> Callable[[], None]:
        return lambda: Sources(store, {"DW": url.render_as_string(hide_password=False)}).ask("dw")

    role = f"platform_test_{uuid.uuid4().hex[:12]}"
    with connected(warehouse) as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN CONNECTION LIMIT 0")
    try:
        assert transient(asking(warehouse.set(port=1))), "refused"
        assert transient(asking(warehouse.set(host="nowhere.invalid")))
        assert transient(asking(warehouse.set(username=role))), "too many connections"
        assert not transient(asking(warehouse.set(username="nobody_here")))
        assert not transient(asking(warehouse.set(database="nowhere")))
        assert not transient(asking(warehouse.update_query_dict({"sslmode": "require"})))
        assert not transient(asking(warehouse.update_query_dict({"nonsense": "1"})))

        def query(sql: str, url: URL = warehouse) -> None:
            sources = Sources(store, {"DW": url.render_as_string(hide_password=False)})
            with sources.read_transaction("dw", PATIENCE_S, MARK) as transaction:
                list(transaction.rows(Query(sql, {}))[1])

        assert not transient(lambda: query("SELECT * FROM nowhere"))
        with connected(warehouse) as connection:
            with connection.transaction():
                connection.execute("LOCK TABLE orders")
                impatient = warehouse.update_query_dict({"options": "-c lock_timeout=50"})
                assert transient(lambda: query("SELECT * FROM orders", impatient)), "lock timeout"
            found: dict[str, bool] = {}
            for function in ("pg_terminate_backend", "pg_cancel_backend"):

                def look(name: str = function) -> None:
                    found[name] = transient(lambda: query("SELECT pg_sleep(600)"))

                thread = threading.Thread(target=look)
                thread.start()
                (pid,) = until("the query runs", lambda: next(iter(active(warehouse)), None))
                connection.execute(f"SELECT {function}({pid})")
                thread.join()
            assert found == {"pg_terminate_backend": True, "pg_cancel_backend": False}
    finally:
        with connected(warehouse) as connection:
            connection.execute(f"DROP ROLE {role}")


def test_a_server_that_says_nothing_more_is_left_at_the_limit(store: Engine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        sources = Sources(store, {"DW": f"postgresql://me@127.0.0.1:{port}/db?connect_timeout=2"})
        assert transient(lambda: sources.ask("dw"))


def test_without_its_driver_the_message_says_what_to_install(
    store: Engine, urls: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ModelFailed, match=r"pip install 'platform-defs\[postgres\]'"):
        compute_model(store, model(source="dw"), urls=urls)
