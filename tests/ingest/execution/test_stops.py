"""A run that ends before its slice does loses nothing, says why, and is continued: by budget, by cuts, by kills."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, select, update

from assets.ingest.reports import plan_metadata
from platform_defs.ingest.codes import (
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
from platform_defs.ingest.fetching.early_ends import (
    LARGE_PAGE_BYTES,
    PageSize,
    Reslicing,
    RunUse,
    reslicing_for,
    rest_in_parts,
    used_up,
)
from platform_defs.ingest.fetching.pages import PagePosition
from platform_defs.ingest.ledger.windows import open_windows, plan_report
from platform_defs.ingest.planning.planner import plan_bucket
from platform_defs.ingest.planning.slices import Estimate, id_slice, ids_of, page_slice, time_slice, window_of
from platform_defs.ingest.spec.model import CompiledSpec
from platform_defs.ingest.tasks.leases import LEASE
from platform_defs.store.engine import transact
from platform_defs.store.tables.ingest import (
    ing_plan,
    ing_plan_slice,
    ing_record,
    ing_task,
    ing_task_run,
    ing_task_run_batch,
)
from tests.ingest.execution.memory_source import MemorySource, item
from tests.ingest.execution.test_executor import (
    DAY,
    Clock,
    Killed,
    _empty,
    drain,
    executor,
    items_of,
    listed,
    paged,
    stored,
)
from tests.ingest.planning.test_planner import NOW, plan, rows_of

SECOND = timedelta(seconds=1)


class PlaceKeeper(MemorySource):
    """A source whose token stays the same: it counts the pages itself, and has sent a page that nobody received."""

    place = 0

    def _page(self, names: Mapping[str, Any], url: str | None) -> dict[str, Any]:
        found, size = self._matching(names), self.pagination.page_size or 0
        self.place = 0 if names["page"]["token"] is None else self.place + size
        return {"items": found[self.place : self.place + size], "total": len(found), "next": "same"}


def limit_budget(engine: Engine, **budget: int) -> None:
    """Gives the slices that stand a budget of their own."""

    def work(connection: Any) -> None:
        for row in connection.execute(select(ing_plan_slice)).all():
            spec = {**row.slice_spec, "budget": {**row.slice_spec["budget"], **budget}}
            connection.execute(update(ing_plan_slice).where(ing_plan_slice.c.id == row.id).values(slice_spec=spec))

    transact(engine, work)


@pytest.mark.parametrize("keeps_place", [False, True], ids=["pages", "the source keeps the place"])
def test_a_run_that_used_up_its_budget_says_so_and_is_continued_also_after_a_kill(
    engine: Engine, keeps_place: bool
) -> None:
    kind = PaginationType.TOKEN if keeps_place else PaginationType.OFFSET
    spec, clock = paged(kind, repeated_token=RepeatedToken.CONTINUES), Clock()
    source = (PlaceKeeper if keeps_place else MemorySource)(spec.pagination, items_of(75))
    planned = plan(engine, spec, DAY, Estimate())
    limit_budget(engine, maxRequests=3)
    seen: list[str | None] = []

    def trouble(number: int) -> None:
        if number == 4:
            seen.extend(state.reason for state in open_windows(engine, "made_up", "items", Operation.HARVEST))
        if number == 5 and not keeps_place:
            raise Killed

    source.trouble = trouble
    if not keeps_place:
        with pytest.raises(Killed):
            executor(engine, source, clock).drain_plans([planned.plan_id])
        clock.pass_by(LEASE * 2)
    assert executor(engine, source, clock).drain_plans([planned.plan_id]) == {planned.plan_id: PlanStatus.COMPLETED}
    said = "the run has made 3 requests, and its budget is 3: after 3 pages the task waits for its next turn"
    assert seen == [said], "while it waits, the window says what for"
    assert stored(engine) == listed(source.items)
    pages = rows_of(engine, ing_task_run_batch)
    assert (len(pages), len(source.requests)) == (8, 8 if keeps_place else 9), "only the page of the kill came again"
    runs = [(run.status_code, run.error) for run in rows_of(engine, ing_task_run)]
    assert runs[0] == (RunStatus.PARTIAL, said)
    assert [status for status, _ in runs[-2:]] == [RunStatus.PARTIAL, RunStatus.SUCCEEDED]
    assert [(task.status_code, task.last_error_msg) for task in rows_of(engine, ing_task)] == [
        (TaskStatus.SUCCEEDED, None)
    ]
    assert read_watermark(engine, spec) == DAY.end


def test_a_run_that_takes_too_long_makes_room_for_the_task_that_waits(engine: Engine) -> None:
    spec, clock = paged(), Clock()
    source = MemorySource(spec.pagination, items_of(30))
    source.trouble = lambda number: clock.pass_by(500 * SECOND)
    first = plan(engine, spec, DAY, Estimate())
    second = plan(engine, spec, replace_day(1), Estimate(), now=clock() + SECOND)
    states = executor(engine, source, clock).drain_plans([first.plan_id, second.plan_id])
    assert set(states.values()) == {PlanStatus.COMPLETED}
    one, other = (task.id for task in rows_of(engine, ing_task))
    assert [(run.task_id, run.status_code) for run in rows_of(engine, ing_task_run)] == [
        (one, RunStatus.PARTIAL),
        (other, RunStatus.SUCCEEDED),
        (one, RunStatus.SUCCEEDED),
    ]
    assert "has taken 1000 s, and its budget is 900 s" in rows_of(engine, ing_task_run)[0].error
    assert stored(engine) == listed(source.items)


def replace_day(number: int) -> Any:
    return replace(DAY, start=DAY.start + timedelta(days=number), end=DAY.end + timedelta(days=number))


def test_a_slice_of_which_little_is_fetched_is_cut_when_its_budget_is_used_up(engine: Engine) -> None:
    spec = paged()
    source = MemorySource(spec.pagination, items_of(100))
    planned = plan(engine, spec, DAY, Estimate())
    limit_budget(engine, maxRequests=2)
    assert executor(engine, source).drain_plans([planned.plan_id]) == {planned.plan_id: PlanStatus.COMPLETED}
    assert stored(engine) == listed(source.items)
    whole, *halves = rows_of(engine, ing_plan_slice)
    assert (whole.status_code, len(halves)) == (SliceStatus.SPLIT, 2)
    assert [window_of(half.slice_spec) for half in halves] == [
        replace(DAY, end=DAY.start + timedelta(hours=12)),
        replace(DAY, start=DAY.start + timedelta(hours=12)),
    ]
    run = rows_of(engine, ing_task_run)[0]
    reason = "the rest was cut in two: the run has made 2 requests, and its budget is 2"
    assert (run.status_code, run.error, run.stats["split"]) == (RunStatus.PARTIAL, reason, [2, 3])
    [row] = rows_of(engine, ing_plan)
    assert row.record_remarks["cuts"] == [{"slice": 1, "parts": [2, 3], "reason": reason}]
    assert plan_metadata(plan_report(engine, planned.plan_id))["slices cut"] == f"slice 1 became 2 and 3: {reason}"


def test_what_is_left_of_a_list_of_ids_and_of_a_range_of_pages_is_cut_and_fetched_once(engine: Engine) -> None:
    pages = replace(paged(), window=replace(paged().window, supports_updated_since=False))
    source = MemorySource(pages.pagination, items_of(75))
    planned = plan(engine, pages, DAY, Estimate())
    limit_budget(engine, maxRequests=3)
    assert executor(engine, source).drain_plans([planned.plan_id]) == {planned.plan_id: PlanStatus.COMPLETED}
    assert stored(engine) == listed(source.items)
    assert len(source.requests) <= 8 + 1, "behind the last page one more is asked for"

    assert pages.search is not None
    batching = replace(pages.batching, id_batch_size=10)
    by_id = replace(SPEC_BY_ID, detail=replace(pages.search, endpoint_name="by_id"), batching=batching)
    ids = sorted(stored(engine))
    draft = id_slice(by_id, 0, ids, number=1)
    planned = plan_bucket(
        engine, CompiledSpec(by_id), 0, [draft], schedule_instance_id=1, trigger=Trigger.SIGNAL, now=NOW
    )
    limit_budget(engine, maxRequests=2)
    asked = len(source.requests)
    assert executor(engine, source).drain_plans([planned.plan_id]) == {planned.plan_id: PlanStatus.COMPLETED}
    assert sorted(each for _, names in source.requests[asked:] for each in names["ids"]) == ids, "each id once"
    split = [piece.slice_spec["dimension"] for piece in rows_of(engine, ing_plan_slice) if piece.status_code == "SPLIT"]
    assert set(split) == {"PAGE", "ID"}


def test_a_window_that_ended_partial_is_fetched_again_and_not_called_complete(engine: Engine) -> None:
    spec = paged(size=5, result_cap=10)
    capped = MemorySource(spec.pagination, [item(number, DAY.start) for number in range(50)])
    for _ in range(2):
        _, status = drain(engine, spec, capped)
        assert status is PlanStatus.PARTIAL
    assert read_watermark(engine, spec) is None
    capped.items = capped.items[:8]
    again, status = drain(engine, spec, capped)
    assert (again.generation, status) == (1, PlanStatus.COMPLETED), "no more than the source lets us page through"

    listing, other = replace(paged(), endpoint_name="others"), items_of(25)
    source = MemorySource(listing.pagination, other[:-1])
    answer = source._page
    source._page = lambda names, url: answer(names, url) | {"total": 25}  # type: ignore[method-assign]
    _, status = drain(engine, listing, source)
    assert status is PlanStatus.PARTIAL, "the source counts one more than it lists"
    source.items = other
    again, status = drain(engine, listing, source)
    assert (again.generation, status) == (1, PlanStatus.COMPLETED)
    assert len([row for row in rows_of(engine, ing_record) if row.endpoint_name == "others"]) == 25


def test_a_kill_before_a_slice_that_misses_items_is_begun_again_is_no_loss(engine: Engine) -> None:
    spec, clock = paged(), Clock()
    source = MemorySource(spec.pagination, items_of(25))
    planned, answer = plan(engine, spec, DAY, Estimate()), source._page

    def page(names: Mapping[str, Any], url: str | None) -> dict[str, Any]:
        found = answer(names, url)
        # the second page is short although more follow
        return found | {"items": found["items"][:4]} if len(source.requests) == 2 else found

    source._page = page  # type: ignore[method-assign]

    def trouble(number: int) -> None:
        if number == 3:
            raise Killed

    source.trouble = trouble
    with pytest.raises(Killed):
        executor(engine, source, clock).drain_plans([planned.plan_id])
    clock.pass_by(LEASE * 2)
    assert executor(engine, source, clock).drain_plans([planned.plan_id]) == {planned.plan_id: PlanStatus.COMPLETED}
    assert stored(engine) == listed(source.items)


@given(
    count=st.integers(0, 80),
    kind=st.sampled_from(list(PaginationType)),
    budget=st.integers(1, 4),
    deaths=st.sets(st.integers(1, 25), max_size=3),
    page_factor=st.sampled_from([1, 3]),
)
@settings(max_examples=12)
def test_whatever_the_budget_the_cuts_and_the_kills_every_record_is_stored(
    migrated: dict[str, Engine], count: int, kind: PaginationType, budget: int, deaths: set[int], page_factor: int
) -> None:
    engine = migrated["sqlite"]
    _empty(engine)
    spec, clock = paged(kind, 5, repeated_token=RepeatedToken.CONTINUES), Clock()
    # it may send more than it was asked for
    sends = replace(spec.pagination, page_size=5 * page_factor)
    offset = PaginationType.OFFSET, PaginationType.PAGE
    source = MemorySource(spec.pagination if kind in offset else sends, items_of(count))

    def trouble(number: int) -> None:
        if number in deaths:
            deaths.remove(number)
            raise Killed

    source.trouble = trouble
    planned = plan(engine, spec, DAY, Estimate())
    limit_budget(engine, maxRequests=budget)
    while True:
        try:
            status = executor(engine, source, clock).drain_plans([planned.plan_id])[planned.plan_id]
            break
        except Killed:
            clock.pass_by(LEASE + SECOND)
    assert status is PlanStatus.COMPLETED
    assert stored(engine) == listed(source.items)
    assert read_watermark(engine, spec) == DAY.end
    _empty(engine)


USE = RunUse(requests=10, count_429=0, time=5 * SECOND)
PAGE = PageSize(items=100, size_in_bytes=10_000, asked_for=100)


def test_when_a_run_is_over_its_budget_and_when_a_slice_is_cut() -> None:
    assert used_up({"maxRequests": 10, "maxDurationSec": 900}, USE, times=1) is not None
    assert used_up({"maxRequests": 10, "maxDurationSec": 900}, USE, times=2) is None, "it was begun again"
    assert used_up({"maxRequests": None, "maxDurationSec": 5}, USE, times=1) is not None
    assert used_up({"maxRequests": None, "maxDurationSec": 6}, USE, times=1) is None

    assert reslicing_for(PAGE, USE, None) is None
    assert reslicing_for(replace(PAGE, items=201), USE, None) is not None
    heavy = replace(PAGE, size_in_bytes=LARGE_PAGE_BYTES + 1)
    assert reslicing_for(heavy, USE, None) is None, "full: as large in a smaller window"
    assert reslicing_for(replace(heavy, items=99), USE, None) is not None
    assert reslicing_for(PAGE, replace(USE, count_429=9), None) is None, "too few requests to tell"
    assert reslicing_for(PAGE, replace(USE, requests=20, count_429=1), None) is None
    many = reslicing_for(PAGE, replace(USE, requests=20, count_429=2), None)
    assert many == Reslicing("the source answered 429 to 2 of 20 requests", may_fetch_again=False)


def test_what_is_left_of_a_slice_is_cut_without_a_gap_where_its_place_is_known() -> None:
    why, hour = Reslicing("429", may_fetch_again=False), timedelta(hours=1)
    by_time = paged(PaginationType.TIME)
    slice_spec = time_slice(by_time, DAY).spec
    at = DAY.start + 5.5 * hour
    first, second = rest_in_parts(by_time, slice_spec, PagePosition(3, time_from=at), why, 0.9)
    assert (window_of(first.spec).start, window_of(second.spec).end) == (at, DAY.end)
    assert window_of(first.spec).end == window_of(second.spec).start == DAY.start + 15 * hour, "on the grid"
    last = PagePosition(9, time_from=DAY.end - hour)
    assert rest_in_parts(by_time, slice_spec, last, why, 0.9) == [], "the smallest size is left"

    ids = [str(number) for number in range(1000)]
    parts = rest_in_parts(SPEC_BY_ID, id_slice(SPEC_BY_ID, 0, ids, number=1).spec, PagePosition(2), why, None)
    assert [len(ids_of(part.spec)) for part in parts] == [400, 400]
    assert [each for part in parts for each in ids_of(part.spec)] == ids[200:]
    few = id_slice(SPEC_BY_ID, 0, ids[:400], number=1).spec
    assert rest_in_parts(SPEC_BY_ID, few, PagePosition(2), why, None) == [], "one request is left"

    pages = page_slice(by_time, DAY, 1, 200).spec
    ranges = [part.spec["bounds"]["page"] for part in rest_in_parts(by_time, pages, PagePosition(9, page=9), why, None)]
    assert [(each["fromPage"], each["toPage"]) for each in ranges] == [(9, 104), (105, 200)]

    by_offset = paged()
    assert rest_in_parts(by_offset, time_slice(by_offset, DAY).spec, PagePosition(3), why, 0.1) == [], (
        "it would be fetched again"
    )
    may = replace(why, may_fetch_again=True)
    assert len(rest_in_parts(by_offset, time_slice(by_offset, DAY).spec, PagePosition(3), may, 0.1)) == 2
    assert rest_in_parts(by_offset, time_slice(by_offset, DAY).spec, PagePosition(3), may, 0.5) == []


SPEC_BY_ID = replace(paged(), operation=Operation.UPDATE)
