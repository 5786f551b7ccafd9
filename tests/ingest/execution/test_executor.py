"""Every record of the source is stored once, whatever the pages, the split and the moment of a crash."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, delete, select, update

from platform_defs.canonical import canonical_hash
from platform_defs.ingest.codes import (
    ErrorLevel,
    Location,
    Operation,
    PaginationType,
    PlanStatus,
    RepeatedToken,
    RunStatus,
    SliceStatus,
    TaskStatus,
    Trigger,
)
from platform_defs.ingest.cursors.operations import read_watermark
from platform_defs.ingest.errors import ResponseError
from platform_defs.ingest.execution.executor import Executor
from platform_defs.ingest.execution.progress import EXPIRED_TOKEN
from platform_defs.ingest.execution.task_ends import CANCELLED, LONGEST_WAIT, MAX_ATTEMPTS
from platform_defs.ingest.planning.planner import PlannedWork, plan_bucket
from platform_defs.ingest.planning.signals import add_signals
from platform_defs.ingest.planning.slices import Estimate
from platform_defs.ingest.planning.update_candidates import due_records, id_slices
from platform_defs.ingest.planning.windows import Window, WindowGrid
from platform_defs.ingest.spec.model import CompiledSpec, OutputField, RequestParam, Spec
from platform_defs.ingest.tasks.blocks import list_blocks, unblock_endpoint, why_not_asked
from platform_defs.ingest.tasks.leases import LEASE
from platform_defs.store.engine import read, transact
from platform_defs.store.tables import ingest as tables
from platform_defs.store.tables.ingest import (
    ing_outbox,
    ing_plan,
    ing_plan_slice,
    ing_record,
    ing_record_quarantine,
    ing_signal,
    ing_task,
    ing_task_run,
    ing_task_run_batch,
)
from platform_defs.store.tables.registry import reg_provenance
from tests.ingest.execution.memory_source import MemorySource, item
from tests.ingest.planning.test_planner import NOW, SPEC, plan, rows_of

GRID = WindowGrid.of(SPEC.window)
DAY = GRID.window(0)


@dataclass
class Clock:
    """Stands still until a test moves it."""

    now: datetime = NOW

    def __call__(self) -> datetime:
        return self.now

    def pass_by(self, span: timedelta) -> None:
        self.now += span


class Killed(BaseException):
    """The process dies here."""


def paged(kind: PaginationType = PaginationType.OFFSET, size: int = 10, **more: Any) -> Spec:
    paths = {"next_token_path": "$.next"} if kind is PaginationType.TOKEN else {}
    paths |= {"next_url_path": "$.next"} if kind is PaginationType.URL else {}
    return replace(SPEC, pagination=replace(SPEC.pagination, type=kind, page_size=size, **{**paths, **more}))


def items_of(count: int, window: Window = DAY) -> list[dict[str, Any]]:
    step = window.size / max(1, count)
    return [item(number, window.start + number * step) for number in range(count)]


def executor(engine: Engine, source: Any, clock: Clock | None = None, **more: Any) -> Executor:
    return Executor(engine, lambda spec: source, clock=clock or Clock(), **{"threads": 1, **more})


def drain(
    engine: Engine,
    spec: Spec,
    source: Any,
    window: Window = DAY,
    estimate: Estimate = Estimate(),  # noqa: B008
) -> tuple[PlannedWork, PlanStatus]:
    planned = plan(engine, spec, window, estimate)
    return planned, executor(engine, source).drain_plans([planned.plan_id])[planned.plan_id]


def stored(engine: Engine) -> dict[str, datetime]:
    return {row.provider_id: row.updated_at for row in rows_of(engine, ing_record)}


def listed(found: Sequence[dict[str, Any]], window: Window = DAY) -> dict[str, datetime]:
    times = {each["id"]: datetime.fromisoformat(each["updated"]) for each in found}
    return {name: at for name, at in times.items() if window.contains(at)}


@pytest.mark.parametrize("kind", list(PaginationType))
def test_a_window_is_fetched_page_by_page_with_every_kind_of_pagination(engine: Engine, kind: PaginationType) -> None:
    spec = paged(kind, repeated_token=RepeatedToken.CONTINUES)
    source = MemorySource(spec.pagination, items_of(35))
    _, status = drain(engine, spec, source)
    assert status is PlanStatus.COMPLETED
    assert stored(engine) == listed(source.items)
    assert read_watermark(engine, spec) == DAY.end
    batches = rows_of(engine, ing_task_run_batch)
    assert [batch.batch_no for batch in batches] == list(range(1, len(batches) + 1))
    assert batches[-1].stats["hasNext"] is False
    assert {row.status_code for row in rows_of(engine, ing_task_run)} == {RunStatus.SUCCEEDED}
    assert {row.event_type for row in rows_of(engine, ing_outbox)} == {"RECORD_INSERTED"}


def test_a_record_at_the_windows_end_belongs_to_the_next_window(engine: Engine) -> None:
    spec = paged()
    source = MemorySource(spec.pagination, [item(1, DAY.start), item(2, DAY.end)])
    drain(engine, spec, source)
    assert list(stored(engine)) == ["1"]
    assert rows_of(engine, ing_task_run_batch)[0].stats["outside"] == 1
    drain(engine, spec, source, GRID.window(1))
    assert list(stored(engine)) == ["1", "2"]


def test_materialising_a_finished_window_again_fetches_it_again(engine: Engine) -> None:
    spec = paged()
    source = MemorySource(spec.pagination, items_of(15))
    drain(engine, spec, source)
    asked = len(source.requests)
    source.items = [item(number, DAY.start + timedelta(hours=23), late=True) for number in range(15)]
    planned, status = drain(engine, spec, source)
    assert (planned.generation, status, len(source.requests)) == (2, PlanStatus.COMPLETED, 2 * asked)
    assert all(row.record["late"] for row in rows_of(engine, ing_record))
    assert Counter(row.event_type for row in rows_of(engine, ing_outbox)) == {
        "RECORD_INSERTED": 15,
        "RECORD_UPDATED": 15,
    }


def test_the_outbox_names_each_change_by_the_records_key_and_version(engine: Engine) -> None:
    spec, at = paged(), DAY.start + timedelta(hours=1, microseconds=5)
    strange = 'a "quoted" \\ Ü'
    source = MemorySource(spec.pagination, [item(1, DAY.start), item(2, at) | {"id": strange}])
    drain(engine, spec, source)
    hash_of = {row.provider_id: row.expr_hash for row in rows_of(engine, ing_record)}
    expected = {
        name: {"providerId": name, "updatedAt": time, "exprHash": hash_of[name]}
        for name, time in (("1", "2026-01-01T00:00:00Z"), (strange, "2026-01-01T01:00:00.000005Z"))
    }
    events = rows_of(engine, ing_outbox)
    assert {row.provider_id: row.payload for row in events} == expected
    for row in events:
        version = [row.payload["updatedAt"], row.payload["exprHash"]]
        key = [row.provenance_code, row.endpoint_name, row.provider_id, *version]
        assert row.idempotent_key == canonical_hash(key)


def test_an_older_or_equal_record_does_not_replace_the_stored_one(engine: Engine) -> None:
    spec = paged()
    newer, older = DAY.start + timedelta(hours=2), DAY.start + timedelta(hours=1)
    source = MemorySource(spec.pagination, [item(1, newer, version="first")])
    drain(engine, spec, source)
    for time in (older, newer):
        source.items = [item(1, time, version="second")]
        drain(engine, spec, source)
    [row] = rows_of(engine, ing_record)
    assert (row.record["version"], row.updated_at) == ("first", newer)
    mapped = replace(spec, output_fields=(OutputField("version", "$.version"),))
    drain(engine, mapped, source)
    [row] = rows_of(engine, ing_record)
    assert row.record == {"version": "second"}, "equal, but other expressions made it"


def test_items_that_cannot_be_read_are_set_aside_and_do_not_stop_their_batch(engine: Engine) -> None:
    spec = paged()
    broken = [{"updated": "2026-01-01T01:00:00Z"}, {"id": "b", "updated": "someday"}]
    source = MemorySource(spec.pagination, items_of(3))
    source._matching = lambda names: [*source.items, *broken]  # type: ignore[method-assign]
    for _ in range(2):
        _, status = drain(engine, spec, source)
        assert status is PlanStatus.COMPLETED
    assert len(stored(engine)) == 3
    found = {(row.reason_code, row.provider_id, row.field_path) for row in rows_of(engine, ing_record_quarantine)}
    assert found == {("NO_ID", None, "$.id"), ("UPDATED_AT", "b", "$.updated")}
    assert len(rows_of(engine, ing_record_quarantine)) == 2, "the same bad item twice is one row"


def _empty(engine: Engine) -> None:
    with engine.begin() as connection:
        for table in reversed(tables.metadata.sorted_tables):
            if table.name.startswith("ing_"):
                connection.execute(delete(table))


def test_a_total_beyond_the_cap_splits_the_window_before_anything_is_stored(engine: Engine) -> None:
    spec = paged(size=10, result_cap=30)
    source = MemorySource(spec.pagination, items_of(100))
    planned, status = drain(engine, spec, source)
    assert status is PlanStatus.COMPLETED
    assert stored(engine) == listed(source.items)
    slices = rows_of(engine, ing_plan_slice)
    assert slices[0].status_code == SliceStatus.SPLIT
    assert len(slices) > 4
    split = {piece.id for piece in slices if piece.status_code == SliceStatus.SPLIT}
    assert not [batch for batch in rows_of(engine, ing_task_run_batch) if batch.slice_id in split]
    assert planned.generation == 1


def test_the_smallest_window_is_split_by_ranges_of_ids(engine: Engine) -> None:
    spec = replace(
        paged(size=5, result_cap=10), id_range_param=RequestParam("ids", "ids", Location.QUERY), id_range=(0, 63)
    )
    source = MemorySource(spec.pagination, [item(number, DAY.start) for number in range(50)])
    _, status = drain(engine, spec, source)
    assert (status, len(stored(engine))) == (PlanStatus.COMPLETED, 50)


def test_what_cannot_be_split_ends_partial_and_says_so(engine: Engine) -> None:
    spec = paged(size=5, result_cap=10)
    source = MemorySource(spec.pagination, [item(number, DAY.start) for number in range(50)])
    _, status = drain(engine, spec, source)
    assert status is PlanStatus.PARTIAL
    messages = [row.last_error_msg for row in rows_of(engine, ing_task) if row.status_code == TaskStatus.PARTIAL]
    assert "the source has 50 records here" in messages[0]
    assert read_watermark(engine, spec) is None


def failing(level: ErrorLevel, code: str = "HTTP_503", times: int = 1000) -> Any:
    left = [times]

    def trouble(number: int) -> None:
        if left[0] > 0:
            left[0] -= 1
            raise ResponseError(level, code, "the source says no")

    return trouble


def test_a_source_that_is_away_is_tried_again_later_and_then_given_up(engine: Engine) -> None:
    spec, clock = paged(), Clock()
    source = MemorySource(spec.pagination, items_of(5), trouble=failing(ErrorLevel.TRANSIENT))
    planned = plan(engine, spec, DAY, Estimate())
    runner = executor(engine, source, clock)
    for attempt in range(1, MAX_ATTEMPTS + 1):
        runner.drain_everything()
        [task] = rows_of(engine, ing_task)
        assert task.retry_count == attempt
        assert task.last_error_code == "HTTP_503"
        clock.pass_by(timedelta(minutes=10))
    assert task.status_code == TaskStatus.PARTIAL
    source.trouble = failing(ErrorLevel.TRANSIENT, times=0)
    assert plan(engine, spec, DAY, Estimate(), now=clock()).continued
    assert runner.drain_plans([planned.plan_id]) == {planned.plan_id: PlanStatus.COMPLETED}


def test_a_task_that_is_asked_for_again_has_all_of_its_attempts_again(engine: Engine) -> None:
    spec, clock = paged(), Clock()
    source = MemorySource(spec.pagination, items_of(5), trouble=failing(ErrorLevel.TRANSIENT))
    runner = executor(engine, source, clock)
    for asked in range(1, 4):
        plan(engine, spec, DAY, Estimate(), now=clock())
        for attempt in range(1, MAX_ATTEMPTS + 1):
            runner.drain_everything()
            [task] = rows_of(engine, ing_task)
            is_last = attempt == MAX_ATTEMPTS
            assert (task.status_code == TaskStatus.PARTIAL) == is_last, f"asked {asked} times, attempt {attempt}"
            clock.pass_by(timedelta(minutes=10))
        assert len(source.requests) == asked * MAX_ATTEMPTS


def test_a_refused_request_fails_its_task_and_the_rest_of_the_plan_goes_on(engine: Engine) -> None:
    spec = paged()
    source = MemorySource(spec.pagination, items_of(20), trouble=failing(ErrorLevel.REQUEST, "HTTP_400", times=1))
    planned = plan(engine, spec, DAY, Estimate(records_per_hour=20))
    assert executor(engine, source).drain_plans([planned.plan_id]) == {planned.plan_id: PlanStatus.PARTIAL}
    counts = Counter(row.status_code for row in rows_of(engine, ing_task))
    assert counts == {TaskStatus.FAILED: 1, TaskStatus.SUCCEEDED: len(rows_of(engine, ing_task)) - 1}


def test_a_fatal_error_blocks_the_endpoint_until_an_operator_allows_it_again(engine: Engine) -> None:
    spec = paged()
    source = MemorySource(spec.pagination, items_of(20), trouble=failing(ErrorLevel.FATAL, "HTTP_401", times=1))
    planned = plan(engine, spec, DAY, Estimate(records_per_hour=20))
    executor(engine, source).drain_everything()
    [block] = list_blocks(engine)
    assert (block.endpoint_name, block.error_code) == ("items", "HTTP_401")
    asked = len(source.requests)
    assert executor(engine, source).drain_everything() == 0
    assert len(source.requests) == asked
    assert unblock_endpoint(engine, "made_up", "items")
    plan(engine, spec, DAY, Estimate(records_per_hour=20))
    assert executor(engine, source).drain_plans([planned.plan_id]) == {planned.plan_id: PlanStatus.COMPLETED}


def test_tasks_of_a_source_that_is_not_active_wait_until_it_is(engine: Engine) -> None:
    spec = paged()
    source = MemorySource(spec.pagination, items_of(20))
    row = {"provenance_code": "made_up", "provenance_name": "Made up", "is_active": False}
    transact(engine, lambda connection: connection.execute(reg_provenance.insert().values(row)))
    planned = plan(engine, spec, DAY, Estimate())
    assert executor(engine, source).drain_plans([planned.plan_id]) == {planned.plan_id: PlanStatus.READY}
    assert source.requests == []
    assert "load its Registry file with `active: true`" in str(why_not_asked(engine, "made_up", "items"))
    transact(engine, lambda connection: connection.execute(update(reg_provenance).values(is_active=True)))
    assert why_not_asked(engine, "made_up", "items") is None
    assert executor(engine, source).drain_plans([planned.plan_id]) == {planned.plan_id: PlanStatus.COMPLETED}


def test_slices_that_had_no_room_in_the_queue_are_fetched_also_when_the_run_that_planned_them_is_dead(
    engine: Engine,
) -> None:
    spec = replace(paged(), stock_limit=2)
    source = MemorySource(spec.pagination, items_of(35))
    planned = plan(engine, spec, DAY, Estimate(records_per_hour=100))
    assert planned.queued == 2 < len(rows_of(engine, ing_plan_slice))
    executor(engine, source).drain_everything()
    assert [row.status_code for row in rows_of(engine, ing_plan)] == [PlanStatus.COMPLETED]
    assert stored(engine) == listed(source.items)


def test_a_token_that_expired_begins_the_slice_again_from_its_window(engine: Engine) -> None:
    spec = paged(PaginationType.TOKEN, repeated_token=RepeatedToken.CONTINUES)
    source, clock = MemorySource(spec.pagination, items_of(35)), Clock()
    planned = plan(engine, spec, DAY, Estimate())

    def trouble(number: int) -> None:
        if number == 3:
            raise Killed
        if number == 4:
            raise ResponseError(ErrorLevel.REQUEST, EXPIRED_TOKEN, "unknown cursor")

    source.trouble = trouble
    with pytest.raises(Killed):
        executor(engine, source, clock).drain_plans([planned.plan_id])
    clock.pass_by(LEASE * 2)
    assert executor(engine, source, clock).drain_plans([planned.plan_id]) == {planned.plan_id: PlanStatus.COMPLETED}
    assert stored(engine) == listed(source.items)
    assert [batch.stats["pass"] for batch in rows_of(engine, ing_task_run_batch)] == [1, 1, 2, 2, 2, 2]


def test_an_executor_that_is_told_to_stop_gives_its_tasks_back_and_another_goes_on_after_them(engine: Engine) -> None:
    spec = paged()
    source = MemorySource(spec.pagination, items_of(50))
    planned = plan(engine, spec, DAY, Estimate())
    first = executor(engine, source)
    source.trouble = lambda number: first.cancel.set() if number == 2 else None
    first.drain_plans([planned.plan_id])
    [task] = rows_of(engine, ing_task)
    assert (task.status_code, task.lease_owner) == (TaskStatus.QUEUED, None)
    source.trouble = lambda number: None
    executor(engine, source).drain_plans([planned.plan_id])
    assert len(source.requests) == len(rows_of(engine, ing_task_run_batch)), "no page was fetched twice"
    assert stored(engine) == listed(source.items)


def test_a_stop_is_no_fault_of_the_source_and_hides_no_earlier_one(engine: Engine) -> None:
    spec, clock = paged(), Clock()
    source = MemorySource(spec.pagination, items_of(5))
    planned = plan(engine, spec, DAY, Estimate())

    def away(number: int) -> None:
        raise ResponseError(ErrorLevel.TRANSIENT, "HTTP_500", "the source is away")

    def stopped(number: int) -> None:
        last.cancel.set()
        raise ResponseError(ErrorLevel.TRANSIENT, CANCELLED, "cancelled while waiting")

    source.trouble = away
    for _ in range(MAX_ATTEMPTS - 1):
        executor(engine, source, clock).drain_everything()
        clock.pass_by(LONGEST_WAIT)
    last, source.trouble = executor(engine, source, clock), stopped
    last.drain_plans([planned.plan_id])
    [task] = rows_of(engine, ing_task)
    assert (task.status_code, task.last_error_msg) == (TaskStatus.QUEUED, "the source is away")
    assert [run.status_code for run in rows_of(engine, ing_task_run)][-2:] == [RunStatus.FAILED, RunStatus.CANCELLED]
    source.trouble = lambda number: None
    assert executor(engine, source, clock).drain_plans([planned.plan_id]) == {planned.plan_id: PlanStatus.COMPLETED}


def two_phase() -> Spec:
    assert SPEC.search is not None
    listing = replace(SPEC.search, response=replace(SPEC.search.response, items_path="$.items", updated_at_path=None))
    detail = replace(SPEC.search, endpoint_name="detail")
    batching = replace(SPEC.batching, id_batch_size=4)
    return replace(paged(), search=listing, detail=detail, two_phase=True, batching=batching)


def test_two_phases_fetch_the_details_of_listed_ids_and_a_bad_id_stands_alone(engine: Engine) -> None:
    spec = two_phase()
    source = MemorySource(spec.pagination, items_of(20), bad_ids=["7"])
    _, status = drain(engine, spec, source)
    assert status is PlanStatus.COMPLETED
    assert set(stored(engine)) == {str(number) for number in range(20)} - {"7"}
    [row] = rows_of(engine, ing_record_quarantine)
    assert (row.provider_id, row.reason_code) == ("7", "BAD_ID")


def test_records_without_a_time_of_their_own_have_the_day_that_listed_them(engine: Engine) -> None:
    base = two_phase()
    assert base.search is not None
    assert base.detail is not None
    listing = replace(base.search, response=replace(base.search.response, updated_at_from_window=True))
    detail = replace(base.detail, response=replace(base.detail.response, updated_at_path=None))
    spec = replace(base, search=listing, detail=detail)
    source = MemorySource(spec.pagination, items_of(5))
    drain(engine, spec, source)
    assert set(stored(engine).values()) == {DAY.start}
    asked_again(engine, replace(spec, operation=Operation.UPDATE, update_buckets=1), source, ["1", "new"])
    assert stored(engine)["1"] == DAY.start, "an update by id does not make the record look newer than it is"


def asked_again(engine: Engine, spec: Spec, source: Any, ids: list[str]) -> PlanStatus:
    add_signals(engine, "made_up", "items", ids, reason="retracted", requested_by="test", now=NOW)
    due = due_records(engine, spec, 0, NOW).ids
    planned = plan_bucket(
        engine,
        CompiledSpec(spec),
        0,
        id_slices(spec, 0, due),
        schedule_instance_id=1,
        trigger=Trigger.SIGNAL,
        now=NOW,
    )
    return executor(engine, source).drain_plans([planned.plan_id])[planned.plan_id]


def test_an_update_fetches_by_id_closes_its_signals_and_leaves_the_watermark_alone(engine: Engine) -> None:
    assert SPEC.search is not None
    spec = replace(paged(), detail=replace(SPEC.search, endpoint_name="by_id"))
    source = MemorySource(spec.pagination, items_of(10))
    drain(engine, spec, source)
    before = read_watermark(engine, spec)
    source.items = [item(3, DAY.start + timedelta(hours=20), title="corrected")]
    update_spec = replace(spec, operation=Operation.UPDATE, update_buckets=1)
    assert asked_again(engine, update_spec, source, ["3", "gone"]) is PlanStatus.COMPLETED
    [row] = [row for row in rows_of(engine, ing_record) if row.provider_id == "3"]
    assert (row.record["title"], row.refresh_checked_at) == ("corrected", NOW)
    assert {row.status_code for row in rows_of(engine, ing_signal)} == {"DONE"}
    assert list(due_records(engine, update_spec, 0, NOW).ids) == []
    assert [row.reason_code for row in rows_of(engine, ing_record_quarantine)] == ["NOT_FOUND"]
    assert read_watermark(engine, spec) == before


def test_a_task_that_was_cancelled_is_not_worked_on(engine: Engine) -> None:
    plan(engine, SPEC, DAY, Estimate())
    transact(engine, lambda c: c.execute(update(ing_task).values(status_code=TaskStatus.CANCELLED)))
    source = MemorySource(SPEC.pagination, items_of(3))
    assert executor(engine, source).drain_everything() == 0
    count = read(engine, lambda c: len(c.execute(select(ing_record.c.id)).all()))
    assert (count, source.requests) == (0, [])
    assert NOW.tzinfo is UTC
