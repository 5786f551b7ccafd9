"""New events become observations: one per table and tick, never more than a tick can report, each under its own key."""

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from dagster import DagsterInstance, SensorResult, SkipReason, build_sensor_context
from sqlalchemy import Connection, Engine

from platform_defs.lineage import new_events, observations
from platform_defs.lineage.facts import Ref
from platform_defs.lineage.observations import Position, observation_lag_s, observe
from platform_defs.lineage.sink.rows import linked_tables, stored_rows
from platform_defs.lineage.sink.rows.meanings import Meanings
from platform_defs.lineage.sink.rows.symlinks import add_symlinks
from platform_defs.lineage.tables.seen import note_new_tables
from platform_defs.lineage.version import version_of
from platform_defs.store.tables.lineage import lineage_events
from platform_defs.work import leases, rows
from sensors.lineage import lineage_observations, lineage_recovery
from tests.lineage.fetches import count_fetched
from tests.lineage_events import create_table, run_event

TIME = datetime(2026, 3, 1, tzinfo=UTC)
START = Position()


def store(
    engine: Engine,
    events: list[dict[str, Any]],
    *,
    tenant: int = 7,
    applied: bool = True,
    source_type: str | None = None,
) -> None:
    rows = [
        {
            "tenant_id": tenant,
            "tenant_code": f"t{tenant}",
            "tenant_name": "Tenant",
            "event_time": datetime.fromisoformat(event["eventTime"]),
            "event_type": event["eventType"],
            "run_uuid": event["run"]["runId"],
            "job_name": event["job"]["name"],
            "job_namespace": event["job"]["namespace"],
            "producer": event["producer"],
            "_event_type": "RUN_EVENT",
            "event": event,
            "created_at": TIME,
            "fingerprint": uuid.uuid4().hex * 2,
            "graph_applied_at": TIME if applied else None,
            "source_type": source_type,
        }
        for event in events
    ]
    with engine.begin() as connection:
        connection.execute(lineage_events.insert(), rows)


def at(second: int) -> str:
    return (TIME + timedelta(seconds=second)).isoformat()


def test_a_table_is_observed_once_a_tick_with_its_newest_event_and_the_count(engine: Engine) -> None:
    store(engine, [run_event(job=f"job{second}", time=at(second)) for second in (1, 3, 2)])
    tick = observe(engine, START, without=set())
    found = {observation.table.name: observation for observation in tick.observations}
    assert set(found) == {"raw.orders", "mart.orders"}
    assert (found["mart.orders"].job, found["mart.orders"].events) == ("spark/job3", 3)
    assert found["mart.orders"].written
    assert not found["raw.orders"].written
    assert found["mart.orders"].columns == (("id", "bigint"), ("amount", "decimal(10,2)"))
    assert observe(engine, tick.position, without=set()).observations == []


def test_only_tables_of_a_catalogs_events_are_observed(engine: Engine) -> None:
    """Gravitino also sends schemas, metrics and tags as datasets; an engine's datasets are all tables."""
    operations = ("create_table", "alter_table", "create_schema", "register_metric", "create_tag", "associate_tags")
    for operation in operations:
        event = create_table((7, "t7", "Tenant"), f"sales.{operation}", operation=operation, time=at(1))
        store(engine, [event], source_type="gravitino")
    store(engine, [run_event(job="gravitino.register_metric", writes=("mart.metric",), reads=())])
    tick = observe(engine, START, without=set())
    names = {observation.table.name.rpartition(".")[2] for observation in tick.observations}
    assert names == {"create_table", "alter_table", "metric"}


def test_a_tick_reports_a_bounded_number_of_tables_and_the_next_one_goes_on(engine: Engine) -> None:
    store(engine, [run_event(reads=(), writes=(f"mart.t{number}",)) for number in range(501)])
    first = observe(engine, START, without=set())
    second = observe(engine, first.position, without=set())
    assert (len(first.observations), len(second.observations)) == (500, 1)


def test_an_event_of_more_tables_than_a_tick_reports_is_told_in_several(engine: Engine) -> None:
    many = tuple(f"mart.t{number}" for number in range(1100))
    store(engine, [run_event(reads=(), writes=("mart.before",)), run_event(reads=(), writes=many), run_event()])
    position, ticks = START, []
    while (tick := observe(engine, position, without=set())).position != position:
        ticks.append([observation.table.name for observation in tick.observations])
        position = Position.read(str(tick.position))
    assert [len(names) for names in ticks] == [1, 500, 500, 102]
    assert sorted(name for names in ticks for name in names) == sorted(
        [*many, "mart.before", "raw.orders", "mart.orders"]
    )


def test_the_sensors_hold_no_more_large_events_at_a_time_than_fit(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They read 500 at once, which may have 6 MiB each."""
    store(engine, [run_event(job=f"job{number}") for number in range(8)])
    fetched = count_fetched(monkeypatch, new_events)
    monkeypatch.setattr(stored_rows, "EVENTS_AT_ONCE", 3)
    monkeypatch.setattr(new_events, "PAGE", 5)
    assert observe(engine, START, without=set()).observations[0].events == 8
    assert fetched == [3, 2, 3]
    assert note_new_tables(engine) == 8
    assert fetched == [3, 2, 3] * 2


def test_of_all_symlinks_of_a_tenant_only_those_of_the_events_names_are_read(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def path(number: int, schema: str) -> Ref:
        return Ref("table", ("s3://b", "s3://b", schema, str(number)))

    said = [(path(number, "./"), path(number, "default")) for number in range(20)]
    add_symlinks(engine, 7, {name: [(version_of(TIME, ""), table)] for name, table in said})
    event = run_event(reads=(), writes=())
    event["outputs"] = [{"namespace": "s3://b", "name": f"{number}"} for number in (3, 4)]
    store(engine, [event, event])
    asked: list[int] = []
    read_meanings = linked_tables.read_meanings

    def noting(connection: Connection, tenant_id: int, names: set[Ref]) -> Meanings:
        found = read_meanings(connection, tenant_id, names)
        asked.append(len(found))
        return found

    monkeypatch.setattr(linked_tables, "read_meanings", noting)
    tick = observe(engine, START, without=set())
    assert sorted(one.table.name for one in tick.observations) == ["default.3", "default.4"]
    assert asked == [2]


def test_a_position_is_read_from_the_cursor_also_of_a_release_that_knew_only_ids() -> None:
    assert [Position.read(text) for text in (None, "", "12", "12+500")] == [
        START,
        START,
        Position(12),
        Position(12, 500),
    ]


@pytest.mark.parametrize("odd", ["oops", {"name": "x"}, [1]], ids=["text", "unnamed", "list"])
def test_an_event_with_something_odd_in_it_does_not_keep_the_others(engine: Engine, odd: object) -> None:
    store(engine, [run_event() | {"dataset": odd}, run_event(reads=(), writes=("mart.next",))])
    names = {observation.table.name for observation in observe(engine, START, without=set()).observations}
    assert names == {"raw.orders", "mart.orders", "mart.next"}


def test_an_event_that_no_longer_parses_is_passed_over_with_one_line(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    store(engine, [run_event() | {"outputs": ["oops"]}, run_event()])
    tick = observe(engine, START, without=set())
    assert {observation.events for observation in tick.observations} == {1}
    assert observe(engine, tick.position, without=set()).observations == []
    (line,) = caplog.messages
    assert "is not observed: outputs[0]: expected an object" in line


def test_a_tenant_that_is_switched_off_is_passed_over(engine: Engine) -> None:
    store(engine, [run_event()], tenant=7)
    store(engine, [run_event()], tenant=8)
    tick = observe(engine, START, without={7})
    assert {observation.table.tenant_id for observation in tick.observations} == {8}
    assert observe(engine, tick.position, without=set()).observations == []


def test_the_lag_is_the_age_of_the_oldest_event_not_observed(engine: Engine) -> None:
    assert observation_lag_s(engine) == 0
    store(engine, [run_event()])
    assert observation_lag_s(engine) > 0
    observations.save_position(engine, observe(engine, START, without=set()).position.last_id)
    assert observation_lag_s(engine) == 0


@pytest.fixture
def home(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    from platform_defs.settings import Settings
    from platform_defs.store import migrate
    from platform_defs.store.engine import open_engine

    monkeypatch.setenv("PLATFORM_HOME", str(tmp_path))
    opened = open_engine(Settings.load().database_url)
    migrate.upgrade(opened)
    yield opened
    opened.dispose()


def test_the_sensor_shows_external_tables_with_their_job_and_schema(home: Engine) -> None:
    store(home, [run_event(job="nightly")])
    with DagsterInstance.ephemeral() as instance:
        result = lineage_observations(build_sensor_context(instance=instance))
        assert isinstance(result, SensorResult)
        found = {event.asset_key.path[-1]: event for event in result.asset_events}
        written = found["mart.orders"]
        assert written.asset_key.path == ["lineage", "7", "hive~~warehouse", "mart.orders"]
        assert written.metadata["producing job"].value == "spark/nightly"
        columns = written.metadata["dagster/column_schema"].value.columns
        assert [column.name for column in columns] == ["id", "amount"]
        again = lineage_observations(build_sensor_context(instance=instance, cursor=result.cursor))
        assert isinstance(again, SkipReason)


def test_a_table_that_arrivals_know_too_is_observed_under_their_key(
    home: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLATFORM_ARRIVALS_NAMESPACE", "hive://warehouse")
    event = run_event()
    event["inputs"][0]["namespace"] = "hive://elsewhere"
    store(home, [event])
    with DagsterInstance.ephemeral() as instance:
        result = lineage_observations(build_sensor_context(instance=instance))
    assert isinstance(result, SensorResult)
    assert sorted(event.asset_key.path for event in result.asset_events) == [
        ["lineage", "7", "hive~~elsewhere", "raw.orders"],
        ["tables", "mart.orders"],
    ]


def test_a_file_with_a_symlink_is_observed_as_the_table_that_it_stands_for(engine: Engine) -> None:
    event = run_event(reads=(), writes=())
    identifier = {"namespace": "hive://warehouse", "name": "mart.orders", "type": "TABLE"}
    facets = {"symlinks": {"identifiers": [identifier]}}
    event["outputs"] = [{"namespace": "s3://bucket", "name": "/mart/orders", "facets": facets}]
    store(engine, [event, run_event()])
    names = {(found.table.namespace, found.table.name) for found in observe(engine, START, without=set()).observations}
    assert names == {("hive://warehouse", "mart.orders"), ("hive://warehouse", "raw.orders")}


def test_the_sensor_can_be_switched_off(home: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    store(home, [run_event()])
    monkeypatch.setenv("PLATFORM_LINEAGE_OBSERVE", "false")
    with DagsterInstance.ephemeral() as instance:
        assert isinstance(lineage_observations(build_sensor_context(instance=instance)), SkipReason)


def test_the_recovery_sensor_writes_one_row_of_work_while_the_graph_lacks_events(
    home: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    # every tick has an interval of its own, so only the open row of work prevents another one
    monkeypatch.setattr("sensors.lineage.RECOVERY_INTERVAL_S", 1e-6)
    with DagsterInstance.ephemeral() as instance:
        lineage_recovery(build_sensor_context(instance=instance))
        assert leases.claim(home, "test", 10) == []
        store(home, [run_event()], applied=False)
        for _ in range(2):
            lineage_recovery(build_sensor_context(instance=instance))
        (row,) = leases.claim(home, "test", 10)
        assert row.kind == "lineage_apply"
        lineage_recovery(build_sensor_context(instance=instance))
        assert leases.claim(home, "test", 10) == []
        rows.finish(home, row.id, rows.Status.FAILED)
        lineage_recovery(build_sensor_context(instance=instance))
        assert len(leases.claim(home, "test", 10)) == 1
