"""What nobody is going to take up is drained, by one run, and what waits for a reason is left alone."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from dagster import DagsterInstance, build_sensor_context
from sqlalchemy import Connection, Engine, select, update

from platform_defs.ingest.codes import Operation, SliceStatus, TaskStatus, Trigger
from platform_defs.ingest.kinds_of_work import INGEST_DRAIN
from platform_defs.ingest.ledger.forgotten import has_free_place
from platform_defs.ingest.planning.planner import PlannedWork, plan_window
from platform_defs.ingest.planning.slices import Estimate
from platform_defs.ingest.planning.windows import WindowGrid
from platform_defs.ingest.spec.compiler import compile_spec
from platform_defs.ingest.spec.model import CompiledSpec, Spec
from platform_defs.ingest.tasks.blocks import block_endpoint, unblock_endpoint
from platform_defs.ingest.tasks.health import Trouble, lower_limit
from platform_defs.ingest.tasks.leases import LEASE, lease_tasks
from platform_defs.store.engine import read, transact
from platform_defs.store.tables.ingest import ing_plan, ing_plan_slice, ing_task
from platform_defs.store.tables.registry import reg_provenance
from platform_defs.store.tables.work import work
from platform_defs.work.rows import Status
from sensors.ingest import keep_ingest_going
from tests.ingest.registry.making import GOOD, load_text

LONG_AGO = timedelta(hours=1)
ONE_SLICE, TWELVE_SLICES = Estimate(), Estimate(records_per_hour=1000)
# How many tasks of an endpoint and operation run at a time, by default.
PLACES = 4


@pytest.fixture
def instance(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[DagsterInstance]:
    monkeypatch.setenv("PLATFORM_DB_URL", engine.url.render_as_string(hide_password=False))
    load_text(engine, GOOD, now=datetime.now(UTC) - timedelta(days=1))
    with DagsterInstance.ephemeral() as instance:
        yield instance


def planned(
    engine: Engine, number: int, *, run: int, estimate: Estimate = ONE_SLICE, stock_limit: int = 1000
) -> PlannedWork:
    """A backfill window that a run planned an hour ago."""
    now = datetime.now(UTC)
    compiled = compile_spec(engine, "demo", "items", Operation.BACKFILL, now=now)
    spec: Spec = replace(compiled.spec, stock_limit=stock_limit)
    window = WindowGrid.of(spec.window).window(number)
    return plan_window(
        engine,
        CompiledSpec(spec),
        window,
        schedule_instance_id=run,
        trigger=Trigger.MANUAL,
        estimate=estimate,
        now=now - LONG_AGO,
    )


def leased(engine: Engine, *plans: PlannedWork, at: datetime | None = None) -> int:
    taken = lease_tasks(engine, "somebody", 100, now=at or datetime.now(UTC), plan_ids=[each.plan_id for each in plans])
    return len(taken)


def tick(instance: DagsterInstance) -> str:
    with build_sensor_context(instance=instance) as context:
        return str(keep_ingest_going(context).skip_message)


def drains(engine: Engine) -> int:
    query = select(work.c.id).where(work.c.kind == INGEST_DRAIN)
    return len(read(engine, lambda connection: connection.execute(query).all()))


def assert_drained_once(engine: Engine, instance: DagsterInstance) -> None:
    assert tick(instance).startswith("draining: yes")
    assert drains(engine) == 1
    tick(instance)
    assert drains(engine) == 1, "one run does all that there is to do"
    transact(engine, lambda connection: connection.execute(update(work).values(status=Status.RUNNING)))
    tick(instance)
    assert drains(engine) == 1


def assert_left_alone(engine: Engine, instance: DagsterInstance) -> None:
    assert tick(instance).startswith("draining: no")
    assert drains(engine) == 0


def test_nothing_is_drained_where_nothing_was_planned(engine: Engine, instance: DagsterInstance) -> None:
    assert_left_alone(engine, instance)


def test_what_an_executor_that_died_has_left_is_drained_by_one_run(engine: Engine, instance: DagsterInstance) -> None:
    dead = planned(engine, 0, run=1)
    assert leased(engine, dead, at=datetime.now(UTC) - 2 * LEASE - timedelta(minutes=1)) == 1
    assert_drained_once(engine, instance)


def test_what_was_put_back_and_nobody_took_is_drained_by_one_run(engine: Engine, instance: DagsterInstance) -> None:
    planned(engine, 0, run=1)
    assert_drained_once(engine, instance)


def test_what_somebody_works_on_is_left_to_him(engine: Engine, instance: DagsterInstance) -> None:
    assert leased(engine, planned(engine, 0, run=1)) == 1
    assert_left_alone(engine, instance)


def test_the_windows_that_a_run_has_not_come_to_yet_are_left_to_it(engine: Engine, instance: DagsterInstance) -> None:
    first, *_ = [planned(engine, number, run=1) for number in range(6)]
    assert leased(engine, first) == 1
    assert_left_alone(engine, instance)


def test_windows_of_a_dead_run_do_not_wait_for_the_end_of_another_one_of_the_same_endpoint(
    engine: Engine, instance: DagsterInstance
) -> None:
    planned(engine, 0, run=1)
    assert leased(engine, planned(engine, 1, run=2)) == 1
    assert_drained_once(engine, instance)


@pytest.mark.parametrize("lowered", [False, True])
def test_windows_of_a_dead_run_wait_while_as_many_are_worked_on_as_may_be(
    engine: Engine, instance: DagsterInstance, lowered: bool
) -> None:
    planned(engine, 0, run=1)
    living = planned(engine, 1, run=2, estimate=TWELVE_SLICES)
    if lowered:
        partition = ("demo", "items", "BACKFILL")
        lower_limit(engine, partition, Trouble("3 of 3 requests failed"), full=PLACES, now=datetime.now(UTC))
    assert leased(engine, living) == PLACES
    if lowered:
        ended = select(ing_task.c.id).where(ing_task.c.status_code == TaskStatus.EXECUTING).limit(PLACES // 2)
        ids = read(engine, lambda connection: connection.execute(ended).scalars().all())
        over = update(ing_task).where(ing_task.c.id.in_(ids)).values(status_code=TaskStatus.SUCCEEDED)
        transact(engine, lambda connection: connection.execute(over))
    assert_left_alone(engine, instance)


def test_what_is_due_later_is_left_alone_until_then(engine: Engine, instance: DagsterInstance) -> None:
    planned(engine, 0, run=1)
    later = update(ing_task).values(scheduled_at=datetime.now(UTC) + timedelta(hours=20))
    transact(engine, lambda connection: connection.execute(later))
    assert_left_alone(engine, instance)
    due = update(ing_task).values(scheduled_at=datetime.now(UTC) - timedelta(minutes=2))
    transact(engine, lambda connection: connection.execute(due))
    assert_drained_once(engine, instance)


def only_pending(engine: Engine) -> None:
    """Two windows of a dead run with room for two slices, of which one has no task at all and the other one's ended."""
    first = planned(engine, 0, run=1, estimate=TWELVE_SLICES, stock_limit=2)
    second = planned(engine, 1, run=1, estimate=TWELVE_SLICES, stock_limit=2)
    assert (first.queued, second.queued) == (2, 0)
    ended = {"status_code": TaskStatus.SUCCEEDED, "finished_at": datetime.now(UTC) - LONG_AGO}
    transact(engine, lambda connection: connection.execute(update(ing_task).values(ended)))


def test_slices_that_never_had_a_task_are_drained_by_one_run(engine: Engine, instance: DagsterInstance) -> None:
    only_pending(engine)
    assert_drained_once(engine, instance)


def test_slices_without_a_task_wait_while_the_queue_is_worked_off(engine: Engine, instance: DagsterInstance) -> None:
    only_pending(engine)
    a_moment_ago = update(ing_task).values(finished_at=datetime.now(UTC) - timedelta(seconds=5))
    transact(engine, lambda connection: connection.execute(a_moment_ago))
    assert_left_alone(engine, instance)
    waits = {"status_code": TaskStatus.QUEUED, "scheduled_at": datetime.now(UTC) + timedelta(hours=20)}
    transact(engine, lambda connection: connection.execute(update(ing_task).values(waits)))
    assert_left_alone(engine, instance)


@pytest.mark.parametrize("pending", [False, True])
@pytest.mark.parametrize("reason", ["blocked", "paused", "cancelled"])
def test_what_an_operator_has_stopped_is_left_alone(
    engine: Engine, instance: DagsterInstance, reason: str, pending: bool
) -> None:
    if pending:
        only_pending(engine)
    else:
        planned(engine, 0, run=1)
    now = datetime.now(UTC)

    def stop(connection: Connection) -> None:
        if reason == "blocked":
            block_endpoint(connection, "demo", "items", reason="401", error_code="HTTP_401", task_id=1, now=now)
        elif reason == "paused":
            connection.execute(update(reg_provenance).values(is_active=False))
        else:
            for table in (ing_plan, ing_task, ing_plan_slice):
                connection.execute(update(table).values(status_code=SliceStatus.CANCELLED))

    transact(engine, stop)
    assert_left_alone(engine, instance)
    if reason == "cancelled":
        return
    unblock_endpoint(engine, "demo", "items")
    transact(engine, lambda connection: connection.execute(update(reg_provenance).values(is_active=True)))
    assert_drained_once(engine, instance)


def test_a_partition_has_a_free_place_where_fewer_are_worked_on_than_may_be() -> None:
    one, other = ("a", "b", "HARVEST"), ("a", "b", "UPDATE")
    assert has_free_place({one: 4}, {other: 9}, {})
    assert has_free_place({one: 4}, {one: 3}, {})
    assert not has_free_place({one: 4}, {one: 4}, {})
    assert not has_free_place({one: 4}, {one: 2}, {one: 2})
    assert has_free_place({one: 4, other: 4}, {one: 4, other: 3}, {})
    assert not has_free_place({}, {}, {})
