"""A task is worked on by one executor at a time: leases, their order, and what happens when one runs out."""

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from sqlalchemy import Engine

from platform_defs.ingest.codes import (
    Operation,
    PlanStatus,
    RunStatus,
)
from platform_defs.ingest.execution import executor as executor_module
from platform_defs.ingest.planning.slices import Estimate
from platform_defs.ingest.tasks.leases import LEASE, fence, lease_tasks
from platform_defs.store.engine import transact
from platform_defs.store.tables.ingest import (
    ing_task,
    ing_task_run,
    ing_task_run_batch,
)
from tests.ingest.execution.memory_source import MemorySource
from tests.ingest.execution.test_executor import (
    DAY,
    Clock,
    executor,
    items_of,
    listed,
    paged,
    stored,
)
from tests.ingest.planning.test_planner import NOW, SPEC, plan, rows_of
from tests.waiting import until


def test_an_executor_that_lost_its_lease_writes_nothing_more(engine: Engine) -> None:
    spec, clock = paged(), Clock()
    source = MemorySource(spec.pagination, items_of(35))
    planned = plan(engine, spec, DAY, Estimate())

    def trouble(number: int) -> None:
        if number == 2:  # while the first executor waits for this page, another one takes its task and finishes it
            clock.pass_by(LEASE * 2)
            executor(engine, source, clock).drain_plans([planned.plan_id])

    source.trouble = trouble
    assert executor(engine, source, clock).drain_plans([planned.plan_id]) == {planned.plan_id: PlanStatus.COMPLETED}
    assert stored(engine) == listed(source.items)
    assert len(rows_of(engine, ing_task_run_batch)) == 4
    assert [run.status_code for run in rows_of(engine, ing_task_run)] == [RunStatus.FAILED, RunStatus.SUCCEEDED]


def test_tasks_are_leased_urgent_ones_first_and_fairly_between_endpoints(engine: Engine) -> None:
    backfill = replace(SPEC, operation=Operation.BACKFILL)
    other = replace(SPEC, endpoint_name="others")
    busy = Estimate(records_per_hour=1000)
    for spec in (backfill, SPEC, other):
        plan(engine, spec, DAY, busy)
    taken = lease_tasks(engine, "me", 6, now=NOW, per_partition=4)
    rows = {row.id: (row.endpoint_name, row.operation_code) for row in rows_of(engine, ing_task)}
    counts = Counter(rows[each.task_id] for each in taken)
    assert counts == {("items", "HARVEST"): 2, ("others", "HARVEST"): 2, ("items", "BACKFILL"): 2}
    more = lease_tasks(engine, "me", 100, now=NOW, per_partition=4)
    assert len(more) == 6, "no more than four of a partition at a time"


def test_no_more_slices_of_an_endpoint_are_fetched_at_a_time_than_the_registry_says(engine: Engine) -> None:
    busy = Estimate(records_per_hour=1000)
    plan(engine, replace(SPEC, max_concurrent_slices=1), DAY, busy)
    plan(engine, replace(SPEC, endpoint_name="others", max_concurrent_slices=6), DAY, busy)
    taken = [*lease_tasks(engine, "me", 100, now=NOW), *lease_tasks(engine, "another", 100, now=NOW)]
    endpoints = {row.id: row.endpoint_name for row in rows_of(engine, ing_task)}
    assert Counter(endpoints[each.task_id] for each in taken) == {"items": 1, "others": 6}


def test_no_task_is_leased_twice_by_executors_that_ask_at_once(engine: Engine) -> None:
    plan(engine, SPEC, DAY, Estimate(records_per_hour=2000))
    taken: list[int] = []

    def take(owner: str) -> None:
        for _ in range(5):
            taken.extend(each.task_id for each in lease_tasks(engine, owner, 3, now=NOW, per_partition=100))

    threads = [threading.Thread(target=take, args=(f"executor-{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken) == len(set(taken)) == 24


def test_a_lease_that_ran_out_returns_its_task_and_its_holder_is_fenced(engine: Engine) -> None:
    plan(engine, SPEC, DAY, Estimate())
    [first] = lease_tasks(engine, "a", 1, now=NOW)
    assert lease_tasks(engine, "b", 1, now=NOW) == []
    [second] = lease_tasks(engine, "b", 1, now=NOW + LEASE * 2)
    assert (second.task_id, second.attempt_no) == (first.task_id, 2)
    transact(engine, lambda connection: fence(connection, second))
    with pytest.raises(Exception, match="held by b"):
        transact(engine, lambda connection: fence(connection, first))


def test_a_page_that_takes_longer_than_the_lease_stays_with_its_executor_while_that_lives(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor_module, "HEARTBEAT", timedelta(0))
    monkeypatch.setattr(executor_module, "LOOK_S", 0.01)
    spec, clock, looks, names = paged(), Clock(), Counter[str](), ("one", "other")
    source = MemorySource(spec.pagination, items_of(5))
    planned = plan(engine, spec, DAY, Estimate())

    def both_look() -> None:
        wanted = {name: looks[name] + 2 for name in names}  # the look that may have begun before is no whole one
        until(
            "both executors to look",
            lambda: len(source.requests) > 1 or all(looks[name] >= count for name, count in wanted.items()),
        )

    def trouble(number: int) -> None:
        for _ in range(4 if number == 1 else 0):  # two leases long
            clock.pass_by(LEASE / 2)
            both_look()

    source.trouble = trouble

    def drain(name: str) -> PlanStatus:
        working = executor(engine, source, clock, on_look=lambda: looks.update([name]))
        return working.drain_plans([planned.plan_id])[planned.plan_id]

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(drain, names)) == [PlanStatus.COMPLETED] * 2
    assert len(source.requests) == 1
    assert [run.status_code for run in rows_of(engine, ing_task_run)] == [RunStatus.SUCCEEDED]
    assert stored(engine) == listed(source.items)


def test_who_waits_for_another_executor_says_so_once_and_until_when(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    class Passing(Clock):
        def __call__(self) -> datetime:
            self.pass_by(LEASE / 10)
            return super().__call__()

    planned = plan(engine, SPEC, DAY, Estimate())
    [held] = lease_tasks(engine, "dead", 1, now=NOW)
    source = MemorySource(SPEC.pagination, items_of(3))
    states = executor(engine, source, Passing()).drain_plans([planned.plan_id])
    assert states == {planned.plan_id: PlanStatus.COMPLETED}
    told = [record.getMessage() for record in caplog.records if "another executor" in record.getMessage()]
    assert told == [
        f"another executor works on task {held.task_id}: waiting for it; if it is dead, its lease ends at"
        f" {NOW + LEASE:%F %T} UTC"
    ]
