"""Triggers: as people write them, and what they start, exactly once."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from dagster._utils.schedules import is_valid_cron_schedule
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Engine, delete, select

from platform_defs.chain_triggers import ActiveSince, start_arrived, start_scheduled
from platform_defs.chains.cron import cron_problem
from platform_defs.chains.definitions import create_chain, set_chain_enabled, update_chain
from platform_defs.chains.nodes.catalogue import node_types
from platform_defs.chains.triggers import CronTrigger, TableTrigger, parse_triggers, trigger_problems
from platform_defs.store.tables.chains import job_audit, job_run
from tests.arrivals.world import write_arrival

on_sqlite = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
on_servers_too = pytest.mark.parametrize(
    "engine", ["sqlite", pytest.param("mysql", marks=pytest.mark.needs("mysql"))], indirect=True
)
WEEK = timedelta(days=7)
CRON = {"cron": "0 6 * * 1-5", "zone": "Europe/Berlin", "params": {"full": True}}
TABLE = {"table": "ORDERS_yyyymm", "params": {"full": False}}


class TestParsing:
    def test_good_triggers_have_no_problems(self) -> None:
        assert (
            trigger_problems(None)
            == trigger_problems([])
            == trigger_problems([CRON, TABLE, {"cron": "*/5 * * * *"}])
            == []
        )
        assert parse_triggers({"triggers": [CRON, TABLE]}) == (
            CronTrigger("0 6 * * 1-5", "Europe/Berlin", {"full": True}),
            TableTrigger("ORDERS_yyyymm", {"full": False}),
        )

    @pytest.mark.parametrize(
        ("triggers", "problem"),
        [
            ({}, "triggers: expected a list"),
            ([3], "triggers[0]: expected an object"),
            ([{"cron": "x", "table": "y"}], "triggers[0]: expected either cron or table"),
            ([CRON, {}], "triggers[1]: expected either cron or table"),
            ([{"cron": "0 6 * *"}], "triggers[0].cron: expected five fields"),
            ([{"cron": "61 6 * * *"}], "triggers[0].cron: minute: expected a number from 0 to 59"),
            ([{"cron": "0 6 30 2 *"}], "triggers[0].cron: these days and months never come together"),
            ([{"cron": "0 6 * * *", "zone": "Mars/Olympus"}], "triggers[0].zone: expected the name of a time zone"),
            ([{"table": " T "}], "triggers[0].table: expected the name of a table"),
            ([{"table": "T", "zone": "UTC"}], "triggers[0].zone: this field is not known"),
            ([{"table": "T", "params": {"opTime": 1}}], "triggers[0].params.opTime: expected another name"),
            ([{"table": "T", "params": [1]}], "triggers[0].params: expected an object"),
            ([{"table": "T"}] * 21, "triggers: expected at most 20, got 21"),
        ],
    )
    def test_each_problem_is_named_with_its_field(self, triggers: Any, problem: str) -> None:
        assert any(text.startswith(problem) for text in trigger_problems(triggers))

    @given(st.lists(st.text("0123456789*/,-", min_size=1, max_size=6), min_size=5, max_size=5).map(" ".join))
    def test_what_is_accepted_is_a_cron_for_dagster(self, cron: str) -> None:
        if cron_problem(cron) is None:
            assert is_valid_cron_schedule(cron)


def chain(engine: Engine, *triggers: dict[str, Any], name: str = "c", node: dict[str, Any] | None = None) -> str:
    dag = {"nodes": [node or {"id": "a", "type": "print"}], "triggers": list(triggers)}
    return create_chain(engine, node_types(), name=name, description=None, dag_json=dag, actor="ann").chain_id


def runs(engine: Engine) -> list[tuple[Any, ...]]:
    query = select(job_run.c.trigger_text, job_run.c.params, job_run.c.actor).order_by(job_run.c.created_at)
    with engine.connect() as connection:
        return [tuple(row) for row in connection.execute(query)]


@on_servers_too
def test_a_time_of_a_cron_starts_one_run_however_often_it_is_looked_at(engine: Engine) -> None:
    chain_id, (trigger,) = chain(engine, CRON), parse_triggers({"triggers": [CRON]})
    assert isinstance(trigger, CronTrigger)
    at = datetime(2026, 11, 17, 5, tzinfo=UTC)
    first = start_scheduled(engine, chain_id, trigger, at)
    assert start_scheduled(engine, chain_id, trigger, at) == first
    assert start_scheduled(engine, chain_id, trigger, at + timedelta(days=1)) != first
    assert runs(engine)[0] == (
        "schedule 0 6 * * 1-5 Europe/Berlin",
        {"full": True, "scheduledAt": "2026-11-17T05:00:00Z"},
        "trigger",
    )
    set_chain_enabled(engine, chain_id, False, actor="ann")
    assert start_scheduled(engine, chain_id, trigger, at + timedelta(days=2)) is None
    assert len(runs(engine)) == 2


class Table:
    """The sensor of a table trigger, one tick after the other."""

    def __init__(self, engine: Engine, chain_id: str, trigger: dict[str, Any]) -> None:
        self.engine, self.chain_id = engine, chain_id
        (parsed,) = parse_triggers({"triggers": [trigger]})
        assert isinstance(parsed, TableTrigger)
        self.trigger = parsed
        self.known = ActiveSince()

    def tick(self) -> tuple[int, tuple[str, ...]]:
        known = ActiveSince.from_json(self.known.as_json())
        now = datetime.now(UTC)
        done, self.known = start_arrived(self.engine, self.chain_id, self.trigger, known, lookback=WEEK, now=now)
        return len(done.run_ids), done.problems


@on_servers_too
def test_each_arrival_starts_one_run_with_its_batch(engine: Engine) -> None:
    write_arrival(engine, "ORDERS_202512", "20251201", datetime.now(UTC) - timedelta(hours=1))
    table = Table(engine, chain(engine, TABLE), TABLE)
    assert table.tick() == (0, ())
    write_arrival(engine, "ORDERS_202512", "20251219", datetime.now(UTC))
    write_arrival(engine, "ORDERS_202511", "20251219", datetime.now(UTC))
    write_arrival(engine, "STOCK", "20251219", datetime.now(UTC))
    assert table.tick() == (1, ())
    assert table.tick() == (0, ())
    table.known = ActiveSince()
    assert table.tick() == (0, ()), "a cursor that was lost starts nothing twice"
    write_arrival(engine, "ORDERS_202512", "20251219", datetime.now(UTC))
    write_arrival(engine, "ORDERS_202512", "2025-12-20", datetime.now(UTC))
    assert table.tick() == (2, ()), "an arrival that comes again is another arrival"
    assert next(row[:2] for row in runs(engine)) == (
        "table ORDERS_202512 20251219",
        {"full": False, "opTime": "20251219"},
    )
    assert sorted(row[1]["opTime"] for row in runs(engine)) == ["20251219", "20251219", "20251220"]


@on_sqlite
def test_arrivals_count_from_when_the_chain_was_enabled_with_the_trigger(engine: Engine) -> None:
    chain_id = chain(engine, TABLE)
    table = Table(engine, chain_id, TABLE)
    write_arrival(engine, "ORDERS_202512", "20251201", datetime.now(UTC))
    update(engine, chain_id, 1, description="other words", triggers=[TABLE])
    assert table.tick() == (1, ()), "a change of something else hides no arrival"
    set_chain_enabled(engine, chain_id, False, actor="ann")
    write_arrival(engine, "ORDERS_202512", "20251202", datetime.now(UTC))
    assert table.tick() == (0, ())
    set_chain_enabled(engine, chain_id, True, actor="ann")
    assert table.tick() == (0, ()), "what came while it was disabled starts nothing afterwards"
    update(engine, chain_id, 2, description=None, triggers=[])
    write_arrival(engine, "ORDERS_202512", "20251203", datetime.now(UTC))
    assert table.tick() == (0, ())
    update(engine, chain_id, 3, description=None, triggers=[TABLE])
    write_arrival(engine, "ORDERS_202512", "20251204", datetime.now(UTC))
    assert table.tick() == (1, ())


@on_sqlite
def test_a_chain_that_was_enabled_while_the_clock_was_ahead_does_not_wait_for_that_time(engine: Engine) -> None:
    chain_id = chain(engine, TABLE)
    table = Table(engine, chain_id, TABLE)
    with engine.begin() as connection:
        connection.execute(job_audit.update().values(created_at=datetime.now(UTC) + timedelta(hours=8)))
    assert table.tick() == (0, ())
    write_arrival(engine, "ORDERS_202512", "20251201", datetime.now(UTC))
    assert table.tick() == (1, ())


@on_sqlite
@pytest.mark.parametrize("is_changed_later", [False, True])
def test_an_old_chain_whose_audit_was_deleted_starts_runs_also_when_the_cursor_is_lost(
    engine: Engine, is_changed_later: bool
) -> None:
    chain_id = chain(engine, TABLE)
    with engine.begin() as connection:
        connection.execute(delete(job_audit))
    write_arrival(engine, "ORDERS_202512", "20251201", datetime.now(UTC))
    if is_changed_later:
        update(engine, chain_id, 1, description="other words", triggers=[TABLE])
    table = Table(engine, chain_id, TABLE)
    assert table.tick() == (1, ())
    set_chain_enabled(engine, chain_id, False, actor="ann")
    write_arrival(engine, "ORDERS_202512", "20251202", datetime.now(UTC))
    set_chain_enabled(engine, chain_id, True, actor="ann")
    assert table.tick() == (0, ()), "what came while it was disabled starts nothing afterwards"


def update(engine: Engine, chain_id: str, version: int, *, description: str | None, triggers: list[Any]) -> None:
    dag = {"nodes": [{"id": "a", "type": "print"}], "triggers": triggers}
    update_chain(
        engine,
        node_types(),
        chain_id,
        name="c",
        description=description,
        dag_json=dag,
        version=version,
        actor="ann",
    )


@on_sqlite
def test_a_start_that_is_refused_is_told_and_tried_again(engine: Engine) -> None:
    table = Table(engine, chain(engine, TABLE, node={"id": "a", "jobId": "missing"}), TABLE)
    write_arrival(engine, "ORDERS_202512", "20251219", datetime.now(UTC))
    for _ in range(2):
        count, (problem,) = table.tick()
        assert count == 0
        assert problem.startswith("ORDERS_202512 20251219: node a: job missing does not exist")
