"""A source whose list changes while it is paged by offset: no record at the border of two pages may be lost."""

import re
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine

from platform_defs.ingest.codes import PaginationType, PlanStatus
from platform_defs.ingest.ledger.windows import plan_report
from platform_defs.ingest.planning.slices import Estimate
from platform_defs.store.tables.ingest import ing_record
from tests.ingest.execution.memory_source import MemorySource, item
from tests.ingest.execution.test_executor import DAY, Clock, Killed, drain, executor, items_of, listed, paged, stored
from tests.ingest.planning.test_planner import NOW, plan, rows_of

BY_OFFSET = [PaginationType.OFFSET, PaginationType.PAGE]


def source_of(kind: PaginationType, count: int = 35) -> MemorySource:
    return MemorySource(paged(kind).pagination, items_of(count))


@pytest.mark.parametrize("kind", BY_OFFSET)
def test_a_record_that_leaves_the_window_between_two_pages_takes_no_other_with_it(
    engine: Engine, kind: PaginationType
) -> None:
    source = source_of(kind)

    def leave(number: int) -> None:
        if number == 3:
            source.items[0]["updated"] = item(0, NOW)["updated"]

    source.trouble = leave
    _, status = drain(engine, paged(kind), source)
    assert status is PlanStatus.COMPLETED
    assert set(listed(source.items)) <= set(stored(engine))


@pytest.mark.parametrize("kind", BY_OFFSET)
def test_a_late_record_that_comes_between_two_pages_is_stored(engine: Engine, kind: PaginationType) -> None:
    source = source_of(kind)

    def come(number: int) -> None:
        if number == 3:
            source.items.insert(0, item(99, DAY.start + timedelta(seconds=1)))

    source.trouble = come
    assert drain(engine, paged(kind), source)[1] is PlanStatus.COMPLETED
    assert stored(engine) == listed(source.items)
    assert len(rows_of(engine, ing_record)) == 36


def test_a_list_that_never_rests_ends_partial_and_says_so(engine: Engine) -> None:
    source = source_of(PaginationType.OFFSET)
    source.trouble = lambda number: source.items.append(item(100 + number, DAY.start + timedelta(hours=1)))
    planned, status = drain(engine, paged(), source)
    assert status is PlanStatus.PARTIAL
    [reason] = plan_report(engine, planned.plan_id).unfinished
    assert re.search(
        r"the source counted \d+ items on one page and \d+ on the next, also when it was asked 3 times", reason
    )


def test_a_page_that_is_empty_although_more_are_counted_is_no_end(engine: Engine) -> None:
    source = source_of(PaginationType.OFFSET)
    answer, emptied = source._page, [2]

    def page(names: Any, url: Any) -> Any:
        document = answer(names, url)
        return {**document, "items": []} if len(source.requests) in emptied else document

    source._page = page  # type: ignore[method-assign]
    assert drain(engine, paged(), source)[1] is PlanStatus.COMPLETED
    assert stored(engine) == listed(source.items)


def test_an_executor_that_resumes_after_a_crash_notices_that_the_list_has_changed_meanwhile(engine: Engine) -> None:
    source, clock = source_of(PaginationType.OFFSET), Clock()

    def die(number: int) -> None:
        if number == 3:
            raise Killed

    source.trouble = die
    planned = plan(engine, paged(), DAY, Estimate())
    with pytest.raises(Killed):
        executor(engine, source, clock).drain_plans([planned.plan_id])
    source.trouble = lambda number: None
    source.items[0]["updated"] = item(0, NOW)["updated"]
    clock.pass_by(timedelta(minutes=2))
    assert executor(engine, source, clock).drain_plans([planned.plan_id])[planned.plan_id] is PlanStatus.COMPLETED
    assert set(listed(source.items)) <= set(stored(engine))
