"""Splits a slice that holds more than the source lets one query page through, before anything of it is stored."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, func, select, update

from platform_defs.ingest.codes import SliceStatus, TaskStatus
from platform_defs.ingest.execution.leases import LeasedTask, end_task, fence
from platform_defs.ingest.planning.planner import insert_slices, insert_tasks
from platform_defs.ingest.planning.slices import split_slice
from platform_defs.ingest.spec.model import Spec
from platform_defs.store.tables.ingest import ing_plan, ing_plan_slice


def split_task(
    connection: Connection, spec: Spec, leased: LeasedTask, slice_spec: Mapping[str, Any], total: int, now: datetime
) -> bool:
    """Replaces the slice by its parts, each with a task, in the caller's transaction; False if it cannot be split."""
    drafts = split_slice(spec, slice_spec)
    if not drafts:
        return False
    fence(connection, leased)
    # two tasks of one plan may split at the same moment: slice numbers are given under the plan's lock
    plan = connection.execute(select(ing_plan).where(ing_plan.c.id == leased.plan_id).with_for_update()).one()
    piece = ing_plan_slice.c
    last = connection.execute(select(func.max(piece.slice_no)).where(piece.plan_id == plan.id)).scalar_one()
    ids = insert_slices(connection, plan, drafts, first_no=last + 1)
    parts = connection.execute(select(ing_plan_slice).where(piece.id.in_(ids)).order_by(piece.slice_no)).all()
    insert_tasks(connection, plan, parts, now)
    connection.execute(update(ing_plan_slice).where(piece.id == leased.slice_id).values(status_code=SliceStatus.SPLIT))
    stats = {"split": [part.slice_no for part in parts], "total": total}
    end_task(connection, leased, TaskStatus.SUCCEEDED, now=now, stats=stats)
    return True
