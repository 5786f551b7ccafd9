"""A task that kills its executors is named from the first death on, given up after five, and takes no other with it."""

import math
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine

from platform_defs.ingest.codes import (
    ErrorLevel,
    Operation,
    PaginationType,
    PlanStatus,
    RepeatedToken,
    RunStatus,
    TaskStatus,
)
from platform_defs.ingest.errors import ResponseError
from platform_defs.ingest.execution.task_ends import LONGEST_WAIT
from platform_defs.ingest.ledger.windows import WindowState, open_windows
from platform_defs.ingest.planning.slices import Estimate
from platform_defs.ingest.spec.model import Spec
from platform_defs.ingest.tasks.deaths import (
    EXECUTOR_DIED,
    LEASE_RAN_OUT,
    MAX_DEATHS,
    SUSPECTED_FROM,
    Deaths,
    PastRun,
    deaths_at_one_page,
)
from platform_defs.ingest.tasks.leases import LEASE, SUSPECT_WAITS, LeasedTask, lease_tasks
from platform_defs.store.tables.ingest import ing_task, ing_task_run
from tests.ingest.execution.memory_source import MemorySource
from tests.ingest.execution.test_executor import (
    DAY,
    GRID,
    Clock,
    Killed,
    drain,
    executor,
    items_of,
    listed,
    paged,
    stored,
)
from tests.ingest.execution.test_stops import PlaceKeeper
from tests.ingest.planning.test_planner import NOW, plan, rows_of

DEAD = PastRun(RunStatus.FAILED, LEASE_RAN_OUT)
LEFT = PastRun(RunStatus.RUNNING)
AWAY = PastRun(RunStatus.FAILED, "status 503", ErrorLevel.TRANSIENT)
STOPPED = PastRun(RunStatus.CANCELLED)
REFUSED = PastRun(RunStatus.FAILED, "status 400", ErrorLevel.REQUEST)


def dead_after(pages: float) -> PastRun:
    return PastRun(RunStatus.FAILED, LEASE_RAN_OUT, reached=pages)


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ([LEFT], "its executor died once at page 1"),
        ([DEAD, DEAD, LEFT], "its executor died 3 times at page 1"),
        ([DEAD, AWAY, DEAD, STOPPED, LEFT], "its executor died 3 times at page 1"),
        ([DEAD, DEAD, dead_after(4), LEFT], "its executor died 2 times at page 5"),
        ([dead_after(4), dead_after(4), dead_after(3), LEFT], "its executor died 4 times at page 5"),
        ([dead_after(4), dead_after(5), LEFT], "its executor died 2 times at page 6"),
        ([DEAD, DEAD, REFUSED, LEFT], "its executor died once at page 1"),
        ([dead_after(math.inf), LEFT], "its executor died 2 times after its last page"),
    ],
)
def test_deaths_count_since_the_task_got_further_or_was_given_up(runs: Sequence[PastRun], expected: str) -> None:
    assert str(deaths_at_one_page(runs)) == expected


def test_an_attempt_that_ended_otherwise_leaves_no_death_behind() -> None:
    assert deaths_at_one_page([DEAD, DEAD, REFUSED]) == Deaths(0, 0)


def window_state(engine: Engine) -> WindowState:
    [state] = open_windows(engine, "made_up", "items", Operation.HARVEST)
    return state


def dies_at(number_of_page: int, source: MemorySource) -> None:
    """Whoever asks for this page of the slice is dead."""

    answer = source._page

    def page(names: Any, url: Any) -> Any:
        if names["page"]["number"] == number_of_page:
            raise Killed
        return answer(names, url)

    source._page = page  # type: ignore[method-assign]


def die(engine: Engine, source: MemorySource, clock: Clock) -> None:
    with pytest.raises(Killed):
        executor(engine, source, clock).drain_everything()
    clock.pass_by(LEASE + timedelta(seconds=1))


def spec_and_source(*, keeps_place: bool) -> tuple[Spec, MemorySource]:
    kind = PaginationType.TOKEN if keeps_place else PaginationType.OFFSET
    spec = paged(kind, repeated_token=RepeatedToken.CONTINUES)
    return spec, (PlaceKeeper if keeps_place else MemorySource)(spec.pagination, items_of(35))


@pytest.mark.parametrize("keeps_place", [False, True], ids=["pages", "the source keeps the place"])
def test_a_task_that_kills_its_executors_fails_its_window_and_says_at_which_page(
    engine: Engine, keeps_place: bool
) -> None:
    (spec, source), clock = spec_and_source(keeps_place=keeps_place), Clock()
    healthy = source._page
    dies_at(3, source)
    planned = plan(engine, spec, DAY, Estimate())
    for number in range(MAX_DEATHS):
        die(engine, source, clock)
        state, times = window_state(engine), "once" if number == 1 else f"{number} times"
        said = f"its executor died {times} at page 3" if number else None
        assert (state.reason, state.is_under_way) == (said, True), "it says so as soon as a successor has noticed"
    assert executor(engine, source, clock).drain_plans([planned.plan_id]) == {planned.plan_id: PlanStatus.PARTIAL}
    [task], runs = rows_of(engine, ing_task), rows_of(engine, ing_task_run)
    said = f"its executor died {MAX_DEATHS} times at page 3"
    assert (task.status_code, task.last_error_code, task.last_error_msg) == (TaskStatus.FAILED, EXECUTOR_DIED, said)
    assert [run.error for run in runs] == [LEASE_RAN_OUT] * MAX_DEATHS + [said]
    assert (window_state(engine).reason, window_state(engine).is_under_way) == (said, False)

    source._page = healthy  # type: ignore[method-assign]
    assert drain(engine, spec, source)[1] is PlanStatus.COMPLETED, "it is tried again like any other that failed"
    assert stored(engine) == listed(source.items)
    assert [task.last_error_msg for task in rows_of(engine, ing_task)] == [None]


def test_a_task_that_is_asked_for_again_may_kill_as_many_executors_again(engine: Engine) -> None:
    (spec, source), clock = spec_and_source(keeps_place=False), Clock()
    dies_at(1, source)
    for _ in range(2):
        planned = plan(engine, spec, DAY, Estimate(), now=clock())
        for _ in range(MAX_DEATHS):
            die(engine, source, clock)
        assert executor(engine, source, clock).drain_plans([planned.plan_id])[planned.plan_id] is PlanStatus.PARTIAL


def test_a_source_that_is_away_between_two_deaths_does_not_hide_them(engine: Engine) -> None:
    (spec, source), clock = spec_and_source(keeps_place=False), Clock()
    plan(engine, spec, DAY, Estimate())

    def away(number: int) -> None:
        raise ResponseError(ErrorLevel.TRANSIENT, "HTTP_503", "the source is away")

    dies_at(1, source)
    for _ in range(MAX_DEATHS):
        source.trouble = away
        executor(engine, source, clock).drain_everything()
        clock.pass_by(LONGEST_WAIT)
        source.trouble = lambda number: None
        die(engine, source, clock)
    executor(engine, source, clock).drain_everything()
    assert [task.last_error_code for task in rows_of(engine, ing_task)] == [EXECUTOR_DIED]


def test_what_else_is_due_is_fetched_when_a_task_was_given_up(engine: Engine) -> None:
    (spec, source), clock = spec_and_source(keeps_place=False), Clock()
    plan(engine, spec, DAY, Estimate())
    dies_at(1, source)
    for _ in range(MAX_DEATHS):
        die(engine, source, clock)
    plan(engine, spec, GRID.window(1), Estimate(), now=clock())
    source._page = lambda names, url: {"items": [], "total": 0}  # type: ignore[method-assign]
    assert executor(engine, source, clock).drain_everything() == 1
    assert [task.status_code for task in rows_of(engine, ing_task)] == [TaskStatus.FAILED, TaskStatus.SUCCEEDED]


def test_of_tasks_whose_executors_died_again_and_again_each_executor_works_on_one_at_a_time(engine: Engine) -> None:
    """One of them kills, and the others only ran beside it: together they would all be given up."""
    plan(engine, paged(), DAY, Estimate(records_per_hour=100))
    now, count = NOW, 4

    def leased_by(owner: str, most: int = count) -> list[LeasedTask]:
        return lease_tasks(engine, owner, most, now=now, per_partition=100)

    for death in range(SUSPECTED_FROM):
        assert len(leased_by(f"executor {death}")) == count, "one death may be an accident"
        now += LEASE + timedelta(seconds=1)
    before = {row.id: (row.retry_count, row.lease_count) for row in rows_of(engine, ing_task)}
    suspected = {row.id for row in rows_of(engine, ing_task) if row.retry_count}
    [at_work] = [each.task_id for each in leased_by("a")]
    assert at_work in suspected
    waiting = [row for row in rows_of(engine, ing_task) if row.id in suspected - {at_work}]
    assert {(row.status_code, row.lease_owner, row.last_error_msg) for row in waiting} == {
        (TaskStatus.QUEUED, None, "its executor died 2 times at page 1")
    }
    assert {row.id: (row.retry_count, row.lease_count) for row in waiting} == {
        row.id: before[row.id] for row in waiting
    }, "they were not tried"
    now += SUSPECT_WAITS
    beside = {each.task_id for each in leased_by("a")}
    assert len(beside) == count
    assert not beside & suspected, "tasks of which nobody has died are begun beside it"
    now += SUSPECT_WAITS
    [other] = suspected & {each.task_id for each in leased_by("b", 100)}
    assert other != at_work, "another executor is another process"
