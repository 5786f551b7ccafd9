"""The migrated databases have the tables, columns, keys and indexes that the seeds name, with the types we promised."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, Engine, Index, inspect, text

from platform_defs.store.tables import metadata
from tests.store.seed_schema import MYSQL_TYPES, SEEDS

on_servers = pytest.mark.parametrize(
    "engine", [pytest.param(store, marks=pytest.mark.needs(store)) for store in ("mysql", "mariadb")], indirect=True
)


def column_names(found: Mapping[str, Any]) -> list[str]:
    """SQLite reports a descending column as an expression."""
    expressions: Sequence[str] = found.get("expressions") or found["column_names"]
    return [str(name).removesuffix(" DESC").strip("`\"'") for name in expressions]


def test_every_table_has_the_columns_keys_and_indexes_of_the_seeds(engine: Engine) -> None:
    inspector = inspect(engine)
    wrong: list[str] = []
    for table, seed in SEEDS.items():
        if not inspector.has_table(table):
            wrong.append(f"{table} is missing")
            continue
        columns = {column["name"] for column in inspector.get_columns(table)}
        wrong += [f"{table}.{name} is missing" for name in seed.columns.split() if name not in columns]
        unique = {str(found["name"]): list(found["column_names"]) for found in inspector.get_unique_constraints(table)}
        indexes = {str(found["name"]): column_names(found) for found in inspector.get_indexes(table)}
        for name, expected in seed.unique.items():
            if unique.get(name) != expected.split():
                wrong.append(f"{table}: unique {name} is {unique.get(name)}, not {expected}")
        for name, expected in seed.indexes.items():
            if indexes.get(name) != expected.split():
                wrong.append(f"{table}: index {name} is {indexes.get(name)}, not {expected}")
        primary = inspector.get_pk_constraint(table)["constrained_columns"]
        if primary != seed.primary_key.split():
            wrong.append(f"{table}: primary key is {primary}")
    assert wrong == []


def test_attempts_refer_to_their_task(engine: Engine) -> None:
    (key,) = inspect(engine).get_foreign_keys("ol_async_task_attempt")
    assert (key["name"], key["constrained_columns"], key["referred_table"]) == (
        "fk_attempt_task",
        ["task_id"],
        "ol_async_task",
    )


def differences(connection: Connection) -> list[Any]:
    context = MigrationContext.configure(connection, opts={"compare_type": True})
    with warnings.catch_warnings():
        # each server writes the expression of a computed column in its own way
        warnings.filterwarnings("ignore", message="Computed default on")
        return list(compare_metadata(context, metadata))


def test_the_migrated_schema_is_the_schema_of_the_tables(engine: Engine) -> None:
    with engine.connect() as connection:
        assert differences(connection) == []


def test_the_comparison_sees_a_missing_index(engine: Engine) -> None:
    index = next(index for index in metadata.tables["ing_plan"].indexes if index.name == "idx_plan_expr")
    with engine.begin() as connection:
        index.drop(connection)
        found = differences(connection)
        Index.create(index, connection)
    assert [entry[0] for entry in found] == ["add_index"]


@on_servers
def test_every_text_column_compares_by_bytes_and_every_time_has_microseconds(engine: Engine) -> None:
    mariadb = bool(getattr(engine.dialect, "is_mariadb", False))
    expected = "utf8mb4_nopad_bin" if mariadb else "utf8mb4_0900_bin"
    json = {(table.name, column.name) for table in metadata.tables.values() for column in table.c if is_json(column)}
    with engine.begin() as connection:
        columns = connection.execute(
            text(
                "SELECT table_name, column_name, collation_name, column_type FROM information_schema.columns"
                " WHERE table_schema = DATABASE() AND table_name <> 'alembic_version'"
            )
        ).all()
    texts = [c for c in columns if c[2] and (c[0], c[1]) not in json]
    assert len(texts) > 200
    assert [c for c in texts if c[2] != expected] == []
    times = [c for c in columns if c[3].startswith(("datetime", "timestamp"))]
    assert len(times) > 100
    assert {c[3] for c in times} == {"datetime(6)"}


def is_json(column: Any) -> bool:
    return repr(column.type) == "Json()"


@pytest.mark.parametrize("engine", [pytest.param("mysql", marks=pytest.mark.needs("mysql"))], indirect=True)
def test_columns_have_the_types_of_the_seeds(engine: Engine) -> None:
    with engine.begin() as connection:
        rows = connection.execute(
            text(
                "SELECT table_name, column_name, column_type FROM information_schema.columns"
                " WHERE table_schema = DATABASE()"
            )
        )
        found = {(row[0], row[1]): row[2] for row in rows}
    assert {place: found.get(place) for place in MYSQL_TYPES} == MYSQL_TYPES


@on_servers
def test_the_indexes_that_the_seed_sorts_backwards_are_descending(engine: Engine) -> None:
    with engine.begin() as connection:
        rows = connection.execute(
            text(
                "SELECT index_name FROM information_schema.statistics WHERE table_schema = DATABASE()"
                " AND collation = 'D' ORDER BY index_name"
            )
        )
        descending = [row[0] for row in rows]
    assert descending == [
        "idx_batch_tenant_type_time",
        "idx_le_created_at",
        "idx_le_tenant_event_type_time",
        "idx_le_tenant_job_time",
        "idx_le_tenant_run_time",
        "idx_le_tenant_time",
    ]
