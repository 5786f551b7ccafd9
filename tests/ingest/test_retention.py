"""Old batches and cursor events are deleted, except what a resume, a replay or a watermark needs."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, insert, update

from platform_defs.ingest import retention
from platform_defs.ingest.codes import Operation, PlanStatus
from platform_defs.ingest.cursors.operations import read_watermark
from platform_defs.ingest.errors import IngestError
from platform_defs.ingest.execution.replay import load_batch
from platform_defs.ingest.ledger.reports import mark_reported
from platform_defs.ingest.planning.history import estimate_from_history
from platform_defs.ingest.planning.slices import Estimate
from platform_defs.ingest.retention import ForgottenCounts, forget_old_rows
from platform_defs.store.engine import transact
from platform_defs.store.tables.ingest import ing_plan, ing_record, ing_record_quarantine, ing_task, ing_task_run_batch
from platform_defs.store.tables.ingest_cursors import ing_cursor_event
from tests.ingest.execution.memory_source import MemorySource
from tests.ingest.execution.test_executor import GRID, Clock, drain, executor, items_of, listed, paged, stored
from tests.ingest.planning.test_planner import NOW, plan, rows_of

LATER = NOW + timedelta(days=91)


def plans_with_batches(engine: Engine) -> list[int]:
    return sorted({row.plan_id for row in rows_of(engine, ing_task_run_batch)})


def make_old(engine: Engine, at: datetime) -> None:
    """The rows are written by the machine's clock, and the windows of these tests are of another time."""

    def work(connection: Any) -> None:
        connection.execute(update(ing_plan).values(updated_at=at))
        connection.execute(update(ing_cursor_event).values(created_at=at))

    transact(engine, work)


def test_batches_of_what_is_over_go_and_an_open_window_is_continued_after_its_last_page(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "ROWS_PER_TRANSACTION", 2)
    spec, clock = paged(), Clock()
    source = MemorySource(spec.pagination, [each for n in range(5) for each in items_named(n)])
    backfill = replace(spec, operation=Operation.BACKFILL)
    back = drain(engine, backfill, source, GRID.window(0))[0].plan_id
    done, aside, silent = (drain(engine, spec, source, GRID.window(number))[0].plan_id for number in range(3))
    back_again = drain(engine, backfill, source, GRID.window(0))[0].plan_id
    open_plan = plan(engine, spec, GRID.window(3), Estimate()).plan_id
    stopped, asked = executor(engine, source, clock), len(source.requests)
    source.trouble = lambda number: stopped.cancel.set() if number == asked + 2 else None
    stopped.drain_plans([open_plan])
    last = drain(engine, spec, source, GRID.window(4))[0].plan_id
    mark_reported(engine, [done, aside, back, last], NOW)
    row = {"plan_id": aside, "provenance_code": "made_up", "endpoint_name": "items", "operation_code": "HARVEST"}
    row |= {"reason_code": "NO_ID", "reason": "no id", "idempotent_key": "x" * 64}
    transact(engine, lambda connection: connection.execute(insert(ing_record_quarantine).values(row)))
    make_old(engine, NOW)

    assert forget_old_rows(engine, days=0, at=LATER) == ForgottenCounts(), "0 is for ever"
    assert forget_old_rows(engine, days=92, at=LATER) == ForgottenCounts()
    watermark, first = read_watermark(engine, spec), rows_of(engine, ing_task_run_batch)[0]
    counts = forget_old_rows(engine, days=90, at=LATER)
    newest = rows_of(engine, ing_task_run_batch)[-1].plan_id
    assert newest == last, "the newest row stays, whose id SQLite would give away again"
    assert plans_with_batches(engine) == sorted({aside, silent, back_again, open_plan, last})
    assert counts.batches == 3 + 3 + 2
    *kept, _ = [(event.operation_code, event.plan_id) for event in rows_of(engine, ing_cursor_event)]
    assert kept == [("HARVEST", silent)], "where the watermark stands; of a backfill only the newest row of the table"
    assert forget_old_rows(engine, days=90, at=LATER) == ForgottenCounts(), "a second time there is nothing"
    with pytest.raises(IngestError, match=f"run {first.run_id} has no batch 1"):
        load_batch(engine, first.run_id, 1)

    asked, source.trouble = len(source.requests), lambda number: None
    assert executor(engine, source, clock).drain_plans([open_plan]) == {open_plan: PlanStatus.COMPLETED}
    assert len(source.requests) == asked + 1, "after its last batch, which is still there"
    assert (watermark, read_watermark(engine, spec)) == (GRID.window(2).end, GRID.window(4).end)
    assert stored(engine) == {name: at for n in range(5) for name, at in listed(items_named(n), GRID.window(n)).items()}
    assert len(rows_of(engine, ing_record)) == 125
    assert {task.plan_id for task in rows_of(engine, ing_task)} >= {done, back}, "tasks and runs stay"


def items_named(number: int) -> list[dict[str, Any]]:
    """25 items in a window of their own."""
    return [each | {"id": f"{number}-{each['id']}"} for each in items_of(25, GRID.window(number))]


def test_windows_without_batches_do_not_make_the_next_one_look_empty(engine: Engine) -> None:
    spec = paged()
    source = MemorySource(spec.pagination, items_of(24, GRID.window(1)))
    plans = [drain(engine, spec, source, GRID.window(number))[0].plan_id for number in range(2)]
    assert estimate_from_history(engine, "made_up", "items").records_per_hour == 0.5
    mark_reported(engine, plans[:1], NOW)
    make_old(engine, NOW)
    forget_old_rows(engine, days=90, at=LATER)
    assert estimate_from_history(engine, "made_up", "items").records_per_hour == 1.0
