"""A cursor that a dying executor left behind is moved before anybody is told that its window is complete."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from dagster import DagsterInstance, build_sensor_context
from sqlalchemy import Engine, select, update

from platform_defs.ingest.codes import Operation, PlanStatus, Trigger
from platform_defs.ingest.cursors.catching_up import catch_up
from platform_defs.ingest.cursors.operations import read_plan_cursor
from platform_defs.ingest.execution import task_ends
from platform_defs.ingest.materialisation import materialise_windows
from platform_defs.ingest.planning.planner import PlannedWork, plan_bucket
from platform_defs.ingest.planning.slices import Estimate, id_slice
from platform_defs.ingest.spec.model import CompiledSpec, Spec
from platform_defs.store.engine import read, transact
from platform_defs.store.tables.ingest import ing_plan
from platform_defs.store.tables.ingest_cursors import ing_cursor_event
from sensors.ingest import keep_ingest_going
from tests.ingest.execution.memory_source import MemorySource
from tests.ingest.execution.test_executor import GRID, Killed, executor, items_of, paged
from tests.ingest.planning.test_planner import NOW, plan, rows_of
from tests.ingest.test_materialisation import CONTEXT, environment

FIRST = GRID.window(0)
NAMES = ("made_up", "items")


@pytest.fixture
def instance(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[DagsterInstance]:
    monkeypatch.setenv("PLATFORM_DB_URL", engine.url.render_as_string(hide_password=False))
    with DagsterInstance.ephemeral() as instance:
        yield instance


def spec_of(operation: Operation) -> Spec:
    base = paged()
    assert base.search is not None
    return replace(base, operation=operation, update_buckets=1, detail=replace(base.search, endpoint_name="by_id"))


def planned(engine: Engine, spec: Spec) -> PlannedWork:
    if spec.operation is not Operation.UPDATE:
        return plan(engine, spec, FIRST, Estimate())
    draft = id_slice(spec, 0, ["1", "2"], number=1)
    return plan_bucket(engine, CompiledSpec(spec), 0, [draft], schedule_instance_id=1, trigger=Trigger.SIGNAL, now=NOW)


def die(*_: Any, **__: Any) -> None:
    raise Killed


def killed_before_its_cursor_moves(engine: Engine, monkeypatch: pytest.MonkeyPatch, spec: Spec) -> PlannedWork:
    work = planned(engine, spec)
    with monkeypatch.context() as patched:
        patched.setattr(task_ends, "advance_after", die)
        with pytest.raises(Killed):
            executor(engine, MemorySource(spec.pagination, items_of(5))).drain_plans([work.plan_id])
    assert [row.status_code for row in rows_of(engine, ing_plan)] == [PlanStatus.COMPLETED]
    assert read_plan_cursor(engine, spec, work.plan_id) is None
    return work


def upkeep(engine: Engine, instance: DagsterInstance) -> None:
    long_ago = update(ing_plan).values(updated_at=datetime.now(UTC) - timedelta(hours=1))
    transact(engine, lambda connection: connection.execute(long_ago))
    with build_sensor_context(instance=instance) as context:
        keep_ingest_going(context)


def events(engine: Engine) -> list[Any]:
    query = select(ing_cursor_event).order_by(ing_cursor_event.c.id)
    return list(read(engine, lambda connection: connection.execute(query).all()))


@pytest.mark.parametrize("operation", list(Operation))
def test_upkeep_moves_the_cursor_of_a_window_whose_executor_died_before_it_could(
    engine: Engine, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch, operation: Operation
) -> None:
    spec = spec_of(operation)
    work = killed_before_its_cursor_moves(engine, monkeypatch, spec)
    upkeep(engine, instance)
    reached = {Operation.HARVEST: FIRST.end, Operation.BACKFILL: FIRST.start, Operation.UPDATE: NOW}[operation]
    assert read_plan_cursor(engine, spec, work.plan_id) == reached
    [event] = events(engine)
    assert None not in (event.plan_id, event.slice_id, event.task_id, event.run_id, event.batch_id, event.expr_hash)
    assert not catch_up(engine, work.plan_id, NOW + timedelta(hours=1)), "it is where it belongs"
    assert len(events(engine)) == 1


def test_a_run_whose_window_was_completed_by_an_executor_that_died_tells_of_it_with_its_cursor(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = spec_of(Operation.HARVEST)
    source = MemorySource(spec.pagination, items_of(5))
    windows = [FIRST, GRID.window(1)]

    def help_meanwhile(number: int) -> None:
        if number == 1:
            second = rows_of(engine, ing_plan)[1].id
            with monkeypatch.context() as patched:
                patched.setattr(task_ends, "advance_after", die)
                with pytest.raises(Killed):
                    executor(engine, source).drain_plans([second])

    source.trouble = help_meanwhile
    working = replace(environment(engine, source, spec), threads=1)
    # the first window's own executor moves the watermark over both; a backfill has a cursor for each
    results = materialise_windows(working, *NAMES, Operation.BACKFILL, windows, CONTEXT)
    assert {result.window: result.cursor_after for result in results} == {each: each.start for each in windows}


def test_a_plan_that_is_not_complete_or_is_gone_moves_nothing(engine: Engine) -> None:
    work = planned(engine, spec_of(Operation.HARVEST))
    assert not catch_up(engine, work.plan_id, NOW)
    assert not catch_up(engine, work.plan_id + 1, NOW)
    assert events(engine) == []
