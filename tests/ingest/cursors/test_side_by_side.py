"""Operations that run side by side: each moves a cursor of its own, after its event, and none touches another's."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from sqlalchemy import Engine

from platform_defs.ingest.codes import Direction, Operation, PlanStatus, Trigger
from platform_defs.ingest.planning.planner import plan_bucket
from platform_defs.ingest.planning.signals import add_signals
from platform_defs.ingest.planning.slices import Estimate
from platform_defs.ingest.planning.update_candidates import due_records, id_slices
from platform_defs.ingest.spec.model import CompiledSpec
from platform_defs.store.tables.ingest import ing_outbox
from platform_defs.store.tables.ingest_cursors import ing_cursor, ing_cursor_event
from tests.ingest.execution.memory_source import MemorySource
from tests.ingest.execution.test_executor import DAY, executor, items_of, listed, paged, stored
from tests.ingest.planning.test_planner import NOW, SPEC, plan, rows_of

IDENTITY = ("operation_code", "cursor_key", "namespace_scope_code", "namespace_key")


def test_a_harvest_a_backfill_and_an_update_of_the_same_records_do_not_meet(engine: Engine) -> None:
    assert SPEC.search is not None
    spec = replace(paged(), detail=replace(SPEC.search, endpoint_name="by_id"), update_buckets=1)
    source = MemorySource(spec.pagination, items_of(35))
    add_signals(engine, "made_up", "items", ["3", "4"], reason=None, requested_by="test", now=NOW)
    update = replace(spec, operation=Operation.UPDATE)
    drafts = id_slices(update, 0, due_records(engine, update, 0, NOW).ids)
    plans = [
        plan(engine, spec, DAY, Estimate()),
        plan(engine, replace(spec, operation=Operation.BACKFILL), DAY, Estimate()),
        plan_bucket(engine, CompiledSpec(update), 0, drafts, schedule_instance_id=1, trigger=Trigger.SIGNAL, now=NOW),
    ]
    with ThreadPoolExecutor(len(plans)) as pool:
        drains = [pool.submit(executor(engine, source).drain_plans, [each.plan_id]) for each in plans]
        states = [state for drain in drains for state in drain.result().values()]
    assert states == [PlanStatus.COMPLETED] * 3
    cursors = {tuple(getattr(row, name) for name in IDENTITY): row for row in rows_of(engine, ing_cursor)}
    assert {key[0]: (*key[1:3], row.normalized_instant) for key, row in cursors.items()} == {
        Operation.HARVEST: ("updated_at", "EXPR", DAY.end),
        Operation.BACKFILL: ("updated_at", "CUSTOM", DAY.start),
        Operation.UPDATE: ("refresh_checked_at", "CUSTOM", NOW),
    }
    assert len({key[3] for key in cursors}) == 3, "no two of them have a namespace in common"
    events = {tuple(getattr(row, name) for name in IDENTITY): row for row in rows_of(engine, ing_cursor_event)}
    assert {key: event.new_value for key, event in events.items()} == {
        key: row.cursor_value for key, row in cursors.items()
    }
    assert {event.operation_code: event.direction_code for event in events.values()} == {
        Operation.HARVEST: Direction.FORWARD,
        Operation.BACKFILL: Direction.BACKFILL,
        Operation.UPDATE: Direction.FORWARD,
    }
    assert all(events[key].created_at <= row.updated_at for key, row in cursors.items())
    assert stored(engine) == listed(source.items)
    changes = {(row.provider_id, row.event_type) for row in rows_of(engine, ing_outbox)}
    assert changes == {(name, "RECORD_INSERTED") for name in stored(engine)}, "whichever of them came first"
