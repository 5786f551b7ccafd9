"""Plans, slices and tasks are made once however often they are asked for, and a finished window can be asked anew."""

import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Engine, func, select, update

from platform_defs.ingest.codes import Operation, PlanStatus, SliceStatus, TaskStatus, Trigger
from platform_defs.ingest.identity import id_number
from platform_defs.ingest.ledger.completion import close_plan_if_done
from platform_defs.ingest.ledger.windows import open_windows, plan_report, window_states
from platform_defs.ingest.planning.history import estimate_from_history
from platform_defs.ingest.planning.planner import (
    PlannedWork,
    plan_bucket,
    plan_spec,
    plan_window,
    queue_pending_slices,
)
from platform_defs.ingest.planning.schedule import TriggerContext, record_compile_failure, record_trigger
from platform_defs.ingest.planning.signals import add_signals, close_signals, signal_quarantined
from platform_defs.ingest.planning.slices import Estimate
from platform_defs.ingest.planning.update_candidates import due_records, id_slices
from platform_defs.ingest.planning.windows import Window, WindowGrid
from platform_defs.ingest.spec.model import CompiledSpec, Spec
from platform_defs.ingest.spec.snapshot import mapping_hash
from platform_defs.store.engine import read, transact
from platform_defs.store.tables.ingest import (
    ing_plan,
    ing_plan_slice,
    ing_record,
    ing_record_quarantine,
    ing_schedule_instance,
    ing_signal,
    ing_task,
    ing_task_run_batch,
)
from tests.ingest.specs import paged_spec

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SPEC = paged_spec()
GRID = WindowGrid.of(SPEC.window)
DAY = GRID.window(5)
BUSY = Estimate(records_per_hour=1000)


def plan(
    engine: Engine, spec: Spec = SPEC, window: Window = DAY, estimate: Estimate = BUSY, now: datetime = NOW
) -> PlannedWork:
    context = TriggerContext(Trigger.MANUAL, "test")
    schedule = record_trigger(engine, context, spec.provenance_code, spec.endpoint_name, spec.operation, now)
    return plan_window(
        engine,
        CompiledSpec(spec, origins={"window.size": "endpoint"}, warnings=("noCount",)),
        window,
        schedule_instance_id=schedule,
        trigger=context.trigger,
        estimate=estimate,
        now=now,
    )


def rows_of(engine: Engine, table: Any) -> list[Any]:
    return list(read(engine, lambda connection: connection.execute(select(table).order_by(table.c.id)).all()))


def end_tasks(engine: Engine, plan_id: int, status: TaskStatus = TaskStatus.SUCCEEDED) -> PlanStatus | None:
    def work(connection: Any) -> PlanStatus | None:
        connection.execute(update(ing_task).where(ing_task.c.plan_id == plan_id).values(status_code=status))
        return close_plan_if_done(connection, plan_id)

    return transact(engine, work)


def test_a_window_becomes_a_plan_with_slices_and_one_task_each(engine: Engine) -> None:
    planned = plan(engine)
    assert (planned.status, planned.generation, planned.queued) == (PlanStatus.READY, 1, 12)
    [row] = rows_of(engine, ing_plan)
    assert row.plan_key == "made_up:items:HARVEST:20260106T000000Z:20260107T000000Z:g1"
    assert (row.window_from, row.window_to) == (DAY.start, DAY.end)
    assert row.record_remarks["degradation"] == ["noCount"]
    assert row.provenance_config_snapshot["origins"] == {"window.size": "endpoint"}
    assert plan_spec(row) == SPEC
    slices, tasks = rows_of(engine, ing_plan_slice), rows_of(engine, ing_task)
    assert {piece.status_code for piece in slices} == {SliceStatus.READY}
    assert [task.slice_id for task in tasks] == [piece.id for piece in slices]
    assert {(task.status_code, task.priority) for task in tasks} == {(TaskStatus.QUEUED, 10)}
    assert len({task.idempotent_key for task in tasks}) == len(tasks)


def test_planning_an_open_window_again_changes_nothing_but_what_failed(engine: Engine) -> None:
    first = plan(engine)
    failed = rows_of(engine, ing_task)[3].id
    gave_up = update(ing_task).where(ing_task.c.id == failed).values(status_code=TaskStatus.FAILED, lease_owner="x")
    transact(engine, lambda connection: connection.execute(gave_up))
    other = replace(SPEC, rate=replace(SPEC.rate, refill_per_s=9.0))
    again = plan(engine, other)
    assert (again.plan_id, again.generation, again.continued, again.queued) == (first.plan_id, 1, True, 1)
    assert len(rows_of(engine, ing_task)) == 12
    assert plan_spec(rows_of(engine, ing_plan)[0]) == SPEC, "an open plan keeps its snapshot"
    assert {(task.status_code, task.lease_owner) for task in rows_of(engine, ing_task)} == {(TaskStatus.QUEUED, None)}


def test_a_window_that_ended_incomplete_is_begun_anew_with_what_was_corrected_in_the_registry(engine: Engine) -> None:
    first = plan(engine, estimate=Estimate())
    assert end_tasks(engine, first.plan_id, TaskStatus.FAILED) is PlanStatus.PARTIAL
    assert plan(engine, estimate=Estimate()).plan_id == first.plan_id, "nothing was corrected"
    end_tasks(engine, first.plan_id, TaskStatus.FAILED)
    assert SPEC.search is not None
    http = replace(SPEC.search.http, path_template="/corrected")
    corrected = replace(SPEC, search=replace(SPEC.search, http=http))
    second = plan(engine, corrected, estimate=Estimate())
    assert (second.generation, second.continued, second.queued) == (2, False, 1)
    old, new = rows_of(engine, ing_plan)
    assert (old.status_code, plan_spec(new)) == (PlanStatus.CANCELLED, corrected)
    assert [task.status_code for task in rows_of(engine, ing_task)] == [TaskStatus.CANCELLED, TaskStatus.QUEUED]
    assert plan(engine, SPEC, estimate=Estimate()).plan_id == second.plan_id, "a plan at work keeps its snapshot"
    [state] = open_windows(engine, "made_up", "items", Operation.HARVEST)
    assert state.plan_id == second.plan_id


def test_a_finished_window_asked_for_again_is_a_new_generation_with_tasks_of_its_own(engine: Engine) -> None:
    first = plan(engine)
    assert end_tasks(engine, first.plan_id) is PlanStatus.COMPLETED
    second = plan(engine)
    assert (second.generation, second.continued, second.queued) == (2, False, 12)
    assert second.plan_id != first.plan_id
    [state] = window_states(engine, "made_up", "items", Operation.HARVEST).values()
    assert (state.plan_id, state.status) == (second.plan_id, PlanStatus.READY)


def test_many_planners_at_the_same_moment_make_one_plan(engine: Engine) -> None:
    found: list[PlannedWork] = []
    threads = [threading.Thread(target=lambda: found.append(plan(engine))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {planned.plan_id for planned in found} == {rows_of(engine, ing_plan)[0].id}
    assert len(rows_of(engine, ing_task)) == 12


def test_a_full_stock_leaves_slices_without_tasks_until_there_is_room(engine: Engine) -> None:
    spec = replace(SPEC, stock_limit=5)
    planned = plan(engine, spec)
    assert (planned.status, planned.queued) == (PlanStatus.PARTIAL, 5)
    assert queue_pending_slices(engine, planned.plan_id, NOW) == 0
    assert end_tasks(engine, planned.plan_id) is None, "slices without a task are still to be done"
    assert queue_pending_slices(engine, planned.plan_id, NOW) == 5
    end_tasks(engine, planned.plan_id)
    assert queue_pending_slices(engine, planned.plan_id, NOW) == 2
    assert rows_of(engine, ing_plan)[0].status_code == PlanStatus.READY
    assert end_tasks(engine, planned.plan_id) is PlanStatus.COMPLETED
    assert queue_pending_slices(engine, planned.plan_id, NOW) == 0, "an executor that looked a moment before"
    assert rows_of(engine, ing_plan)[0].status_code == PlanStatus.COMPLETED, "a plan that is over stays over"


def test_a_plan_with_a_failed_task_ends_partial_and_its_window_stays_open(engine: Engine) -> None:
    planned = plan(engine, estimate=Estimate())
    assert end_tasks(engine, planned.plan_id, TaskStatus.FAILED) is PlanStatus.PARTIAL
    [state] = open_windows(engine, "made_up", "items", Operation.HARVEST)
    assert state.window == DAY
    assert plan_report(engine, planned.plan_id).unfinished == ("slice 1: FAILED",)


def test_an_open_window_of_another_size_is_done_when_complete_ones_cover_it(engine: Engine) -> None:
    failed = plan(engine, estimate=Estimate())
    end_tasks(engine, failed.plan_id, TaskStatus.FAILED)
    halves = [Window(DAY.start, DAY.start + DAY.size / 2), Window(DAY.start + DAY.size / 2, DAY.end)]
    for half in halves:
        assert [state.window for state in open_windows(engine, "made_up", "items", Operation.HARVEST)] == [DAY]
        end_tasks(engine, plan(engine, window=half, estimate=Estimate()).plan_id)
    assert open_windows(engine, "made_up", "items", Operation.HARVEST) == []
    late = plan(engine, window=GRID.window(8), estimate=Estimate())
    assert [state.plan_id for state in open_windows(engine, "made_up", "items", Operation.HARVEST)] == [late.plan_id]
    start = GRID.window(9).start
    assert open_windows(engine, "made_up", "items", Operation.HARVEST, begins=start) == [], "its partition is gone"


def test_what_does_not_compile_leaves_its_reasons_with_the_trigger(engine: Engine) -> None:
    context = TriggerContext(Trigger.SCHEDULE, "dagster", "job", "run", {"window": "x"})
    schedule = record_trigger(engine, context, "made_up", "items", Operation.HARVEST, NOW)
    record_compile_failure(engine, schedule, ["itemsPath is missing", "no such http_method: FETCH"])
    [row] = rows_of(engine, ing_schedule_instance)
    assert row.record_remarks["problems"] == ["itemsPath is missing", "no such http_method: FETCH"]
    assert rows_of(engine, ing_plan) == []


def test_the_next_window_is_sized_by_what_the_last_ones_brought(engine: Engine) -> None:
    assert estimate_from_history(engine, "made_up", "items") == Estimate()
    planned = plan(engine, estimate=Estimate())
    [task] = rows_of(engine, ing_task)
    row = {
        "run_id": 1,
        "task_id": task.id,
        "slice_id": task.slice_id,
        "plan_id": planned.plan_id,
        "provenance_code": "made_up",
        "operation_code": "HARVEST",
        "batch_no": 1,
        "idempotent_key": "0" * 64,
        "record_count": 2400,
        "status_code": "SUCCEEDED",
        "stats": {"inserted": 2400, "429Count": 2, "hasNext": False},
    }
    transact(engine, lambda connection: connection.execute(ing_task_run_batch.insert().values(row)))
    end_tasks(engine, planned.plan_id)
    assert estimate_from_history(engine, "made_up", "items") == Estimate(records_per_hour=100.0, pages=1)
    report = plan_report(engine, planned.plan_id)
    assert report.totals == {"inserted": 2400, "429Count": 2}
    assert (report.pages, report.records_by_slice, report.unfinished) == (1, {1: 2400}, ())


UPDATE = replace(SPEC, operation=Operation.UPDATE, update_buckets=2, stale_after=timedelta(days=30))


def store_records(engine: Engine, ids: list[str], *, expr_hash: str | None, checked: datetime | None) -> None:
    rows = [
        {
            "provenance_code": "made_up",
            "endpoint_name": "items",
            "provider_id": each,
            "id_number": id_number(each),
            "updated_at": NOW,
            "record": {},
            "expr_hash": expr_hash,
            "refresh_checked_at": checked,
            "modified_at": NOW,
        }
        for each in ids
    ]
    transact(engine, lambda connection: connection.execute(ing_record.insert(), rows))


def every_due(engine: Engine, now: datetime = NOW) -> set[str]:
    return {each for bucket in range(2) for each in due_records(engine, UPDATE, bucket, now).ids}


def test_stale_records_those_of_older_expressions_and_signals_are_due(engine: Engine) -> None:
    current = mapping_hash(UPDATE)
    store_records(engine, [f"fresh-{n}" for n in range(20)], expr_hash=current, checked=NOW)
    store_records(engine, [f"stale-{n}" for n in range(20)], expr_hash=current, checked=NOW - timedelta(days=31))
    store_records(engine, [f"older-{n}" for n in range(20)], expr_hash="0" * 64, checked=NOW)
    add_signals(engine, "made_up", "items", ["fresh-1", "new-1"], reason="retracted", requested_by="key", now=NOW)
    due = every_due(engine)
    assert due == {f"stale-{n}" for n in range(20)} | {f"older-{n}" for n in range(20)} | {"fresh-1", "new-1"}
    first = due_records(engine, UPDATE, id_number("new-1") % 2, NOW).ids[0]
    assert first in {"fresh-1", "new-1"}, "signals come first"


def test_a_signal_closes_when_its_record_was_fetched_after_it_was_given(engine: Engine) -> None:
    for _ in range(2):
        add_signals(engine, "made_up", "items", ["a", "b"], reason=None, requested_by="key", now=NOW)
    assert len(rows_of(engine, ing_signal)) == 2
    transact(engine, lambda c: close_signals(c, "made_up", "items", ["a", "b"], NOW - timedelta(seconds=1)))
    assert every_due(engine) == {"a", "b"}
    transact(engine, lambda c: close_signals(c, "made_up", "items", ["a"], NOW))
    assert every_due(engine) == {"b"}


def test_what_was_set_aside_with_an_id_is_asked_for_once(engine: Engine) -> None:
    rows = [
        {
            "provenance_code": "made_up",
            "endpoint_name": "items",
            "operation_code": "HARVEST",
            "provider_id": provider_id,
            "reason_code": "UPDATED_AT",
            "reason": "no time",
            "idempotent_key": f"{number:064d}",
        }
        for number, provider_id in enumerate(["a", "a", None])
    ]
    transact(engine, lambda connection: connection.execute(ing_record_quarantine.insert(), rows))
    assert signal_quarantined(engine, "made_up", "items", NOW) == 1
    assert signal_quarantined(engine, "made_up", "items", NOW) == 0
    assert every_due(engine) == {"a"}


def test_a_bucket_is_planned_in_slices_of_ids_and_an_empty_one_is_complete(engine: Engine) -> None:
    spec = replace(UPDATE, batching=replace(UPDATE.batching, max_ids_per_slice=3))
    ids = [f"id-{number}" for number in range(7)]
    planned = plan_bucket(
        engine,
        CompiledSpec(spec),
        0,
        id_slices(spec, 0, ids),
        schedule_instance_id=1,
        trigger=Trigger.MANUAL,
        now=NOW,
    )
    assert (planned.plan_key, planned.queued) == ("made_up:items:UPDATE:b0of2:g1", 3)
    empty = plan_bucket(engine, CompiledSpec(spec), 1, [], schedule_instance_id=1, trigger=Trigger.MANUAL, now=NOW)
    assert empty.status is PlanStatus.COMPLETED
    counted = select(func.count()).select_from(ing_task).where(ing_task.c.priority == 50)
    assert read(engine, lambda connection: connection.execute(counted).scalar_one()) == 3
