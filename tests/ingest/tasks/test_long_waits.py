"""A run holds no place for hours while its source wants a pause: its window says until when, and goes on then."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine

from platform_defs.ingest.codes import ErrorLevel, Operation, PlanStatus, TaskStatus
from platform_defs.ingest.errors import ResponseError
from platform_defs.ingest.execution import executor as executor_module
from platform_defs.ingest.execution.task_ends import MAX_ATTEMPTS
from platform_defs.ingest.ledger.forgotten import is_forgotten
from platform_defs.ingest.ledger.queue import waits_until
from platform_defs.ingest.materialisation import Listener, PartitionResult, drain_everything, materialise_windows
from platform_defs.ingest.planning.slices import Estimate
from platform_defs.ingest.planning.windows import Window
from platform_defs.ingest.tasks.leases import LEASE, lease_tasks
from platform_defs.ingest.tasks.waiting import LONG_WAIT
from platform_defs.store.tables.ingest import ing_plan, ing_task
from tests.ingest.execution.memory_source import MemorySource
from tests.ingest.execution.test_executor import DAY, GRID, Clock, executor, items_of, paged, stored
from tests.ingest.planning.test_planner import NOW, plan, rows_of
from tests.ingest.test_materialisation import CONTEXT, environment

SPENT = "the rate gate lets nothing through in time (QUOTA_DAILY)"
NAMES = ("made_up", "items", Operation.HARVEST)


class SpentQuota:
    """Refuses every request from the given one on, until the clock has come to `until`."""

    def __init__(self, clock: Clock, wait: timedelta, *, first: int = 1) -> None:
        self.clock, self.until, self.first = clock, clock.now + wait, first

    def __call__(self, number: int) -> None:
        if number >= self.first and self.clock.now < self.until:
            raise ResponseError(ErrorLevel.TRANSIENT, "GATE_QUOTA_DAILY", SPENT, not_before=self.until)


class Passing(Clock):
    """Each look at it takes a minute."""

    def __call__(self) -> Any:
        self.pass_by(timedelta(minutes=1))
        return super().__call__()


def materialised(engine: Engine, source: MemorySource, clock: Clock, *windows: Window) -> list[PartitionResult]:
    working = replace(environment(engine, source), clock=clock)
    return materialise_windows(working, *NAMES, windows, CONTEXT)


def test_a_run_ends_while_its_source_wants_a_long_pause_and_each_window_says_until_when(engine: Engine) -> None:
    clock = Clock()
    source = MemorySource(paged().pagination, items_of(5))
    source.trouble = SpentQuota(clock, timedelta(hours=20), first=2)
    windows = [GRID.window(number) for number in range(3)]
    results = materialised(engine, source, clock, *windows)
    assert [result.report.status for result in results] == [PlanStatus.COMPLETED, PlanStatus.READY, PlanStatus.READY]
    said = f"slice 1: waits until {NOW + timedelta(hours=20):%F %T} UTC ({SPENT})"
    assert {result.report.unfinished for result in results if not result.is_complete} == {(said,)}
    assert {result.report.is_under_way for result in results if not result.is_complete} == {True}
    assert len(source.requests) == 3, "each window asked once and was put back"


def test_what_waits_is_fetched_by_a_run_for_others_when_it_is_due(engine: Engine) -> None:
    clock = Clock()
    source = MemorySource(paged().pagination, items_of(5))
    source.trouble = SpentQuota(clock, timedelta(hours=20))
    [result] = materialised(engine, source, clock, DAY)
    assert not result.is_complete
    minute = timedelta(minutes=1)
    assert waits_until(engine, *NAMES, clock.now) == NOW + timedelta(hours=20)
    assert not is_forgotten(engine, clock.now + timedelta(hours=19), waiting_for=minute)
    clock.pass_by(timedelta(hours=20, minutes=2))
    assert waits_until(engine, *NAMES, clock.now) is None
    assert is_forgotten(engine, clock.now, waiting_for=minute)
    drain_everything(replace(environment(engine, source), clock=clock), Listener())
    assert [row.status_code for row in rows_of(engine, ing_plan)] == [PlanStatus.COMPLETED]
    assert len(stored(engine)) == 5


def test_days_behind_a_spent_quota_are_no_attempts_and_failures_between_them_still_count(engine: Engine) -> None:
    """A backfill shares its quota with others: on each of many days there may be nothing left for this window."""
    clock, day = Clock(), timedelta(days=1)
    source = MemorySource(paged().pagination, items_of(5))
    planned = plan(engine, paged(), DAY, Estimate())
    runner = executor(engine, source, clock)

    def fails(number: int) -> None:
        raise ResponseError(ErrorLevel.TRANSIENT, "HTTP_503", "the source says no")

    between = MAX_ATTEMPTS + 1
    for number in range(between * MAX_ATTEMPTS):
        # now and then the source itself fails
        source.trouble = SpentQuota(clock, day) if (number + 1) % between else fails
        runner.drain_everything()
        [task] = rows_of(engine, ing_task)
        assert task.retry_count == number + 1
        clock.pass_by(2 * day)
        is_last = number == between * MAX_ATTEMPTS - 1
        assert task.status_code == (TaskStatus.PARTIAL if is_last else TaskStatus.QUEUED), number
    source.trouble = lambda number: None
    assert plan(engine, paged(), DAY, Estimate(), now=clock()).continued
    assert runner.drain_plans([planned.plan_id]) == {planned.plan_id: PlanStatus.COMPLETED}


def test_a_window_that_waits_for_its_quota_for_weeks_is_fetched_in_the_end(engine: Engine) -> None:
    clock, day = Clock(), timedelta(days=1)
    source = MemorySource(paged().pagination, items_of(5))
    planned = plan(engine, paged(), DAY, Estimate())
    runner = executor(engine, source, clock)
    for _ in range(4 * MAX_ATTEMPTS):
        source.trouble = SpentQuota(clock, day)
        runner.drain_everything()
        clock.pass_by(day)
    assert rows_of(engine, ing_task)[0].last_error_code == "GATE_QUOTA_DAILY"
    assert runner.drain_plans([planned.plan_id]) == {planned.plan_id: PlanStatus.COMPLETED}


@pytest.mark.parametrize("wait", [timedelta(seconds=40), LONG_WAIT])
def test_a_short_pause_is_waited_for(engine: Engine, monkeypatch: pytest.MonkeyPatch, wait: timedelta) -> None:
    monkeypatch.setattr(executor_module, "LOOK_S", 0.01)
    clock = Passing()
    source = MemorySource(paged().pagination, items_of(5))
    source.trouble = SpentQuota(clock, wait)
    planned = plan(engine, paged(), DAY, Estimate())
    assert executor(engine, source, clock).drain_plans([planned.plan_id]) == {planned.plan_id: PlanStatus.COMPLETED}


def test_another_executor_that_works_on_the_same_plan_is_waited_for(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor_module, "LOOK_S", 0.01)
    clock = Passing()
    source = MemorySource(paged().pagination, items_of(35))
    planned = plan(engine, paged(), DAY, Estimate(records_per_hour=30))
    first, *others = rows_of(engine, ing_task)
    [held] = lease_tasks(engine, "another", 1, now=clock.now, lease=5 * LEASE)
    assert held.task_id == first.id
    assert others
    source.trouble = SpentQuota(clock, timedelta(hours=20))
    executor(engine, source, clock).drain_plans([planned.plan_id])
    assert rows_of(engine, ing_task)[0].status_code == TaskStatus.QUEUED
    assert rows_of(engine, ing_task)[0].retry_count == 2, "its lease was waited for, and then it was tried here"


def test_only_what_waits_for_long_makes_the_planner_wait(engine: Engine) -> None:
    assert waits_until(engine, *NAMES, NOW) is None
    plan(engine, paged(), GRID.window(0), Estimate())
    assert waits_until(engine, *NAMES, NOW) is None, "it is due"
    assert waits_until(engine, *NAMES, NOW - 2 * LONG_WAIT) == NOW
    [held] = lease_tasks(engine, "another", 1, now=NOW)
    assert waits_until(engine, *NAMES, NOW - 2 * LONG_WAIT) is None, f"somebody works on task {held.task_id}"
    assert waits_until(engine, "made_up", "items", Operation.BACKFILL, NOW) is None
