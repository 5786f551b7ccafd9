"""Windows are told of when they are over; one that fails keeps no other from being tried."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine

from platform_defs.ingest import materialisation
from platform_defs.ingest.codes import ErrorLevel, Operation, PlanStatus, Trigger
from platform_defs.ingest.errors import PlanError, ResponseError, SpecError
from platform_defs.ingest.execution import executor as executor_module
from platform_defs.ingest.ledger.windows import PlanReport
from platform_defs.ingest.materialisation import (
    IngestEnvironment,
    Listener,
    PartitionResult,
    materialise_bucket,
    materialise_windows,
)
from platform_defs.ingest.planning.schedule import TriggerContext
from platform_defs.ingest.planning.signals import add_signals
from platform_defs.ingest.planning.update_candidates import due_records
from platform_defs.ingest.planning.windows import WindowGrid
from platform_defs.ingest.registry.removal import forget_sources
from platform_defs.ingest.spec.model import CompiledSpec, Spec
from platform_defs.store.errors import StoreUnavailable
from platform_defs.store.tables.ingest import ing_plan, ing_record, ing_schedule_instance, ing_signal
from tests.ingest.execution.memory_source import MemorySource, item
from tests.ingest.execution.test_executor import Clock
from tests.ingest.planning.test_planner import NOW, SPEC, rows_of

GRID = WindowGrid.of(SPEC.window)
CONTEXT = TriggerContext(Trigger.MANUAL, "test")


def environment(engine: Engine, source: Any, spec: Spec = SPEC) -> IngestEnvironment:
    return IngestEnvironment(
        engine,
        lambda code, endpoint, operation: CompiledSpec(replace(spec, operation=operation)),
        lambda spec: source,
        clock=lambda: NOW,
        threads=2,
    )


def test_each_window_is_told_of_once_when_it_is_over(engine: Engine) -> None:
    windows = [GRID.window(number) for number in range(5)]
    source = MemorySource(SPEC.pagination, [item(n, GRID.window(n).start) for n in range(5)])
    told: list[PartitionResult] = []
    results = materialise_windows(
        environment(engine, source),
        "made_up",
        "items",
        Operation.HARVEST,
        windows,
        CONTEXT,
        listener=Listener(on_result=told.append),
    )
    assert sorted(result.window for result in told if result.window) == windows
    assert results == told
    assert {result.report.totals["inserted"] for result in results} == {1}
    assert results[-1].cursor_after == windows[-1].end


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_a_source_that_is_removed_while_it_is_harvested_is_named_as_the_reason(engine: Engine) -> None:
    source = MemorySource(SPEC.pagination, [item(0, GRID.window(0).start)])
    source.trouble = lambda number: forget_sources(engine, ["made_up"])
    with pytest.raises(PlanError, match=r"plan \d+ is gone: its source was removed while it was harvested"):
        materialise_windows(
            environment(engine, source), "made_up", "items", Operation.HARVEST, [GRID.window(0)], CONTEXT
        )


def test_a_window_that_fails_leaves_the_others_complete(engine: Engine) -> None:
    windows = [GRID.window(number) for number in range(3)]
    source = MemorySource(SPEC.pagination, [item(n, GRID.window(n).start) for n in range(3)])
    answer = source._page

    def trouble(names: Any, url: Any) -> Any:
        if names["window"]["from"] == windows[1].start:
            raise ResponseError(ErrorLevel.REQUEST, "HTTP_400", "no")
        return answer(names, url)

    source._page = trouble  # type: ignore[method-assign]
    results = materialise_windows(environment(engine, source), "made_up", "items", Operation.HARVEST, windows, CONTEXT)
    states = {result.window: result.report.status for result in results}
    assert states == {
        windows[0]: PlanStatus.COMPLETED,
        windows[1]: PlanStatus.PARTIAL,
        windows[2]: PlanStatus.COMPLETED,
    }
    [failed] = [result for result in results if not result.is_complete]
    assert failed.report.unfinished == ("slice 1: FAILED (no)",)
    assert failed.cursor_after == windows[0].end


def test_a_window_that_completes_while_the_database_does_not_answer_is_told_of_later(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    windows = [GRID.window(number) for number in range(3)]
    source = MemorySource(SPEC.pagination, [item(n, GRID.window(n).start) for n in range(3)])
    answer, asked = materialisation.plan_report, []

    def fail_once(engine: Engine, plan_id: int) -> PlanReport:
        asked.append(plan_id)
        if len(asked) == 1:
            raise StoreUnavailable("the database does not answer")
        return answer(engine, plan_id)

    monkeypatch.setattr(materialisation, "plan_report", fail_once)
    results = materialise_windows(environment(engine, source), "made_up", "items", Operation.HARVEST, windows, CONTEXT)
    assert sorted(result.window for result in results if result.window) == windows
    assert all(result.is_complete for result in results)


def test_a_window_that_is_not_over_is_refused(engine: Engine) -> None:
    now = GRID.window_at(NOW)
    source = MemorySource(SPEC.pagination, [])
    with pytest.raises(PlanError, match="safety lag"):
        materialise_windows(environment(engine, source), "made_up", "items", Operation.HARVEST, [now], CONTEXT)
    assert rows_of(engine, ing_plan) == []


def test_a_window_that_is_not_over_keeps_no_other_from_being_fetched(engine: Engine) -> None:
    now, source = GRID.window_at(NOW), MemorySource(SPEC.pagination, [item(1, GRID.window(0).start)])
    told: list[PartitionResult] = []
    with pytest.raises(PlanError, match=r"the harvest window .* is not over: expected an end before"):
        materialise_windows(
            environment(engine, source),
            "made_up",
            "items",
            Operation.HARVEST,
            [now, GRID.window(0)],
            CONTEXT,
            listener=Listener(on_result=told.append),
        )
    assert [(result.window, result.is_complete) for result in told] == [(GRID.window(0), True)]


def test_what_does_not_compile_makes_no_plan_and_keeps_its_reasons(engine: Engine) -> None:
    def fail(*_: object) -> CompiledSpec:
        raise SpecError(["no itemsPath", "no such http_method"])

    broken = replace(environment(engine, None), compile=fail)
    with pytest.raises(SpecError):
        materialise_windows(broken, "made_up", "items", Operation.HARVEST, [GRID.window(0)], CONTEXT)
    [row] = rows_of(engine, ing_schedule_instance)
    assert row.record_remarks == {"compiled": False, "problems": ["no itemsPath", "no such http_method"]}
    assert rows_of(engine, ing_plan) == []


def test_a_bucket_fetches_what_is_due_and_a_second_time_nothing(engine: Engine) -> None:
    assert SPEC.search is not None
    spec = replace(
        SPEC,
        detail=replace(SPEC.search, endpoint_name="by_id"),
        update_buckets=1,
        stale_after=timedelta(days=30),
    )
    source = MemorySource(spec.pagination, [item(n, GRID.window(0).start) for n in range(4)])
    working = environment(engine, source, spec)
    materialise_windows(working, "made_up", "items", Operation.HARVEST, [GRID.window(0)], CONTEXT)
    later = replace(working, clock=lambda: NOW + timedelta(days=40))
    asked = len(source.requests)
    assert materialise_bucket(later, "made_up", "items", 0, CONTEXT).is_complete
    assert len(source.requests) == asked + 1
    assert {row.refresh_checked_at for row in rows_of(engine, ing_record)} == {NOW + timedelta(days=40)}
    assert materialise_bucket(later, "made_up", "items", 0, CONTEXT).is_complete
    assert len(source.requests) == asked + 1


def test_an_endpoint_that_cannot_be_asked_by_id_has_no_update(engine: Engine) -> None:
    with pytest.raises(PlanError, match="by their ids"):
        materialise_bucket(environment(engine, None), "made_up", "items", 0, CONTEXT)


def test_while_a_source_is_away_it_is_told_what_goes_wrong_and_how_far_the_windows_are(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(materialisation, "PROGRESS_S", 0.0)
    monkeypatch.setattr(executor_module, "LOOK_S", 0.01)
    clock = Clock()

    def away_at_first(number: int) -> None:
        clock.pass_by(timedelta(seconds=10))
        if number <= 2:
            raise ResponseError(ErrorLevel.TRANSIENT, "HTTP_503", "GET /items: status 503")

    windows = [GRID.window(number) for number in range(2)]
    source = MemorySource(SPEC.pagination, [item(n, GRID.window(n).start) for n in range(2)], trouble=away_at_first)
    planned, trouble, progress = [], list[str](), list[str]()
    listener = Listener(planned.append, trouble.append, progress.append)
    working = replace(environment(engine, source), clock=clock, threads=1)
    names = ("made_up", "items", Operation.HARVEST)
    results = materialise_windows(working, *names, windows, CONTEXT, listener=listener)
    assert {result.plan.plan_key for result in results} == {plan.plan_key for plan in planned[0].values()}
    assert list(planned[0]) == windows
    assert [each.split(": GET /items: status 503. It goes on at ")[0] for each in trouble] == [str(w) for w in windows]
    assert progress[0].startswith("0 of 2 are complete; 0 records of 0 pages are stored; slices at work: 0, waiting: 2")
    assert any(each.startswith("1 of 2 are complete; 1 records of 1 page are stored;") for each in progress)


def test_a_bucket_is_told_of_with_its_plan(engine: Engine) -> None:
    assert SPEC.search is not None
    spec = replace(SPEC, update_buckets=1, detail=replace(SPEC.search, endpoint_name="by_id"))
    planned, told = [], list[PartitionResult]()
    listener = Listener(on_planned=planned.append, on_result=told.append)
    working = environment(engine, MemorySource(SPEC.pagination, []), spec)
    result = materialise_bucket(working, "made_up", "items", 0, CONTEXT, listener=listener)
    assert told == [result]
    assert planned == [{0: result.plan}]


def test_a_bucket_that_ended_incomplete_is_begun_anew_with_what_became_due_since_then(engine: Engine) -> None:
    assert SPEC.search is not None
    spec = replace(SPEC, update_buckets=1, detail=replace(SPEC.search, endpoint_name="by_id"))
    source = MemorySource(SPEC.pagination, [item(number, GRID.window(0).start) for number in range(9)])
    working = environment(engine, source, spec)

    def signal(*ids: str) -> None:
        add_signals(engine, "made_up", "items", ids, reason=None, requested_by="test", now=NOW)

    def refuse(number: int) -> None:
        raise ResponseError(ErrorLevel.REQUEST, "HTTP_400", "the source says no")

    def materialise() -> PartitionResult:
        return materialise_bucket(working, "made_up", "items", 0, CONTEXT)

    signal("0", "1", "2")
    source.trouble = refuse
    assert materialise().report.status is PlanStatus.PARTIAL
    again = materialise()
    assert (again.plan.continued, again.plan.generation) == (True, 1), "the same records are the same plan"
    signal("3")
    source.trouble = lambda number: None
    last = materialise()
    assert last.is_complete
    assert (last.plan.generation, last.report.due["signalled"]) == (2, 4)
    assert {row.provider_id for row in rows_of(engine, ing_record)} == {"0", "1", "2", "3"}
    assert {row.status_code for row in rows_of(engine, ing_signal)} == {"DONE"}, "none waits for another run"


def test_more_than_one_plan_takes_is_said_and_fetched_the_next_time(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert SPEC.search is not None
    spec = replace(SPEC, update_buckets=1, detail=replace(SPEC.search, endpoint_name="by_id"))
    source = MemorySource(SPEC.pagination, [item(number, GRID.window(0).start) for number in range(5)])
    ids = [str(number) for number in range(5)]
    add_signals(engine, "made_up", "items", ids, reason=None, requested_by="test", now=NOW)
    for signalled, is_all in ((3, False), (2, True)):
        due = due_records(engine, spec, 0, NOW, limit=3)
        assert (len(due.ids), due.signalled, due.is_all) == (signalled, signalled, is_all)
        monkeypatch.setattr(materialisation, "due_records", lambda *found, due=due: due)
        assert materialise_bucket(environment(engine, source, spec), "made_up", "items", 0, CONTEXT).is_complete
    assert len(rows_of(engine, ing_record)) == 5
