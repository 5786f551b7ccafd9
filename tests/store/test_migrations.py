"""Migrations: from nothing, twice, at once, after a crash, and the refusal to work on another schema."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.operations import Operations
from sqlalchemy import Engine, create_engine, inspect, select, text
from sqlalchemy.engine import URL

from platform_defs.errors import StoreError
from platform_defs.store import migrate
from platform_defs.store.create_database import ensure_database
from platform_defs.store.engine import open_engine
from platform_defs.store.errors import SchemaAhead, SchemaBehind
from platform_defs.store.exact_numbers import decimal_text
from platform_defs.store.tables import metadata
from platform_defs.store.tables.arrivals import metrics_kpi_value
from tests.conftest import STORES, server_url
from tests.needs import ROOT
from tests.waiting import PATIENCE_S

every_store = pytest.mark.parametrize("database_url", STORES, indirect=True)
BEFORE_EXACT_NUMBERS = migrate.known_revisions()[migrate.known_revisions().index("0009") - 1]
LATEST = migrate.known_revisions()[-1]


@pytest.fixture
def empty(database_url: URL) -> Iterator[Engine]:
    engine = open_engine(database_url)
    yield engine
    engine.dispose()


def platform(*arguments: str, url: URL | str, home: Path) -> subprocess.Popen[str]:
    rendered = url if isinstance(url, str) else url.render_as_string(hide_password=False)
    environment = {**os.environ, "PLATFORM_DB_URL": rendered, "PLATFORM_HOME": str(home)}
    return subprocess.Popen(
        [sys.executable, "-m", "platform_defs", *arguments],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def answer(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out, err


def tables(engine: Engine) -> set[str]:
    return set(inspect(engine).get_table_names()) - {"alembic_version"}


@every_store
def test_an_empty_database_is_migrated_once_and_then_left_alone(empty: Engine) -> None:
    assert migrate.missing_revisions(empty) == migrate.known_revisions()
    assert migrate.upgrade(empty) == migrate.known_revisions()
    assert tables(empty) == set(metadata.tables)
    assert migrate.upgrade(empty) == []
    assert migrate.missing_revisions(empty) == []
    assert migrate.current_revision(empty) == LATEST
    migrate.require_current(empty)


@every_store
def test_processes_that_upgrade_at_once_apply_each_migration_once(database_url: URL, tmp_path: Path) -> None:
    racing = [platform("db", "upgrade", "--json", url=database_url, home=tmp_path) for _ in range(3)]
    answers = [answer(process) for process in racing]
    assert [code for code, _, _ in answers] == [0, 0, 0], [err for _, _, err in answers]
    applied = sorted((json.loads(out)["applied"] for _, out, _ in answers), key=len)
    assert applied == [[], [], migrate.known_revisions()]
    engine = open_engine(database_url)
    migrate.require_current(engine)
    assert tables(engine) == set(metadata.tables)
    engine.dispose()


@every_store
@pytest.mark.parametrize(("operation", "survived"), [("create_table", 1), ("create_table", 20), ("create_index", 30)])
def test_an_interrupted_upgrade_finishes_on_the_next_try(
    empty: Engine, monkeypatch: pytest.MonkeyPatch, operation: str, survived: int
) -> None:
    original = getattr(Operations, operation)
    calls = []

    def dies(self: Operations, *arguments: Any, **options: Any) -> Any:
        calls.append(arguments[0])
        if len(calls) > survived:
            raise KeyboardInterrupt
        return original(self, *arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(Operations, operation, dies)
        with pytest.raises(KeyboardInterrupt):
            migrate.upgrade(empty)
    assert migrate.missing_revisions(empty) == migrate.known_revisions()
    assert migrate.upgrade(empty) == migrate.known_revisions()
    assert tables(empty) == set(metadata.tables)
    for table in metadata.tables.values():
        expected = {str(index.name) for index in table.indexes}
        assert expected <= {str(index["name"]) for index in inspect(empty).get_indexes(table.name)}


@every_store
def test_a_database_without_migrations_is_refused_in_one_line(empty: Engine) -> None:
    with pytest.raises(SchemaBehind, match="run `platform db upgrade`") as refused:
        migrate.require_current(empty)
    assert "\n" not in str(refused.value)


@every_store
def test_a_database_of_a_newer_version_is_refused_in_one_line(empty: Engine) -> None:
    migrate.upgrade(empty)
    with empty.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    for act in (migrate.require_current, migrate.upgrade, migrate.missing_revisions):
        with pytest.raises(SchemaAhead, match="9999") as refused:
            act(empty)
        assert "\n" not in str(refused.value)


def test_status_names_what_is_missing_and_the_command_that_brings_it(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/platform.db"
    code, _, refusal = answer(platform("db", "status", url=url, home=tmp_path))
    assert code == 1
    missing = tmp_path / "platform.db"
    assert f"database {missing} does not exist: run `platform db upgrade`, or mend PLATFORM_DB_URL" in refusal
    missing.touch()
    code, out, _ = answer(platform("db", "status", url=url, home=tmp_path))
    assert code == 0
    assert "run `platform db upgrade`" in out
    assert answer(platform("db", "upgrade", url=url, home=tmp_path))[:2] == (
        0,
        f"applied {', '.join(migrate.known_revisions())}\n",
    )
    assert answer(platform("db", "upgrade", url=url, home=tmp_path))[:2] == (0, f"up to date at {LATEST}\n")
    code, out, _ = answer(platform("db", "status", "--json", url=url, home=tmp_path))
    assert json.loads(out) == {"database": url, "revision": LATEST, "pending": []}


@pytest.fixture
def unborn(request: pytest.FixtureRequest) -> Iterator[URL]:
    """A database name that does not exist yet, and a second one derived from it."""
    server = server_url(request.param)
    url = server.set(database=f"platform_test_unborn_{os.getpid()}")
    yield url
    engine = create_engine(server, connect_args={"collation": "utf8mb4_bin"}, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"DROP DATABASE IF EXISTS {url.database}"))
        connection.execute(text("DROP USER IF EXISTS platform_test_guest@localhost"))
    engine.dispose()


on_servers = pytest.mark.parametrize(
    "unborn", [pytest.param(store, marks=pytest.mark.needs(store)) for store in ("mysql", "mariadb")], indirect=True
)


@on_servers
def test_upgrade_creates_a_database_that_does_not_exist(unborn: URL, tmp_path: Path) -> None:
    engine = open_engine(unborn)
    with pytest.raises(SchemaBehind, match="does not exist: run `platform db upgrade`"):
        migrate.require_current(engine)
    code, out, err = answer(platform("db", "upgrade", "--json", url=unborn, home=tmp_path))
    assert (code, err) == (0, "")
    assert json.loads(out) == {"created": True, "applied": migrate.known_revisions(), "revision": LATEST}
    migrate.require_current(engine)
    with engine.begin() as connection:
        collation = connection.execute(text("SELECT @@collation_database")).scalar_one()
    engine.dispose()
    assert collation in ("utf8mb4_0900_bin", "utf8mb4_nopad_bin")
    assert ensure_database(unborn) is False


@on_servers
@pytest.mark.parametrize("rights", ["none", "read"])
def test_a_user_who_may_not_create_it_is_told_the_statement(unborn: URL, tmp_path: Path, rights: str) -> None:
    server = create_engine(
        unborn.set(database=""), connect_args={"collation": "utf8mb4_bin"}, isolation_level="AUTOCOMMIT"
    )
    with server.connect() as connection:
        connection.execute(text("CREATE USER platform_test_guest@localhost"))
        if rights == "read":
            connection.execute(
                text("GRANT SELECT ON `platform\\_test\\_unborn\\_%`.* TO platform_test_guest@localhost")
            )
    server.dispose()
    guest = unborn.set(username="platform_test_guest")
    code, _, err = answer(platform("db", "upgrade", url=guest, home=tmp_path))
    assert code == 1
    assert f"CREATE DATABASE IF NOT EXISTS `{unborn.database}` CHARACTER SET utf8mb4" in err
    assert err.count("\n") == 1


@every_store
def test_kpi_values_become_exact_and_those_that_do_not_fit_are_named_before_anything_changes(empty: Engine) -> None:
    with empty.begin() as connection:
        command.upgrade(migrate._config(connection), BEFORE_EXACT_NUMBERS)
    numbers = [0.1, 12345678.9012, 1e22, -3.0, 0.1 + 0.2, 1.5e30]
    rows = [{"kpi_id": f"K{n}", "hash": str(n), "number": number} for n, number in enumerate(numbers)]
    with empty.begin() as connection:
        statement = (
            "INSERT INTO metrics_kpi_value (op_time, dims, kpi_id, dims_hash, kpi_value)"
            " VALUES ('20251219', '{}', :kpi_id, :hash, :number)"
        )
        connection.execute(text(statement), rows)
    with pytest.raises(StoreError, match=r"1 KPI values .* K5 of batch 20251219 \(1.5e\+30\)\. Nothing was changed"):
        migrate.upgrade(empty)
    assert "period" not in {column["name"] for column in inspect(empty).get_columns("metrics_model")}
    with empty.begin() as connection:
        connection.execute(text("DELETE FROM metrics_kpi_value WHERE ABS(kpi_value) >= 1e28"))
    migrate.upgrade(empty)
    query = select(metrics_kpi_value.c.kpi_value).order_by(metrics_kpi_value.c.kpi_id)
    with empty.begin() as connection:
        found = [decimal_text(number) for number in connection.scalars(query)]
    assert found == ["0.1", "12345678.9012", "10000000000000000000000", "-3", "0.3"]


@every_store
def test_the_outbox_keeps_its_rows_and_their_ids_when_it_loses_an_index(empty: Engine) -> None:
    with empty.begin() as connection:
        command.upgrade(migrate._config(connection), "0015")
        statement = (
            "INSERT INTO ing_outbox (id, provenance_code, endpoint_name, provider_id, event_type, payload,"
            " idempotent_key, published_at) VALUES (:id, 'p', 'e', 'ä', 'RECORD_INSERTED', '{\"a\": 1}', :key, :at)"
        )
        rows = [{"id": 7, "key": "x" * 64, "at": None}, {"id": 9, "key": "y" * 64, "at": "2026-11-01 00:00:00.000000"}]
        connection.execute(text(statement), rows)
        before = connection.execute(text("SELECT * FROM ing_outbox ORDER BY id")).all()
    migrate.upgrade(empty)
    with empty.begin() as connection:
        assert connection.execute(text("SELECT * FROM ing_outbox ORDER BY id")).all() == before
        # the same version of a record may be published again
        again = {"id": 10, "key": "x" * 64, "at": None}
        connection.execute(text(statement), again)
