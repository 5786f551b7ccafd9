"""Slices that had no room in the queue are fetched although their run is dead, also where a plan has no task at all."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import Engine

from platform_defs.ingest.codes import Operation, PlanStatus, SliceStatus, TaskStatus
from platform_defs.ingest.ledger.forgotten import is_forgotten
from platform_defs.ingest.planning.planner import PlannedWork
from platform_defs.ingest.planning.slices import Estimate
from platform_defs.ingest.spec.model import Spec
from platform_defs.ingest.tasks.blocks import block_endpoint, unblock_endpoint
from platform_defs.ingest.tasks.leases import LeasedTask
from platform_defs.ingest.tasks.waiting import queue_pending
from platform_defs.store.engine import transact
from platform_defs.store.tables.ingest import ing_plan, ing_plan_slice, ing_task
from tests.ingest.execution.memory_source import MemorySource, item
from tests.ingest.execution.test_executor import GRID, Clock, Killed, executor, paged
from tests.ingest.planning.test_planner import NOW, plan, rows_of
from tests.waiting import until

MINUTE = timedelta(seconds=60)
# twelve slices a window, and room for two
NARROW = replace(paged(), operation=Operation.BACKFILL, stock_limit=2)
CROWDED = Estimate(records_per_hour=100)


def planned_windows(engine: Engine, spec: Spec = NARROW) -> list[PlannedWork]:
    return [plan(engine, spec, GRID.window(number), CROWDED) for number in (0, 1)]


def source_of(spec: Spec = NARROW) -> MemorySource:
    return MemorySource(
        spec.pagination, [item(n, GRID.window(n // 40).start + timedelta(minutes=n % 40)) for n in range(80)]
    )


def statuses(engine: Engine) -> list[str]:
    return [row.status_code for row in rows_of(engine, ing_plan)]


def test_a_plan_that_never_had_a_task_is_fetched_by_whoever_drains(engine: Engine) -> None:
    first, second = planned_windows(engine)
    assert (first.queued, second.queued) == (2, 0), "the queue has room for two slices of the first window alone"
    executor(engine, source_of()).drain_everything()
    assert statuses(engine) == [PlanStatus.COMPLETED, PlanStatus.COMPLETED]


def test_a_run_that_dies_between_its_last_task_and_the_slices_that_wait_leaves_nothing_behind(engine: Engine) -> None:
    plans, clock = planned_windows(engine), Clock()

    def die(leased: LeasedTask, status: TaskStatus | None) -> None:
        if not [task for task in rows_of(engine, ing_task) if task.status_code == TaskStatus.QUEUED]:
            raise Killed

    with pytest.raises(Killed):
        executor(engine, source_of(), clock, on_end=die).drain_plans([each.plan_id for each in plans])
    assert {task.status_code for task in rows_of(engine, ing_task)} == {TaskStatus.SUCCEEDED}
    assert SliceStatus.PENDING in {piece.status_code for piece in rows_of(engine, ing_plan_slice)}
    assert not is_forgotten(engine, clock(), waiting_for=MINUTE), "its run may be about to queue them"
    clock.pass_by(2 * MINUTE)
    assert is_forgotten(engine, clock(), waiting_for=MINUTE)
    executor(engine, source_of(), clock).drain_everything()
    assert statuses(engine) == [PlanStatus.COMPLETED, PlanStatus.COMPLETED]
    clock.pass_by(2 * MINUTE)
    assert not is_forgotten(engine, clock(), waiting_for=MINUTE)


def test_slices_of_a_blocked_endpoint_wait_until_it_is_unblocked(engine: Engine) -> None:
    planned_windows(engine)
    transact(
        engine,
        lambda connection: block_endpoint(
            connection, "made_up", "items", reason="status 401", error_code="HTTP_401", task_id=1, now=NOW
        ),
    )
    assert queue_pending(engine, None, NOW) == 0
    assert executor(engine, source_of()).drain_everything() == 0
    assert not is_forgotten(engine, NOW + 2 * MINUTE, waiting_for=MINUTE)
    unblock_endpoint(engine, "made_up", "items")
    executor(engine, source_of()).drain_everything()
    assert statuses(engine) == [PlanStatus.COMPLETED, PlanStatus.COMPLETED]


def test_an_endpoint_without_room_keeps_no_other_from_getting_its_tasks(engine: Engine) -> None:
    planned_windows(engine)
    other = replace(NARROW, endpoint_name="others")
    planned_windows(engine, other)
    executor(engine, source_of()).drain_plans([rows_of(engine, ing_plan)[2].id])
    # the other endpoint's first window is complete: its second one has room, and the first endpoint has none
    assert queue_pending(engine, None, NOW) == 2
    waiting = [task.plan_id for task in rows_of(engine, ing_task) if task.status_code == TaskStatus.QUEUED]
    plans = [row.id for row in rows_of(engine, ing_plan)]
    assert sorted(waiting) == [plans[0], plans[0], plans[3], plans[3]]


def test_small_plans_fill_the_room_together(engine: Engine) -> None:
    roomy = replace(NARROW, stock_limit=3)
    plans = [plan(engine, roomy, GRID.window(number), Estimate()) for number in range(7)]
    assert [each.queued for each in plans] == [1, 1, 1, 0, 0, 0, 0]
    executor(engine, source_of()).drain_plans([each.plan_id for each in plans[:3]])
    assert queue_pending(engine, None, NOW) == 3
    queued = [task.plan_id for task in rows_of(engine, ing_task) if task.status_code == TaskStatus.QUEUED]
    assert queued == [each.plan_id for each in plans[3:6]], "in the order in which they were planned"


def test_an_executor_that_serves_gives_tasks_to_slices_of_a_dead_run(engine: Engine) -> None:
    plans = [each.plan_id for each in planned_windows(engine)]
    executor(engine, source_of()).drain_plans(plans[:1])
    assert statuses(engine) == [PlanStatus.COMPLETED, PlanStatus.PARTIAL]
    serving = executor(engine, source_of())
    with ThreadPoolExecutor(1) as pool:
        served = pool.submit(serving.serve)
        try:
            until("both windows", lambda: statuses(engine) == [PlanStatus.COMPLETED, PlanStatus.COMPLETED])
        finally:
            serving.cancel.set()
        served.result()
