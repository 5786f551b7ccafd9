"""Triggers in Dagster: schedules and sensors of enabled chains, in a code location that loads."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from dagster import (
    DagsterInstance,
    Definitions,
    SensorResult,
    SkipReason,
    build_schedule_context,
    build_sensor_context,
)
from sqlalchemy import Engine, select

import resources
from assets import chains as chain_assets
from platform_defs.chains.definitions import create_chain, set_chain_enabled
from platform_defs.chains.errors import ChainsError
from platform_defs.chains.nodes.catalogue import node_types
from platform_defs.store.tables.chains import job_run
from sensors import chain_triggers
from tests.arrivals.world import write_arrival
from tests.conftest import SharedDatabases, _empty


@pytest.fixture
def engine(migrated: SharedDatabases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """The platform's own database, as the sensors open it."""
    engine = migrated.empty("sqlite")
    monkeypatch.setenv("PLATFORM_HOME", str(tmp_path))
    monkeypatch.setenv("PLATFORM_DB_URL", engine.url.render_as_string(hide_password=False))
    yield engine
    _empty(engine)


@pytest.fixture
def instance() -> Iterator[DagsterInstance]:
    with DagsterInstance.ephemeral() as instance:
        yield instance


def chain(engine: Engine, name: str, *triggers: dict[str, Any], **node: Any) -> str:
    dag = {"nodes": [node or {"id": "a", "type": "print"}], "triggers": list(triggers)}
    return create_chain(engine, node_types(), name=name, description=None, dag_json=dag, actor="ann").chain_id


def load() -> Any:
    """As the code server does: a schedule whose job is missing would stop it from loading."""
    parts = (chain_assets.definitions(), chain_triggers.definitions(), resources.definitions())
    return Definitions.merge(*parts).get_repository_def()


def runs(engine: Engine) -> list[str]:
    with engine.connect() as connection:
        return list(connection.execute(select(job_run.c.run_id)).scalars())


def test_enabled_chains_have_schedules_and_sensors_and_disabled_ones_have_none(engine: Engine) -> None:
    every_day, orders = {"cron": "30 6 * * *", "zone": "Asia/Shanghai"}, {"table": "ORDERS"}
    chain_id = chain(engine, "一号 chain", every_day, orders, every_day, {"cron": "0 7 * * *"})
    chain(engine, "other", orders)
    repository = load()
    zones = {schedule.cron_schedule: schedule.execution_timezone for schedule in repository.schedule_defs}
    assert zones == {"30 6 * * *": "Asia/Shanghai", "0 7 * * *": "UTC"}
    assert len(repository.sensor_defs) == 2
    for definition in (*repository.schedule_defs, *repository.sensor_defs):
        assert repository.has_job(definition.job_name), definition.name
        assert definition.default_status.value == "RUNNING"
        assert definition.description
    names = {definition.name for definition in repository.sensor_defs}
    assert names == {definition.name for definition in load().sensor_defs}
    set_chain_enabled(engine, chain_id, False, actor="ann")
    repository = load()
    assert len(repository.schedule_defs) == 0
    assert len(repository.sensor_defs) == 1


def test_a_tick_of_a_schedule_starts_one_run_and_names_it(engine: Engine, instance: DagsterInstance) -> None:
    chain_id = chain(engine, "c", {"cron": "30 6 * * *", "zone": "Asia/Shanghai"})
    repository = load()
    (schedule,) = repository.schedule_defs
    at = datetime(2026, 11, 16, 22, 30, tzinfo=UTC)
    for _ in range(2):
        with build_schedule_context(instance, at, repository_def=repository) as context:
            result = schedule.evaluate_tick(context)
        assert result.skip_message == f"started run {runs(engine)[0]}"
    assert len(runs(engine)) == 1
    set_chain_enabled(engine, chain_id, False, actor="ann")
    with build_schedule_context(instance, at.replace(day=17), repository_def=repository) as context:
        assert "disabled" in schedule.evaluate_tick(context).skip_message
    assert len(runs(engine)) == 1


def test_ticks_of_a_sensor_start_a_run_for_each_arrival(engine: Engine, instance: DagsterInstance) -> None:
    chain(engine, "c", {"table": "ORDERS"})
    repository = load()
    (sensor,) = repository.sensor_defs
    cursor: str | None = None

    def tick() -> str:
        nonlocal cursor
        with build_sensor_context(instance, cursor, repository_def=repository) as context:
            result = sensor(context)
        assert isinstance(result, SensorResult)
        assert isinstance(result.skip_reason, SkipReason)
        cursor = result.cursor
        return str(result.skip_reason.skip_message)

    assert tick() == "nothing has arrived that no run was started for"
    write_arrival(engine, "ORDERS", "20251219", datetime.now(UTC))
    assert tick() == f"started run {runs(engine)[0]}"
    assert tick() == "nothing has arrived that no run was started for"
    assert len(runs(engine)) == 1


def test_a_start_that_is_refused_fails_the_tick_with_the_reason(engine: Engine, instance: DagsterInstance) -> None:
    chain(engine, "c", {"table": "ORDERS"}, id="a", jobId="missing")
    (sensor,) = load().sensor_defs
    write_arrival(engine, "ORDERS", "20251219", datetime.now(UTC))
    with build_sensor_context(instance) as context, pytest.raises(ChainsError, match="job missing does not exist"):
        sensor(context)
