"""Which cursor each operation moves when a plan makes progress."""

from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import Engine, Row, select

from platform_defs.ingest.codes import CursorType, Direction, Operation, PlanStatus, SliceStatus, TaskStatus
from platform_defs.ingest.cursors.advance import Advance, CursorIdentity, Lineage, advance_cursor, read_cursor
from platform_defs.ingest.cursors.watermark import contiguous_end, contiguous_start
from platform_defs.ingest.identity import cursor_namespace
from platform_defs.ingest.planning.slices import window_of
from platform_defs.ingest.planning.windows import Window, align_down
from platform_defs.ingest.spec.model import Spec
from platform_defs.ingest.spec.snapshot import instant_of, instant_text
from platform_defs.store.engine import read
from platform_defs.store.tables.ingest import ing_plan, ing_plan_slice, ing_task, ing_task_run, ing_task_run_batch

REFRESHED_KEY = "refresh_checked_at"


def harvest_identity(spec: Spec) -> CursorIdentity:
    """The forward watermark of the endpoint."""
    namespace = cursor_namespace(Operation.HARVEST, spec.endpoint_name, None)
    return CursorIdentity(spec.provenance_code, Operation.HARVEST, spec.window.watermark_key, *namespace)


def plan_identity(spec: Spec, plan_id: int) -> CursorIdentity:
    """The cursor that a plan moves: the endpoint's watermark, or that of a backfill or an update alone."""
    if spec.operation is Operation.HARVEST:
        return harvest_identity(spec)
    key = REFRESHED_KEY if spec.operation is Operation.UPDATE else spec.window.watermark_key
    namespace = cursor_namespace(spec.operation, spec.endpoint_name, plan_id)
    return CursorIdentity(spec.provenance_code, spec.operation, key, *namespace)


def read_plan_cursor(engine: Engine, spec: Spec, plan_id: int) -> datetime | None:
    """Where the plan's own cursor stands; None before it has moved."""
    cursor = read_cursor(engine, plan_identity(spec, plan_id))
    return None if cursor is None else cursor.normalized_instant


def read_watermark(engine: Engine, spec: Spec) -> datetime | None:
    cursor = read_cursor(engine, harvest_identity(spec))
    return None if cursor is None else cursor.normalized_instant


def advance_after(engine: Engine, plan: Row[Any], spec: Spec, now: datetime, *, lineage: Lineage) -> bool:
    """Moves the plan's cursor as far as what is complete allows; True if it moved. May be called at any time."""
    match spec.operation:
        case Operation.HARVEST:
            return _advance_harvest(engine, plan, spec, lineage)
        case Operation.BACKFILL:
            return _advance_backfill(engine, plan, spec, lineage)
        case Operation.UPDATE:
            return _advance_update(engine, plan, spec, now, lineage)


def _advance_harvest(engine: Engine, plan: Row[Any], spec: Spec, lineage: Lineage) -> bool:
    """Moves the watermark to the end of the contiguous complete windows. The newest time of a record is only noted.

    If the endpoint's start was moved to a time after its watermark, the watermark goes on from the new start: there are
    no windows in between.
    """
    first = align_down(spec.window.start, spec.window.align)
    start = max(read_watermark(engine, spec) or first, first)
    table = ing_plan.c
    query = select(table.window_from, table.window_to).where(
        table.provenance_code == spec.provenance_code,
        table.endpoint_name == spec.endpoint_name,
        table.operation_code == Operation.HARVEST,
        table.status_code == PlanStatus.COMPLETED,
        table.window_to > start,
    )
    rows = read(engine, lambda connection: connection.execute(query).all())
    reached = contiguous_end(start, [Window(row.window_from, row.window_to) for row in rows])
    if reached == start:
        return False
    advance = Advance(
        harvest_identity(spec),
        CursorType.TIME,
        Direction.FORWARD,
        instant=reached,
        observed_max=_observed_max(engine, plan, lineage),
        window=(start, reached),
        lineage=_with_batch(engine, lineage),
        remarks={"reason": Operation.HARVEST},
    )
    return advance_cursor(engine, advance)


def _advance_backfill(engine: Engine, plan: Row[Any], spec: Spec, lineage: Lineage) -> bool:
    """Moves the plan's own cursor backwards, from the window's end over the complete slices."""
    done = select(ing_plan_slice.c.slice_spec).join(ing_task, ing_task.c.slice_id == ing_plan_slice.c.id)
    done = done.where(
        ing_plan_slice.c.plan_id == plan.id,
        ing_plan_slice.c.status_code != SliceStatus.SPLIT,
        ing_task.c.status_code == TaskStatus.SUCCEEDED,
    )
    specs = read(engine, lambda connection: connection.execute(done).scalars().all())
    # ranges of ids or of pages share one window, which counts only when the plan is complete
    windows = [window_of(each) for each in specs if each["bounds"].keys() == {"time"}]
    complete = PlanStatus(plan.status_code) is PlanStatus.COMPLETED
    reached = plan.window_from if complete else contiguous_start(plan.window_to, windows)
    if reached == plan.window_to:
        return False
    advance = Advance(
        plan_identity(spec, plan.id),
        CursorType.TIME,
        Direction.BACKFILL,
        instant=reached,
        observed_max=_observed_max(engine, plan, lineage),
        window=(reached, plan.window_to),
        lineage=_with_batch(engine, lineage),
        remarks={"reason": Operation.BACKFILL},
    )
    return advance_cursor(engine, advance)


def _advance_update(engine: Engine, plan: Row[Any], spec: Spec, now: datetime, lineage: Lineage) -> bool:
    """Once the plan is complete, notes when all records of the bucket that were due had been fetched again."""
    if PlanStatus(plan.status_code) is not PlanStatus.COMPLETED:
        return False
    advance = Advance(
        plan_identity(spec, plan.id),
        CursorType.TIME,
        Direction.FORWARD,
        instant=now,
        lineage=_with_batch(engine, lineage),
        remarks={"reason": Operation.UPDATE, **(plan.slice_params or {})},
    )
    return advance_cursor(engine, advance)


def _with_batch(engine: Engine, lineage: Lineage) -> Lineage:
    """The lineage down to the last batch of its task, with the hash of the expressions that fetched it."""
    batch = ing_task_run_batch.c
    last = select(batch.id, batch.expr_hash).where(batch.task_id == lineage.task_id).order_by(batch.id.desc()).limit(1)
    found = read(engine, lambda connection: connection.execute(last).one_or_none())
    return lineage if found is None else replace(lineage, batch_id=found.id, expr_hash=found.expr_hash)


def _observed_max(engine: Engine, plan: Row[Any], lineage: Lineage) -> str | None:
    """The newest time that a record had: in the whole window when that is complete, else in what was fetched last."""
    run = ing_task_run.c
    query = select(run.stats).where(run.id == lineage.run_id)
    if PlanStatus(plan.status_code) is PlanStatus.COMPLETED:
        tasks = select(ing_task.c.id).where(ing_task.c.plan_id == plan.id)
        query = select(run.stats).where(run.task_id.in_(tasks))
    found = read(engine, lambda connection: connection.execute(query).scalars().all())
    times = [instant_of(stats["observedMax"]) for stats in found if stats and stats.get("observedMax")]
    return instant_text(max(times)) if times else None
