"""Cursors: an event before every value, only forward in their direction, and no operation touches another's."""

import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, select, update

from platform_defs.ingest.codes import CursorType, Direction, Operation, PlanStatus, TaskStatus
from platform_defs.ingest.cursors import advance as advancing
from platform_defs.ingest.cursors.advance import Advance, Lineage, advance_cursor, read_cursor
from platform_defs.ingest.cursors.operations import advance_after, harvest_identity, read_plan_cursor, read_watermark
from platform_defs.ingest.ledger.completion import close_plan_if_done
from platform_defs.ingest.planning.planner import PlannedWork
from platform_defs.ingest.planning.slices import PAGES_PER_PAGE_SLICE, Estimate
from platform_defs.ingest.spec.model import Spec
from platform_defs.store.engine import read, transact
from platform_defs.store.tables.ingest import ing_plan, ing_task
from platform_defs.store.tables.ingest_cursors import ing_cursor, ing_cursor_event
from tests.ingest.planning.test_planner import BUSY, GRID, NOW, SPEC, end_tasks, plan, rows_of

DAYS = [datetime(2026, 1, day, tzinfo=UTC) for day in range(1, 10)]


def to(day: int, spec: Spec = SPEC) -> Advance:
    return Advance(harvest_identity(spec), CursorType.TIME, Direction.FORWARD, instant=DAYS[day])


def plan_row(engine: Engine, planned: PlannedWork) -> Any:
    query = select(ing_plan).where(ing_plan.c.id == planned.plan_id)
    return read(engine, lambda connection: connection.execute(query).one())


def complete(engine: Engine, number: int, spec: Spec = SPEC) -> None:
    planned = plan(engine, spec, GRID.window(number), Estimate())
    assert end_tasks(engine, planned.plan_id) is PlanStatus.COMPLETED
    advance_after(engine, plan_row(engine, planned), spec, NOW, lineage=Lineage(plan_id=planned.plan_id))


def test_a_cursor_moves_forward_only_and_says_so_first(engine: Engine) -> None:
    assert [advance_cursor(engine, to(day)) for day in (2, 1, 2, 4)] == [True, False, False, True]
    events = rows_of(engine, ing_cursor_event)
    assert [(event.prev_value, event.new_value) for event in events] == [
        (None, "2026-01-03T00:00:00Z"),
        ("2026-01-03T00:00:00Z", "2026-01-05T00:00:00Z"),
    ]
    cursor = read_cursor(engine, harvest_identity(SPEC))
    assert cursor is not None
    assert (cursor.normalized_instant, cursor.version) == (DAYS[4], 1)


def test_of_many_that_advance_at_once_the_furthest_wins(engine: Engine) -> None:
    threads = [threading.Thread(target=advance_cursor, args=(engine, to(day))) for day in (3, 1, 7, 5, 2, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert read_watermark(engine, SPEC) == DAYS[7]


def test_a_process_that_dies_between_event_and_value_is_made_good(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(advancing, "_move_value", die)
        with pytest.raises(KeyboardInterrupt):
            advance_cursor(engine, to(2))
    assert (len(rows_of(engine, ing_cursor_event)), rows_of(engine, ing_cursor)) == (1, [])
    assert advance_cursor(engine, to(2))
    assert (len(rows_of(engine, ing_cursor_event)), read_watermark(engine, SPEC)) == (1, DAYS[2])


def test_the_watermark_waits_for_the_window_that_is_missing(engine: Engine) -> None:
    complete(engine, 1)
    assert read_watermark(engine, SPEC) is None
    complete(engine, 0)
    assert read_watermark(engine, SPEC) == GRID.window(1).end
    complete(engine, 3)
    assert read_watermark(engine, SPEC) == GRID.window(1).end
    complete(engine, 2)
    assert read_watermark(engine, SPEC) == GRID.window(3).end


def test_a_start_that_is_moved_behind_the_watermark_lets_it_go_on_from_there(engine: Engine) -> None:
    complete(engine, 0)
    later = replace(SPEC, window=replace(SPEC.window, start=GRID.window(4).start))
    complete(engine, 5, later)
    assert read_watermark(engine, later) == GRID.window(0).end
    complete(engine, 4, later)
    assert read_watermark(engine, later) == GRID.window(5).end


def test_a_start_that_is_moved_back_leaves_the_watermark_where_it_is(engine: Engine) -> None:
    later = replace(SPEC, window=replace(SPEC.window, start=GRID.window(4).start))
    complete(engine, 4, later)
    complete(engine, 1)
    assert read_watermark(engine, SPEC) == GRID.window(4).end


def test_fetching_a_window_again_never_moves_the_watermark_back(engine: Engine) -> None:
    complete(engine, 0)
    complete(engine, 1)
    again = plan(engine, SPEC, GRID.window(0), Estimate())
    assert again.generation == 2
    assert read_watermark(engine, SPEC) == GRID.window(1).end


def test_two_endpoints_of_one_source_share_no_watermark(engine: Engine) -> None:
    complete(engine, 0)
    other = replace(SPEC, endpoint_name="others")
    assert read_watermark(engine, other) is None
    complete(engine, 0, other)
    assert len(rows_of(engine, ing_cursor)) == 2


def test_a_backfill_moves_backwards_in_its_own_namespace_and_leaves_the_watermark_alone(engine: Engine) -> None:
    complete(engine, 5)
    complete(engine, 0)
    before = read_watermark(engine, SPEC)
    spec = replace(SPEC, operation=Operation.BACKFILL)
    planned = plan(engine, spec, GRID.window(7), BUSY)
    end_tasks(engine, planned.plan_id)
    advance_after(engine, plan_row(engine, planned), spec, NOW, lineage=Lineage(plan_id=planned.plan_id))
    assert read_watermark(engine, SPEC) == before
    [cursor] = [row for row in rows_of(engine, ing_cursor) if row.operation_code == Operation.BACKFILL]
    assert cursor.normalized_instant == GRID.window(7).start
    assert rows_of(engine, ing_cursor_event)[-1].direction_code == Direction.BACKFILL


def test_a_backfill_in_ranges_of_pages_moves_its_cursor_when_all_of_them_are_there(engine: Engine) -> None:
    """Each range is of the whole window, and none of them alone is enough for it."""
    window = replace(SPEC.window, supports_updated_since=False)
    spec = replace(SPEC, operation=Operation.BACKFILL, window=window)
    planned = plan(engine, spec, GRID.window(7), Estimate(pages=PAGES_PER_PAGE_SLICE + 1))
    first, second = (task.id for task in rows_of(engine, ing_task))

    def end(task_id: int, status: TaskStatus) -> tuple[PlanStatus, datetime | None]:
        def work(connection: Connection) -> None:
            connection.execute(update(ing_task).where(ing_task.c.id == task_id).values(status_code=status))
            close_plan_if_done(connection, planned.plan_id)

        transact(engine, work)
        row = plan_row(engine, planned)
        advance_after(engine, row, spec, NOW, lineage=Lineage(plan_id=planned.plan_id))
        return PlanStatus(row.status_code), read_plan_cursor(engine, spec, planned.plan_id)

    assert end(first, TaskStatus.SUCCEEDED) == (PlanStatus.READY, None)
    assert end(second, TaskStatus.FAILED) == (PlanStatus.PARTIAL, None)
    assert end(second, TaskStatus.SUCCEEDED) == (PlanStatus.COMPLETED, GRID.window(7).start)


def test_an_expression_that_changes_leaves_the_watermark_where_it_is(engine: Engine) -> None:
    complete(engine, 0)
    changed = replace(SPEC, pagination=replace(SPEC.pagination, page_size=7))
    assert read_watermark(engine, changed) == GRID.window(0).end
    assert GRID.window(0).size == timedelta(days=1)
