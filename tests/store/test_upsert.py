"""The multi-row upsert behaves like a dictionary, the same on every store, in few statements."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, delete, event, func, select
from sqlalchemy.exc import IntegrityError

from platform_defs.store import upsert as module
from platform_defs.store.engine import has_one_writer
from platform_defs.store.tables.chains import job_run_node
from platform_defs.store.tables.ingest import ing_record
from platform_defs.store.tables.rate_gate import rate_gate
from platform_defs.store.tables.webhooks import metrics_webhook_subscription
from platform_defs.store.upsert import upsert

NOON = datetime(2025, 3, 1, 12, tzinfo=UTC)
KEY = ["provenance_code", "endpoint_name", "provider_id"]
per_store = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

on_sqlite = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)


def row(provider_id: str, second: int = 0, value: Any = None) -> dict[str, Any]:
    return {
        "provenance_code": "p",
        "endpoint_name": "e",
        "provider_id": provider_id,
        "updated_at": NOON + timedelta(seconds=second),
        "record": {"value": value},
    }


def stored(engine: Engine) -> dict[str, tuple[int, Any]]:
    with engine.begin() as connection:
        rows = connection.execute(select(ing_record.c.provider_id, ing_record.c.updated_at, ing_record.c.record))
        return {found[0]: (int((found[1] - NOON).total_seconds()), found[2]["value"]) for found in rows}


@contextmanager
def counted(engine: Engine) -> Iterator[list[str]]:
    statements: list[str] = []

    def note(conn: Any, cursor: Any, statement: str, *rest: Any) -> None:
        if statement.startswith("INSERT"):
            statements.append(statement)

    event.listen(engine, "before_cursor_execute", note)
    yield statements
    event.remove(engine, "before_cursor_execute", note)


ids = st.sampled_from(["a", "A", "á", "a ", "b", "c"])
versions = st.lists(st.tuples(ids, st.integers(0, 5), st.integers(0, 1000)), max_size=12)


@per_store
@given(batches=st.lists(versions, max_size=4))
def test_rows_end_as_they_would_in_a_dictionary(engine: Engine, batches: list[list[tuple[str, int, int]]]) -> None:
    model: dict[str, tuple[int, Any]] = {}
    with engine.begin() as connection:
        connection.execute(delete(ing_record))
    for batch in batches:
        with engine.begin() as connection:
            assert upsert(connection, ing_record, [row(*version) for version in batch], key=KEY) == len(batch)
        model |= {provider_id: (second, value) for provider_id, second, value in batch}
    assert stored(engine) == model


@per_store
@given(batches=st.lists(versions, max_size=4))
def test_only_a_newer_version_replaces_what_is_stored(
    engine: Engine, batches: list[list[tuple[str, int, int]]]
) -> None:
    model: dict[str, tuple[int, Any]] = {}
    with engine.begin() as connection:
        connection.execute(delete(ing_record))
    for batch in batches:
        with engine.begin() as connection:
            rows = [row(*version) for version in batch]
            upsert(connection, ing_record, rows, key=KEY, when=lambda new: new.updated_at > ing_record.c.updated_at)
        for provider_id, second, value in batch:
            if provider_id not in model or second > model[provider_id][0]:
                model[provider_id] = (second, value)
    assert stored(engine) == model


def test_nothing_leaves_existing_rows_as_they_are(engine: Engine) -> None:
    with engine.begin() as connection:
        upsert(connection, ing_record, [row("a", 1, "old")], key=KEY)
        upsert(connection, ing_record, [row("a", 2, "new"), row("b", 2, "new")], key=KEY, update="nothing")
    assert stored(engine) == {"a": (1, "old"), "b": (2, "new")}


def test_only_the_named_columns_change(engine: Engine) -> None:
    with engine.begin() as connection:
        upsert(connection, ing_record, [row("a", 1, "old")], key=KEY)
        upsert(connection, ing_record, [row("a", 2, "new")], key=KEY, update=["record"])
    assert stored(engine) == {"a": (1, "new")}


def test_an_existing_value_can_be_part_of_the_new_one(engine: Engine) -> None:
    count = rate_gate.c.hour_count
    three = {"gate_key": "k", "hour_count": 3}
    with engine.begin() as connection:
        for _ in range(3):
            upsert(
                connection,
                rate_gate,
                [three, three],
                key=["gate_key"],
                update=lambda new: {"hour_count": count + new.hour_count},
            )
        assert connection.execute(select(count)).scalars().all() == [18]


def test_a_condition_may_compare_with_a_value_of_the_caller(engine: Engine) -> None:
    limit = NOON + timedelta(seconds=5)
    with engine.begin() as connection:
        upsert(connection, ing_record, [row("a", 1, "old"), row("b", 9, "old")], key=KEY)
        rows = [row("a", 10, "new"), row("b", 10, "new")]
        upsert(connection, ing_record, rows, key=KEY, when=lambda new: ing_record.c.updated_at < limit)
    assert stored(engine) == {"a": (10, "new"), "b": (9, "old")}


def test_an_update_reads_the_values_from_before_it(engine: Engine) -> None:
    node = job_run_node.c
    rows = [{"run_id": "r", "node_id": "n", "status": "FAILED", "attempt": 1}]
    with engine.begin() as connection:
        upsert(connection, job_run_node, rows, key=["run_id", "node_id"])
        upsert(
            connection,
            job_run_node,
            [rows[0] | {"status": "RETRYING"}],
            key=["run_id", "node_id"],
            update=lambda new: {"status": new.status, "last_error": node.status, "attempt": node.attempt + 1},
        )
        found = connection.execute(select(node.status, node.last_error, node.attempt)).one()
    assert found == ("RETRYING", "FAILED", 2)


@pytest.mark.parametrize("engine", [pytest.param("mysql", marks=pytest.mark.needs("mysql"))], indirect=True)
def test_columns_that_swap_their_values_are_refused_because_mysql_cannot(engine: Engine) -> None:
    node = job_run_node.c
    with pytest.raises(ValueError, match="updated from each other"), engine.begin() as connection:
        upsert(
            connection,
            job_run_node,
            [{"run_id": "r", "node_id": "n", "status": "FAILED"}],
            key=["run_id", "node_id"],
            update=lambda new: {"status": node.last_error, "last_error": node.status},
        )


def test_the_row_time_moves_with_an_update_and_only_with_one(engine: Engine) -> None:
    newer = lambda new: new.updated_at > ing_record.c.updated_at  # noqa: E731
    before = NOON - timedelta(days=365)

    def modified() -> datetime:
        with engine.begin() as connection:
            found: datetime = connection.execute(select(ing_record.c.modified_at)).scalar_one()
            return found

    with engine.begin() as connection:
        upsert(connection, ing_record, [row("a", 1) | {"modified_at": before}], key=KEY)
        upsert(connection, ing_record, [row("a", 1)], key=KEY, when=newer)
    assert modified() == before
    with engine.begin() as connection:
        upsert(connection, ing_record, [row("a", 2)], key=KEY, when=newer)
    assert modified() > before


def test_a_thousand_rows_are_one_statement_on_a_server_and_a_few_equal_ones_on_sqlite(engine: Engine) -> None:
    with counted(engine) as statements, engine.begin() as connection:
        upsert(connection, ing_record, [row(str(n)) for n in range(1000)], key=KEY)
    assert len(set(statements)) == 1
    assert len(statements) == (20 if has_one_writer(engine) else 1)
    assert len(stored(engine)) == 1000


def test_more_rows_than_a_statement_may_hold_are_split(engine: Engine) -> None:
    with counted(engine) as statements, engine.begin() as connection:
        assert upsert(connection, ing_record, [row(str(n)) for n in range(2500)], key=KEY) == 2500
    assert len(statements) == (50 if has_one_writer(engine) else 3)
    assert len(stored(engine)) == 2500


@on_sqlite
def test_any_number_of_rows_is_sent_in_statements_that_sqlite_knows(engine: Engine) -> None:
    numbers = [1, 9, 10, 49, 50, 73, 100]
    with counted(engine) as statements, engine.begin() as connection:
        for number in numbers:
            upsert(connection, ing_record, [row(f"{number}/{n}", n) for n in range(number)], key=KEY)
    assert len(set(statements)) == 3, "it reads a statement once that comes again"
    assert stored(engine) == {f"{number}/{n}": (n, None) for number in numbers for n in range(number)}


def test_large_rows_are_split_by_their_bytes(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BYTES", 100_000)
    with counted(engine) as statements, engine.begin() as connection:
        upsert(connection, ing_record, [row(str(n), value="x" * 40_000) for n in range(6)], key=KEY)
    assert len(statements) == (6 if has_one_writer(engine) else 3)
    assert len(stored(engine)) == 6


def test_columns_may_be_given_instead_of_rows(engine: Engine) -> None:
    same = {"provenance_code": "p", "endpoint_name": "e", "updated_at": NOON}
    store = module.Upsert(ing_record, KEY, when=lambda new: new.updated_at >= ing_record.c.updated_at)
    with engine.begin() as connection:
        upsert(connection, ing_record, [row("a", 9, "old"), row("b", -9, "old")], key=KEY)
        texts = ['{"value": 1}', '{"value": 2}', '{"value": 3}']
        columns = {"provider_id": ["a", "b", "c"], "record": texts}
        assert store.run_columns(connection, columns, same, ready=("record",)) == 3
        assert store.run_columns(connection, {"provider_id": [], "record": []}, same) == 0
    assert stored(engine) == {"a": (9, "old"), "b": (0, 2), "c": (0, 3)}


def test_without_a_key_rows_are_only_added(engine: Engine) -> None:
    add = module.Upsert(ing_record, key=())
    with engine.begin() as connection:
        assert add.run(connection, [row("a"), row("b")]) == 2
    with pytest.raises(IntegrityError), engine.begin() as connection:
        add.run(connection, [row("c"), row("a")])
    assert set(stored(engine)) == {"a", "b"}


def test_no_rows_are_no_statement(engine: Engine) -> None:
    with counted(engine) as statements, engine.begin() as connection:
        assert upsert(connection, ing_record, [], key=KEY) == 0
    assert statements == []


def test_a_key_that_is_not_unique_is_refused(engine: Engine) -> None:
    with pytest.raises(ValueError, match="no unique key"), engine.begin() as connection:
        upsert(connection, metrics_webhook_subscription, [{"kpi_id": "k", "callback_url": "u"}], key=["kpi_id"])


def test_rows_that_name_different_columns_are_refused(engine: Engine) -> None:
    with pytest.raises(ValueError, match="different columns"), engine.begin() as connection:
        upsert(connection, ing_record, [row("a"), row("b") | {"expr_hash": "x"}], key=KEY)
    with engine.begin() as connection:
        assert connection.execute(select(func.count()).select_from(ing_record)).scalar_one() == 0
