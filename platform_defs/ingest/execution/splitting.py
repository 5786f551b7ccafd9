"""Replaces a slice by smaller ones: before anything of it is stored, or the rest of it while it is fetched."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, func, select, update

from platform_defs.ingest.codes import PlanStatus, RunStatus, SliceStatus, TaskStatus
from platform_defs.ingest.planning.planner import insert_slices, insert_tasks
from platform_defs.ingest.planning.slices import SliceDraft
from platform_defs.ingest.tasks.leases import LeasedTask, end_task, fence
from platform_defs.store.tables.ingest import ing_plan, ing_plan_slice

# How many cuts a plan remembers, with their reasons.
MOST_REMARKS = 20


def split_task(
    connection: Connection,
    leased: LeasedTask,
    drafts: Sequence[SliceDraft],
    *,
    stats: Mapping[str, Any],
    now: datetime,
    reason: str | None = None,
) -> bool:
    """Replaces the slice by its parts, each with a task, in the caller's transaction; False if there are none.

    `reason` is why the rest of a slice that was begun is cut: run and plan then say so.
    """
    if not drafts:
        return False
    fence(connection, leased)
    # two tasks of one plan may split at the same moment: slice numbers are given under the plan's lock
    plan = connection.execute(select(ing_plan).where(ing_plan.c.id == leased.plan_id).with_for_update()).one()
    if plan.status_code == PlanStatus.CANCELLED:
        return False
    piece = ing_plan_slice.c
    last = connection.execute(select(func.max(piece.slice_no)).where(piece.plan_id == plan.id)).scalar_one()
    ids = insert_slices(connection, plan, drafts, first_no=last + 1)
    parts = connection.execute(select(ing_plan_slice).where(piece.id.in_(ids)).order_by(piece.slice_no)).all()
    insert_tasks(connection, plan, parts, now)
    connection.execute(update(ing_plan_slice).where(piece.id == leased.slice_id).values(status_code=SliceStatus.SPLIT))
    numbers = [part.slice_no for part in parts]
    if reason is not None:
        _remark(connection, leased, plan.record_remarks, numbers, reason)
    # the task has done its part: those of the parts count in its place
    end_task(
        connection,
        leased,
        TaskStatus.SUCCEEDED,
        now=now,
        stats={**stats, "split": numbers},
        run_status=None if reason is None else RunStatus.PARTIAL,
        run_error=reason,
    )
    return True


def _remark(
    connection: Connection, leased: LeasedTask, remarks: Mapping[str, Any] | None, parts: Sequence[int], reason: str
) -> None:
    mine = ing_plan_slice.c.id == leased.slice_id
    number = connection.execute(select(ing_plan_slice.c.slice_no).where(mine)).scalar_one()
    cuts = [*(remarks or {}).get("cuts", ()), {"slice": number, "parts": list(parts), "reason": reason}]
    values = {"record_remarks": {**(remarks or {}), "cuts": cuts[-MOST_REMARKS:]}}
    connection.execute(update(ing_plan).where(ing_plan.c.id == leased.plan_id).values(values))
