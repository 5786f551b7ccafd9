"""A partition whose source has trouble does less for a while, whichever executor noticed it."""

import json
import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from click.testing import CliRunner
from sqlalchemy import Engine, update

from platform_defs.api.ingest.metrics import IngestCollector
from platform_defs.commands.ingest.harvesting import command
from platform_defs.ingest.codes import ErrorLevel, PlanStatus, TaskStatus
from platform_defs.ingest.errors import ResponseError
from platform_defs.ingest.execution.task_ends import LONGEST_WAIT
from platform_defs.ingest.fetching.source import Fetched
from platform_defs.ingest.opening import open_environment
from platform_defs.ingest.tasks.health import (
    FEWEST,
    HOLDS_FOR,
    LOOK_BACK,
    LOWER_AGAIN_AFTER,
    HealthWatch,
    Seen,
    Thresholds,
    Trouble,
    lower_limit,
    lowered,
    read_limits,
    seen_in,
    seen_in_error,
    trouble_in,
)
from platform_defs.store.engine import transact
from platform_defs.store.tables.ingest import ing_partition_limit, ing_task
from tests.ingest.execution.memory_source import MemorySource
from tests.ingest.execution.test_executor import GRID, Clock, executor, items_of, listed, paged, stored
from tests.ingest.planning.test_planner import BUSY, NOW, plan, rows_of

PARTITION = ("made_up", "items", "HARVEST")


class Complaining(MemorySource):
    """A source that answers 429 to every request before it answers; notes how many tasks were worked on meanwhile."""

    complains = True

    def fetch(self, *arguments: Any, **more: Any) -> Fetched:
        found = super().fetch(*arguments, **more)
        return replace(found, counts={"latencyMs": 1, **({"retryCount": 1, "429Count": 1} if self.complains else {})})


def test_after_complaints_fewer_slices_run_at_a_time_until_some_minutes_have_passed(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, clock = replace(paged(), max_concurrent_slices=4), Clock()
    source, at_once = Complaining(spec.pagination, items_of(24)), list[int]()

    def trouble(number: int) -> None:
        at_once.append(sum(task.status_code == TaskStatus.EXECUTING for task in rows_of(engine, ing_task)))

    source.trouble = trouble

    def fetch(number: int) -> int:
        """The most tasks that were worked on at a time."""
        at_once.clear()
        planned = plan(engine, spec, GRID.window(number), BUSY, now=clock())
        states = executor(engine, source, clock, threads=4).drain_plans([planned.plan_id])
        assert set(states.values()) == {PlanStatus.COMPLETED}
        return max(at_once)

    assert fetch(0) == 4
    [limit] = read_limits(engine, clock()).values()
    assert (limit.partition, limit.max_concurrent) == (PARTITION, 2)
    assert "the source answered 429 to" in limit.reason
    source.complains = False
    assert fetch(1) == 2, "another executor has read it"
    clock.pass_by(HOLDS_FOR)
    assert fetch(2) == 4
    assert stored(engine) == listed(source.items)

    monkeypatch.setenv("PLATFORM_DB_URL", engine.url.render_as_string(hide_password=False))
    assert (
        CliRunner().invoke(command, ["status"]).output == "no task waits or was given up, and no endpoint is blocked\n"
    )
    far = NOW + timedelta(days=40_000)
    transact(engine, lambda connection: connection.execute(update(ing_partition_limit).values(holds_until=far)))
    assert f"made_up/items harvest: 2 slices at a time until {far:%F %T} UTC, because the source answered 429" in (
        CliRunner().invoke(command, ["status"]).output
    )
    assert json.loads(CliRunner().invoke(command, ["status", "--json"]).output)["lowered"][0]["slices"] == 2
    metrics = {metric.name: metric.samples for metric in IngestCollector(engine).collect()}
    assert [sample.value for sample in metrics["platform_ingest_slices_lowered_to"]] == [2]


def test_a_network_that_breaks_off_lets_fewer_slices_run_at_a_time_and_loses_nothing(engine: Engine) -> None:
    spec, clock = replace(paged(), max_concurrent_slices=4), Clock()

    def broken(number: int) -> None:
        if number <= FEWEST:
            raise ResponseError(ErrorLevel.TRANSIENT, "NO_ANSWER", "GET /items: no answer (connection reset)")

    source = MemorySource(spec.pagination, items_of(24), trouble=broken)
    planned = plan(engine, spec, GRID.window(0), BUSY, now=clock())
    working = executor(engine, source, clock)
    working.drain_everything()
    [limit] = read_limits(engine, clock()).values()
    assert (limit.partition, limit.max_concurrent) == (PARTITION, 2)
    assert re.fullmatch(f"{FEWEST} of \\d+ requests failed within 5 minutes", limit.reason)
    clock.pass_by(LONGEST_WAIT)
    assert working.drain_plans([planned.plan_id]) == {planned.plan_id: PlanStatus.COMPLETED}
    assert stored(engine) == listed(source.items)


def test_slices_that_make_each_other_wait_for_the_database_become_fewer(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    # as if every wait were too long
    monkeypatch.setenv("PLATFORM_INGEST_SLOW_PAGE_S", "77")
    with open_environment(engine, threads=4) as opened:
        assert opened.thresholds == Thresholds(slow_page_s=77)
        waiting = replace(opened, thresholds=replace(opened.thresholds, slow_database_s=-1))
    spec = replace(paged(), max_concurrent_slices=4)
    source = MemorySource(spec.pagination, items_of(24))
    planned = plan(engine, spec, GRID.window(0), BUSY)
    working = replace(waiting, open_source=lambda spec: source).executor()
    working.clock = Clock()
    assert working.drain_plans([planned.plan_id]) == {planned.plan_id: PlanStatus.COMPLETED}
    [limit] = read_limits(engine, NOW).values()
    assert limit.max_concurrent == 2
    assert "for the database on average" in limit.reason


def test_several_executors_lower_a_limit_once_a_minute_and_never_to_nothing(engine: Engine) -> None:
    trouble, now, found = Trouble("429"), NOW, list[int | None]()
    for pause in (timedelta(0), timedelta(0), LOWER_AGAIN_AFTER, LOWER_AGAIN_AFTER, HOLDS_FOR):
        now += pause
        limit = lower_limit(engine, PARTITION, trouble, full=4, now=now)
        found.append(None if limit is None else limit.max_concurrent)
    assert found == [2, None, 1, 1, 2]
    assert lower_limit(engine, ("a", "b", "c"), trouble, full=1, now=now) is None
    assert list(read_limits(engine, now)) == [PARTITION]


def test_what_is_trouble_and_what_is_not() -> None:
    assert trouble_in(Seen(requests=100, count_429=5)) is None
    assert trouble_in(Seen(requests=100, count_429=6)) is not None
    assert trouble_in(Seen(requests=2, count_429=2)) is None, "too few to tell"
    assert trouble_in(Seen(requests=150, errors=3)) is None
    assert trouble_in(Seen(requests=149, errors=3)) is not None
    assert trouble_in(Seen(requests=3, pages=3, latency_ms=9000)) is None
    assert trouble_in(Seen(requests=3, pages=3, latency_ms=9001)) == Trouble(
        "a page took 3.0 s on average within 5 minutes", keeps_half=True
    )
    assert trouble_in(Seen(requests=3, pages=3, database_wait_ms=600)) is None
    assert trouble_in(Seen(requests=3, pages=3, database_wait_ms=601)) == Trouble(
        "a page waited 0.2 s for the database on average within 5 minutes", keeps_half=True
    )
    assert trouble_in(Seen(requests=100, count_429=6), Thresholds(most_429=0.1)) is None
    assert [lowered(at, 8, Trouble("slow", keeps_half=True)) for at in (8, 4, 2)] == [4, 4, 2]
    assert seen_in({"reqCount": 2, "retryCount": 3, "429Count": 2, "latencyMs": 7}) == Seen(5, 2, 1, 1, 7)
    assert seen_in_error(ResponseError(ErrorLevel.TRANSIENT, "HTTP_429", "")) == Seen(requests=1, count_429=1)
    assert seen_in_error(ResponseError(ErrorLevel.TRANSIENT, "GATE_QUOTA_DAILY", "")) == Seen()
    watch = HealthWatch()
    for _ in range(3):
        watch.note(PARTITION, Seen(requests=1, errors=1), NOW, full=4)
    assert watch.troubles(NOW + LOOK_BACK + timedelta(seconds=10)) == {}, "long ago"
    for _ in range(3):
        watch.note(PARTITION, Seen(requests=1, errors=1), NOW, full=4)
    assert list(watch.troubles(NOW)) == [PARTITION]
    assert watch.troubles(NOW) == {}, "a verdict is about what happened since the last one"
