"""Dagster's instance: in files under the home, or in MySQL behind one pool, never with a password in a file."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from dagster import DagsterInstance, job, op
from sqlalchemy import create_engine, event, text
from sqlalchemy.engine import URL, Engine

from platform_defs import dagster_instance
from platform_defs.dagster_storage.mysql import PooledRunStorage, _engine_of
from platform_defs.errors import StoreError
from platform_defs.runner.launcher import WarmRunLauncher
from platform_defs.settings import Settings
from platform_defs.store.create_database import ensure_database
from tests.conftest import STORES, server_url


@op
def nothing() -> None:
    pass


@job
def nothing_much() -> None:
    nothing()


@pytest.fixture
def settings(tmp_path: Path, database_url: URL, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("PLATFORM_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PLATFORM_DB_URL", database_url.render_as_string(hide_password=False))
    settings = Settings.load()
    dagster_instance.prepare(settings)
    for name, value in dagster_instance.environment(settings).items():
        monkeypatch.setenv(name, value)
    return settings


@pytest.mark.parametrize("database_url", STORES, indirect=True)
def test_a_run_is_recorded_and_found_again_by_another_process(settings: Settings) -> None:
    with DagsterInstance.get() as instance:
        run_id = nothing_much.execute_in_process(instance=instance).run_id
        assert isinstance(instance.run_launcher, WarmRunLauncher)
    with DagsterInstance.get() as again:
        run = again.get_run_by_id(run_id)
        assert run is not None
        assert run.is_success


@pytest.mark.parametrize("database_url", STORES, indirect=True)
def test_partitions_are_listed_and_paged_in_the_order_of_their_keys(settings: Settings) -> None:
    keys = ["20251219", "202512", "20251201", "20251220", "2024", "2025"]
    with DagsterInstance.get() as instance:
        instance.add_dynamic_partitions("op_time", keys)
        instance.add_dynamic_partitions("another", ["2020"])
        assert instance.get_dynamic_partitions("op_time") == sorted(keys)
        for ascending in (True, False):
            found: list[str] = []
            cursor, more = None, True
            while more:
                page = instance.get_paginated_dynamic_partitions("op_time", 2, ascending, cursor)
                found += page.results
                cursor, more = page.cursor, page.has_more
            assert found == sorted(keys, reverse=not ascending)


@pytest.mark.parametrize("database_url", STORES, indirect=True)
def test_a_partition_that_two_processes_add_at_once_is_there_once_and_neither_fails(settings: Settings) -> None:
    with DagsterInstance.get() as instance, DagsterInstance.get() as another:
        met: list[str] = []

        def meet(connection: Any, cursor: Any, statement: str, *more: Any) -> None:
            """The other adds the key after this one has looked, and before this one adds it."""
            if statement.startswith("INSERT") and "dynamic_partitions" in statement and not met:
                met.append(statement)
                another.add_dynamic_partitions("op_time", ["20251219"])

        event.listen(Engine, "before_cursor_execute", meet)
        try:
            instance.add_dynamic_partitions("op_time", ["20251218", "20251219", "20251220"])
        finally:
            event.remove(Engine, "before_cursor_execute", meet)
        assert met
        assert instance.get_dynamic_partitions("op_time") == ["20251218", "20251219", "20251220"]


@pytest.mark.needs("mysql")
@pytest.mark.parametrize("database_url", ["mysql"], indirect=True)
def test_times_that_the_server_fills_in_are_utc_whatever_its_own_time_zone_is(settings: Settings) -> None:
    url = settings.dagster_database_url
    assert url is not None
    with DagsterInstance.get() as instance:
        instance.get_dynamic_partitions("opens a connection")
        with _engine_of(url.render_as_string(hide_password=False)).connect() as connection:
            assert connection.execute(text("SELECT @@session.time_zone")).scalar_one() == "+00:00"


@pytest.mark.needs("mysql")
@pytest.mark.parametrize("database_url", ["mysql"], indirect=True)
def test_a_run_on_mysql_costs_no_handshakes(settings: Settings) -> None:
    url = settings.dagster_database_url
    assert url is not None
    with DagsterInstance.get() as instance:
        assert isinstance(instance.run_storage, PooledRunStorage)
        nothing_much.execute_in_process(instance=instance)
        opened: list[object] = []
        engine: Engine = _engine_of(url.render_as_string(hide_password=False))
        event.listen(engine, "connect", lambda *connection: opened.append(connection))
        nothing_much.execute_in_process(instance=instance)
    assert len(opened) == 0


@pytest.mark.needs("mysql")
@pytest.mark.parametrize("database_url", ["mysql"], indirect=True)
def test_processes_that_start_on_an_empty_database_at_once_all_find_the_tables(
    tmp_path: Path, database_url: URL, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLATFORM_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PLATFORM_DB_URL", database_url.render_as_string(hide_password=False))
    program = (
        "from platform_defs import dagster_instance; from platform_defs.settings import Settings; import os;"
        "settings = Settings.load(); dagster_instance.prepare(settings);"
        "os.environ.update(dagster_instance.environment(settings));"
        "from dagster import DagsterInstance; print(DagsterInstance.get().get_runs_count())"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    ended = [process.communicate() for process in started]
    assert [out.strip() for out, _ in ended] == ["0"] * 4, ended


@pytest.mark.needs("mysql")
@pytest.mark.parametrize("database_url", ["mysql"], indirect=True)
def test_the_password_is_not_in_the_instance_file(
    tmp_path: Path, database_url: URL, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLATFORM_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PLATFORM_DB_URL", database_url.set(password="s3cret").render_as_string(hide_password=False))
    config = dagster_instance.instance_config(Settings.load())
    assert "s3cret" not in str(config)


@pytest.mark.needs("mysql")
def test_a_database_that_may_not_be_created_is_one_line_with_the_statement() -> None:
    server = create_engine(server_url("mysql"), isolation_level="AUTOCOMMIT")
    with server.connect() as connection:
        connection.execute(text("CREATE USER IF NOT EXISTS 'platform_poor'@'%' IDENTIFIED BY ''"))
    try:
        url = server_url("mysql").set(username="platform_poor", database="platform_nobody_may")
        with pytest.raises(StoreError, match=r"CREATE DATABASE IF NOT EXISTS `platform_nobody_may`"):
            ensure_database(url)
    finally:
        with server.connect() as connection:
            connection.execute(text("DROP USER 'platform_poor'@'%'"))
        server.dispose()
