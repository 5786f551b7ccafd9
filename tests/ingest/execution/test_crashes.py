"""Whatever the moment of a crash, also while a window is split: each record is stored once, and little asked twice."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine

from platform_defs.ingest.codes import Location, PaginationType, PlanStatus, RepeatedToken, SliceStatus, TaskStatus
from platform_defs.ingest.cursors.catching_up import catch_up
from platform_defs.ingest.cursors.operations import read_watermark
from platform_defs.ingest.execution import splitting
from platform_defs.ingest.planning.slices import Estimate
from platform_defs.ingest.spec.model import RequestParam
from platform_defs.ingest.tasks.leases import LEASE
from platform_defs.store.tables.ingest import ing_outbox, ing_plan_slice, ing_task, ing_task_run_batch
from tests.ingest.execution.memory_source import MemorySource, item
from tests.ingest.execution.test_executor import DAY, Clock, Killed, _empty, executor, items_of, listed, paged, stored
from tests.ingest.planning.test_planner import plan, rows_of

MOST_RECORDS = 60


@dataclass
class DeadlyClock(Clock):
    """Whoever looks at it dies, once it has been set and looked at so often: anywhere between two requests."""

    looks_left: int | None = None

    def __call__(self) -> Any:
        if self.looks_left is not None:
            self.looks_left -= 1
            if self.looks_left < 0:
                self.looks_left = None
                raise Killed
        return super().__call__()


@dataclass
class CappedSource(MemorySource):
    """Counts all records, and lets a client page through the first of them only."""

    cap: int | None = None

    def _page(self, names: Mapping[str, Any], url: str | None) -> dict[str, Any]:
        document = super()._page(names, url)
        if self.cap is None:
            return document
        room = max(0, self.cap - self._start(names, url, self.pagination.page_size or 0))
        return document | {"items": document["items"][:room]}


@given(
    # microseconds into the window, often at full hours, where slices meet, and at its end, which is not its own
    times=st.lists(
        st.one_of(st.integers(0, 24).map(lambda hour: hour * 3_600_000_000), st.integers(0, 86_400_000_000)),
        max_size=MOST_RECORDS,
    ),
    size=st.integers(1, 20),
    kind=st.sampled_from([PaginationType.OFFSET, PaginationType.TOKEN, PaginationType.URL]),
    per_hour=st.sampled_from([None, 40.0, 400.0]),
    # how many records the source lets a client page through: windows are split down to ranges of ids
    result_cap=st.one_of(st.none(), st.integers(4, 40)),
    # the requests at which the process dies: before the answer, or when it has looked at the clock so often after it
    deaths=st.lists(st.integers(1, 40), max_size=3),
    looks=st.one_of(st.none(), st.integers(0, 6)),
    seed=st.randoms(use_true_random=False),
)
@settings(max_examples=60)
def test_whatever_the_crash_the_stored_set_is_the_sources_and_each_record_is_there_once(
    migrated: dict[str, Engine],
    times: list[int],
    size: int,
    kind: PaginationType,
    per_hour: float | None,
    result_cap: int | None,
    deaths: list[int],
    looks: int | None,
    seed: Any,
) -> None:
    engine = migrated["sqlite"]
    _empty(engine)
    ids = RequestParam("ids", "ids", Location.QUERY)
    spec = paged(kind, size, repeated_token=RepeatedToken.CONTINUES, result_cap=result_cap)
    spec = replace(spec, id_range_param=ids, id_range=(0, MOST_RECORDS - 1))
    found = [item(number, DAY.start + timedelta(microseconds=at)) for number, at in enumerate(times)]
    seed.shuffle(found)
    source, clock = CappedSource(spec.pagination, found, cap=result_cap), DeadlyClock()
    waiting = sorted(set(deaths))

    def trouble(number: int) -> None:
        if waiting and number >= waiting[0]:
            waiting.pop(0)
            if looks is None:
                raise Killed
            clock.looks_left = looks

    source.trouble = trouble
    planned = plan(engine, spec, DAY, Estimate(records_per_hour=per_hour))
    watermarks = []
    while True:
        try:
            status = executor(engine, source, clock).drain_plans([planned.plan_id])[planned.plan_id]
            break
        except Killed:
            clock.pass_by(LEASE + timedelta(seconds=1))
            watermarks.append(read_watermark(engine, spec))
    assert status is PlanStatus.COMPLETED
    assert stored(engine) == listed(found)
    published = [row.provider_id for row in rows_of(engine, ing_outbox)]
    assert sorted(published) == sorted(stored(engine)), "each record is new once"
    pages = rows_of(engine, ing_task_run_batch)
    assert len({batch.idempotent_key for batch in pages}) == len(pages)
    # of a slice that is split nothing is stored: its one request is no page
    split = sum(row.status_code == SliceStatus.SPLIT for row in rows_of(engine, ing_plan_slice))
    asked_again = len(source.requests) - len(pages) - split
    assert 0 <= asked_again <= len(watermarks), "a crash fetches at most one page again"
    if looks is None:
        assert asked_again == len(watermarks), "who dies before the answer has stored nothing of the page"
        assert set(watermarks) <= {None}
    assert [mark for mark in watermarks if mark is not None] in ([], [DAY.end]), "only behind the last page it moves"
    # who dies between the end of the last task and that leaves it to whoever tells of the window
    is_left_behind = catch_up(engine, planned.plan_id, clock())
    assert looks is not None or not is_left_behind
    assert read_watermark(engine, spec) == DAY.end
    _empty(engine)


@pytest.mark.parametrize("step", ["insert_slices", "insert_tasks", "end_task"])
def test_who_dies_in_the_middle_of_a_split_leaves_nothing_of_it(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    spec, clock = paged(result_cap=20), Clock()
    source = CappedSource(spec.pagination, items_of(35), cap=20)
    planned = plan(engine, spec, DAY, Estimate())
    done = getattr(splitting, step)

    def dies(*arguments: Any, **more: Any) -> None:
        done(*arguments, **more)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(splitting, step, dies)
        with pytest.raises(Killed):
            executor(engine, source, clock).drain_plans([planned.plan_id])
    assert [piece.status_code for piece in rows_of(engine, ing_plan_slice)] == [SliceStatus.READY]
    assert [task.status_code for task in rows_of(engine, ing_task)] == [TaskStatus.EXECUTING]
    clock.pass_by(LEASE + timedelta(seconds=1))
    assert executor(engine, source, clock).drain_plans([planned.plan_id]) == {planned.plan_id: PlanStatus.COMPLETED}
    assert stored(engine) == listed(source.items)
