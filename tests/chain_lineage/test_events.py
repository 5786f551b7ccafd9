"""OpenLineage events of chains in the platform's own sink: all of them, each once, whatever happens to the sink."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from dagster import DagsterInstance, SensorResult, SkipReason, build_sensor_context
from sqlalchemy import Connection, Engine, select, update

from platform_defs.access.tenants import DEMO_TENANT, Tenant, add_tenant
from platform_defs.chain_lineage import Position, new_events, node_run_id
from platform_defs.chains import audit
from platform_defs.chains.definitions import create_chain
from platform_defs.chains.runs.operations import complete_node, stop_run
from platform_defs.store.engine import read
from platform_defs.store.tables.chains import job_run
from platform_defs.store.tables.lineage import lineage_events
from sensors import chain_lineage as sensor_module
from sensors.chain_lineage import chain_lineage
from tests.chains.nodes.drivers import Drivers, calling
from tests.conftest import SharedDatabases, _empty

PRINT = {"id": "p", "type": "print"}
FAILING = {"id": "f", "type": "print", "cfg": {"message": "${params.missing}"}}


@pytest.fixture
def engine(migrated: SharedDatabases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """The platform's own database, as the sensors open it."""
    engine = migrated.empty("sqlite")
    monkeypatch.setenv("PLATFORM_HOME", str(tmp_path))
    monkeypatch.setenv("PLATFORM_DB_URL", engine.url.render_as_string(hide_password=False))
    add_tenant(engine, DEMO_TENANT)
    sensor_module._sent.clear()
    yield engine
    _empty(engine)


class Sensor:
    """One tick after the other, with the cursor that Dagster keeps."""

    def __init__(self, instance: DagsterInstance) -> None:
        self.instance = instance
        self.cursor: str | None = None

    def tick(self) -> str:
        with build_sensor_context(self.instance, self.cursor) as context:
            result = chain_lineage(context)
        if isinstance(result, SkipReason):
            return str(result.skip_message)
        assert isinstance(result, SensorResult)
        assert isinstance(result.skip_reason, SkipReason)
        self.cursor = result.cursor
        return str(result.skip_reason.skip_message)


@pytest.fixture
def sensor() -> Iterator[Sensor]:
    with DagsterInstance.ephemeral() as instance:
        yield Sensor(instance)


def stored(engine: Engine) -> list[dict[str, Any]]:
    query = select(lineage_events.c.event).order_by(lineage_events.c.event_time, lineage_events.c.id)
    with engine.connect() as connection:
        return [dict(event) for event in connection.execute(query).scalars()]


def names(engine: Engine) -> list[tuple[str, str]]:
    return [(event["job"]["name"], event["eventType"]) for event in stored(engine)]


def test_runs_and_nodes_tell_their_begin_their_end_and_what_is_above_them(engine: Engine, sensor: Sensor) -> None:
    drivers = Drivers(engine)
    drivers.chain("sub", PRINT)
    run_id = drivers.start(drivers.chain("top", calling("sub")))
    drivers.until_ended(run_id)
    assert sensor.tick() == "sent 8 events to tenant 1"
    assert sorted(names(engine)) == sorted(
        (name, kind) for name in ("top", "top.n", "sub", "sub.p") for kind in ("START", "COMPLETE")
    )
    by_job = {event["job"]["name"]: event for event in stored(engine)}
    sub_run = drivers.node(run_id).artifact_json["runId"]
    above = {name: event["run"]["facets"].get("parent", {}).get("run") for name, event in by_job.items()}
    assert above == {
        "top": None,
        "top.n": {"runId": run_id},
        "sub": {"runId": node_run_id(run_id, "n")},
        "sub.p": {"runId": sub_run},
    }
    assert by_job["top"]["run"]["runId"] == run_id
    assert by_job["sub"]["run"]["facets"]["parent"]["job"]["name"] == "top.n"


def test_looking_again_sends_nothing_twice_also_after_a_restart(engine: Engine, sensor: Sensor) -> None:
    drivers = Drivers(engine)
    chain = drivers.chain("c", PRINT)
    drivers.until_ended(drivers.start(chain))
    assert sensor.tick() == "sent 4 events to tenant 1"
    assert sensor.tick() == "sent 0 events to tenant 1"
    sensor_module._sent.clear()
    sensor.cursor = None
    assert sensor.tick() == "sent 4 events to tenant 1"
    assert len(stored(engine)) == 4
    drivers.until_ended(drivers.start(chain))
    assert sensor.tick() == "sent 4 events to tenant 1"
    assert len(stored(engine)) == 8


def test_a_failure_is_told_although_somebody_completed_the_node_before_anyone_looked(
    engine: Engine, sensor: Sensor
) -> None:
    drivers = Drivers(engine)
    sensor.tick()
    run_id = drivers.start(drivers.chain("c", FAILING, {**PRINT, "dependsOn": ["f"]}))
    assert drivers.until_ended(run_id) == "FAILED"
    complete_node(engine, run_id, "f", actor="ann", artifact={"by": "hand"})
    assert drivers.until_ended(run_id) == "SUCCESS"
    sensor.tick()
    kinds = names(engine)
    assert [kind for name, kind in kinds if name == "c"] == ["START", "FAIL", "COMPLETE"]
    assert [kind for name, kind in kinds if name == "c.f"] == ["START", "FAIL", "COMPLETE"]
    assert [kind for name, kind in kinds if name == "c.p"] == ["START", "COMPLETE"]
    (failed,) = [event for event in stored(engine) if event["job"]["name"] == "c.f" and event["eventType"] == "FAIL"]
    assert "params.missing is missing" in failed["run"]["facets"]["errorMessage"]["message"]


def test_a_stop_is_an_abort(engine: Engine, sensor: Sensor) -> None:
    drivers = Drivers(engine)
    run_id = drivers.start(drivers.chain("c", {"id": "h", "type": "hold"}))
    asked: list[str] = []

    def stop_once() -> None:
        if drivers.hold.begun.is_set() and not asked:
            asked.append(run_id)
            stop_run(engine, run_id, actor="ann")

    assert drivers.until_ended(run_id, stop_once) == "STOPPED"
    sensor.tick()
    assert sorted(names(engine)) == [("c", "ABORT"), ("c", "START"), ("c.h", "ABORT"), ("c.h", "START")]


def test_what_happens_while_the_sink_is_away_is_told_afterwards(
    engine: Engine, sensor: Sensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    drivers = Drivers(engine)
    sensor.tick()
    monkeypatch.setenv("PLATFORM_GRAPH_URL", "bolt://127.0.0.1:1")
    assert drivers.until_ended(drivers.start(drivers.chain("c", PRINT))) == "SUCCESS"
    with pytest.raises(Exception, match=r"127\.0\.0\.1"):
        sensor.tick()
    monkeypatch.delenv("PLATFORM_GRAPH_URL")
    assert sensor.tick() == "sent 4 events to tenant 1"
    assert len(stored(engine)) == 4


def test_what_happens_after_a_clock_was_ahead_is_told_too(engine: Engine, sensor: Sensor) -> None:
    drivers = Drivers(engine)
    ahead = drivers.start(drivers.chain("ahead", PRINT))
    drivers.until_ended(ahead)
    to_come = datetime.now(UTC) + timedelta(hours=8)
    with engine.begin() as connection:
        connection.execute(update(job_run).where(job_run.c.run_id == ahead).values(updated_at=to_come))
    sensor.tick()
    drivers.until_ended(drivers.start(drivers.chain("afterwards", PRINT)))
    sensor.tick()
    assert {("afterwards", "START"), ("afterwards", "COMPLETE"), ("afterwards.p", "COMPLETE")} <= set(names(engine))


@pytest.mark.needs("mysql")
def test_an_operation_that_was_committed_after_a_later_one_had_been_read_is_told(migrated: SharedDatabases) -> None:
    engine = migrated.empty("mysql")
    drivers = Drivers(engine)
    run_id = drivers.start(drivers.chain("c", PRINT))
    drivers.until_ended(run_id)
    now = datetime.now(UTC)
    failed = {"status": "FAILED", "endedAt": now.isoformat(), "lastError": "no luck"}

    def operate(connection: Connection, before: dict[str, Any]) -> None:
        audit.record(connection, actor="ann", action="node.retry", object_id=run_id, node_id="p", before=before)

    try:
        with engine.begin() as slow:
            operate(slow, failed)
            with engine.begin() as quick:
                operate(quick, {})
            _, position = read(engine, lambda connection: new_events(connection, Position(now, 0)))
        events, _ = read(engine, lambda connection: new_events(connection, position))
    finally:
        _empty(engine)
    assert [event["job"]["name"] for event in events if event["eventType"] == "FAIL"] == ["c.p"]


def test_the_tenant_is_the_one_that_is_configured_or_the_only_one(
    engine: Engine, sensor: Sensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_tenant(engine, Tenant(7, "other", "Other"))
    assert "PLATFORM_CHAIN_LINEAGE_TENANT" in sensor.tick()
    monkeypatch.setenv("PLATFORM_CHAIN_LINEAGE_TENANT", "7")
    assert sensor.tick() == "sent 0 events to tenant 7"
    monkeypatch.setenv("PLATFORM_CHAIN_LINEAGE", "false")
    assert sensor.tick() == "PLATFORM_CHAIN_LINEAGE is off"


def test_many_changes_are_read_in_several_looks(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    drivers = Drivers(engine)
    nodes = [{"id": f"n{number}", "type": "print"} for number in range(40)]
    drivers.until_ended(drivers.start(drivers.chain("wide", *nodes)))
    monkeypatch.setattr("platform_defs.chain_lineage.ROWS_PER_LOOK", 15)
    position, seen, looks = Position(datetime(2020, 1, 1, tzinfo=UTC), 0), set(), 0
    while True:
        events, after = read(engine, lambda connection, at=position: new_events(connection, at))  # type: ignore[misc]
        seen |= {(event["job"]["name"], event["eventType"]) for event in events}
        looks += 1
        if after == position:
            break
        position = after
    assert looks > 2
    assert len(seen) == 82


def test_an_event_that_the_sink_refuses_is_logged_once_and_keeps_back_no_other(
    engine: Engine, sensor: Sensor, caplog: pytest.LogCaptureFixture
) -> None:
    drivers = Drivers(engine)
    nameless, named = (drivers.start(drivers.chain(name, PRINT)) for name in ("a", "b"))
    for run_id in (nameless, named):
        drivers.until_ended(run_id)
    with engine.begin() as connection:
        connection.execute(update(job_run).where(job_run.c.run_id == nameless).values(job_name=" "))
    sensor.tick()
    assert {("b", "START"), ("b", "COMPLETE"), ("b.p", "COMPLETE")} <= set(names(engine))
    assert f"run {nameless}, is not sent, because the sink refuses it: job.name: expected" in caplog.text
    caplog.clear()
    assert sensor.tick() == "sent 0 events to tenant 1"
    assert caplog.text == ""


def test_a_chain_whose_job_is_blank_is_called_by_its_own_name(engine: Engine) -> None:
    drivers = Drivers(engine)
    chain = create_chain(
        engine, drivers.types, name="c", description=None, dag_json={"job": "  ", "nodes": [PRINT]}, actor="ann"
    )
    assert drivers.column(drivers.start(chain.chain_id), job_run.c.job_name) == "c"
