"""The node type `sql` on real databases: what it executes, what it gives back, and how it is interrupted."""

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.engine import URL

from platform_defs.chains.nodes.catalogue import cfg_problems
from platform_defs.chains.nodes.environment import NodeEnvironment
from platform_defs.chains.nodes.port import NodeFailed, NodeStopped
from tests.chains.nodes.attempts import Bench, open_bench
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
on_stores = pytest.mark.parametrize(
    "database_url",
    [
        "sqlite",
        pytest.param("mysql", marks=pytest.mark.needs("mysql")),
        pytest.param("mariadb", marks=pytest.mark.needs("mariadb")),
    ],
    indirect=True,
)
# a statement that ends in a few thousand years
ENDLESS = {
    "sqlite": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n",
    "mysql": "SELECT SLEEP(100000)",
}


@pytest.fixture
def source(database_url: URL) -> Iterator[Engine]:
    """The data source `dw`, with a table of three orders."""
    engine = create_engine(database_url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE orders (id INTEGER PRIMARY KEY, day VARCHAR(8), total DECIMAL(10, 2))"))
        rows = [{"id": n, "day": "20251219", "total": n * 10} for n in (1, 2, 3)]
        connection.execute(text("INSERT INTO orders VALUES (:id, :day, :total)"), rows)
    yield engine
    engine.dispose()


@pytest.fixture
def bench(engine: Engine, database_url: URL) -> Bench:
    urls = {"DW": database_url.render_as_string(hide_password=False)}
    return open_bench(engine, NodeEnvironment(engine, source_urls=urls))


def rows_of(source: Engine) -> list[Any]:
    with source.connect() as connection:
        return list(connection.execute(text("SELECT id FROM orders ORDER BY id")).scalars())


@on_stores
class TestStatements:
    def test_rows_of_a_query_are_the_artifact_and_values_are_parameters(self, bench: Bench, source: Engine) -> None:
        cfg = {
            "source": "dw",
            "sql": "SELECT id, day AS batch FROM orders WHERE day = :day AND id > :least ORDER BY id",
            "parameters": {"day": "${params.day}", "least": 1},
        }
        artifact = bench.artifact("sql", cfg, {"day": "20251219"})
        assert artifact == {
            "columns": ["id", "batch"],
            "rows": [{"id": 2, "batch": "20251219"}, {"id": 3, "batch": "20251219"}],
            "rowCount": 2,
            "truncated": False,
        }
        assert bench.artifact("sql", cfg, {"day": "x' OR '1' = '1"})["rows"] == []
        assert bench.lines == ["statement 1 of 1 on dw: 2 rows", "statement 1 of 1 on dw: 0 rows"]

    def test_statements_are_one_transaction_and_can_be_repeated(self, bench: Bench, source: Engine) -> None:
        replace = ["DELETE FROM orders WHERE day = :day", "INSERT INTO orders (id, day) VALUES (:id, :day)"]
        cfg = {"source": "dw", "sql": replace, "parameters": {"day": "20251219", "id": 7}}
        assert [bench.artifact("sql", cfg) for _ in range(2)] == [{"rowCount": 1}] * 2
        assert rows_of(source) == [7]
        with pytest.raises(NodeFailed, match=r"dw: .*no_such_table"):
            bench.perform("sql", {"source": "dw", "sql": ["DELETE FROM orders", "DELETE FROM no_such_table"]})
        assert rows_of(source) == [7]

    def test_a_long_result_is_cut_and_the_transaction_goes_on(self, bench: Bench, source: Engine) -> None:
        many = "SELECT a.id FROM orders a, orders b, orders c, orders d, orders e, orders f, orders g ORDER BY a.id"
        artifact = bench.artifact(
            "sql", {"source": "dw", "sql": ["DELETE FROM orders WHERE id = 3", many], "maxRows": 2}
        )
        assert (artifact["rows"], artifact["truncated"]) == ([{"id": 1}, {"id": 1}], True)
        assert rows_of(source) == [1, 2]

    def test_a_stop_interrupts_the_statement_and_nothing_of_it_stays(self, bench: Bench, source: Engine) -> None:
        endless = ENDLESS["sqlite" if source.dialect.name == "sqlite" else "mysql"]
        ended: list[BaseException] = []

        def attempt() -> None:
            try:
                bench.perform("sql", {"source": "dw", "sql": ["DELETE FROM orders", endless]})
            except NodeStopped as error:
                ended.append(error)

        thread = threading.Thread(target=attempt)
        thread.start()
        until("the first statement", lambda: bench.lines)
        bench.stop.set("the run was stopped by ann")
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
        assert [str(error) for error in ended] == ["the run was stopped by ann"]
        assert rows_of(source) == [1, 2, 3]


@pytest.mark.needs("mysql")
@pytest.mark.parametrize("database_url", ["mysql"], indirect=True)
def test_types_of_mysql_become_json_and_the_password_is_never_shown(
    bench: Bench, source: Engine, engine: Engine, database_url: URL
) -> None:
    sql = "SELECT total, CAST('2025-12-19 01:02:03' AS DATETIME) AS t, x'00ff' AS b, NULL AS n FROM orders WHERE id = 1"
    artifact = bench.artifact("sql", {"source": "dw", "sql": sql})
    assert artifact["rows"] == [{"total": "10.00", "t": "2025-12-19T01:02:03", "b": "AP8=", "n": None}]
    wrong = database_url.set(password="hunter2").render_as_string(hide_password=False)
    refused = open_bench(engine, NodeEnvironment(engine, source_urls={"DW": wrong}))
    with pytest.raises(NodeFailed, match="dw: ") as raised:
        refused.perform("sql", {"source": "dw", "sql": "SELECT 1"})
    assert "hunter2" not in str(raised.value)
    with pytest.raises(NodeFailed):
        bench.perform("sql", {"source": "dw", "sql": "LOAD DATA LOCAL INFILE '/etc/hostname' INTO TABLE orders"})


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_sqlite_reaches_no_other_file(bench: Bench, source: Engine, tmp_path: Path) -> None:
    secret = tmp_path / "platform.db"
    with sqlite3.connect(secret) as other:
        other.execute("CREATE TABLE keys (k)")
    for sql in (f"ATTACH DATABASE '{secret}' AS other", f"VACUUM INTO '{tmp_path / 'copy.db'}'"):
        with pytest.raises(NodeFailed):
            bench.perform("sql", {"source": "dw", "sql": sql})
    assert not (tmp_path / "copy.db").exists()
    other.close()


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("cfg", "problem"),
    [
        ({"source": "dw", "sql": "SELECT '${params.x}'"}, "cfg.sql: expected no expression here"),
        ({"source": "Platform", "sql": "SELECT 1"}, "the platform's own database"),
        ({"source": "dw; --", "sql": "SELECT 1"}, "cfg.source: "),
        ({"source": "dw"}, "cfg.sql: expected a value"),
    ],
)
def test_problems_are_told_when_a_chain_is_saved(bench: Bench, cfg: dict[str, Any], problem: str) -> None:
    assert any(problem in text for text in cfg_problems(bench.types, "n", "sql", cfg))


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_source_that_no_variable_names_is_not_tried_again(bench: Bench) -> None:
    with pytest.raises(NodeFailed, match="PLATFORM_SOURCE_LAKE_URL is not set") as raised:
        bench.perform("sql", {"source": "lake", "sql": "SELECT 1"})
    assert not raised.value.may_retry


def test_a_source_that_only_models_can_read_is_refused_with_that_reason(engine: Engine) -> None:
    urls = {"LAKE": "postgresql://me:s3cret@127.0.0.1:1/db"}
    bench = open_bench(engine, NodeEnvironment(engine, source_urls=urls))
    with pytest.raises(NodeFailed, match="the source lake is PostgreSQL") as raised:
        bench.perform("sql", {"source": "lake", "sql": "SELECT 1"})
    assert not raised.value.may_retry
