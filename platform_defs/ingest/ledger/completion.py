"""Closes a plan when nothing of it is left to do: complete, or incomplete with something to say."""

from sqlalchemy import Connection, func, select, update

from platform_defs.ingest.codes import PlanStatus, SliceStatus, TaskStatus
from platform_defs.store.tables.ingest import ing_plan, ing_plan_slice, ing_task


def close_plan_if_done(connection: Connection, plan_id: int) -> PlanStatus | None:
    """COMPLETED or PARTIAL where the plan has just come to its end, None while something is left to do.

    To be called in the transaction that ends a task. Slices that were split count by their parts, which are slices of
    the same plan. The plan's row is locked first: of two tasks that end at the same moment the later one sees both.
    """
    mine = select(ing_plan.c.status_code).where(ing_plan.c.id == plan_id)
    if connection.execute(mine.with_for_update()).scalar_one() == PlanStatus.CANCELLED:
        return None
    task, piece = ing_task.c, ing_plan_slice.c
    query = (
        select(task.status_code, func.count())
        .select_from(ing_plan_slice)
        .outerjoin(ing_task, task.slice_id == piece.id)
        .where(piece.plan_id == plan_id, piece.status_code != SliceStatus.SPLIT)
        .group_by(task.status_code)
    )
    counts = {status: count for status, count in connection.execute(query)}  # noqa: C416  # rows are no pairs to mypy
    if any(status is None or not TaskStatus(status).is_final for status in counts):
        return None
    status = PlanStatus.COMPLETED if set(counts) <= {TaskStatus.SUCCEEDED} else PlanStatus.PARTIAL
    connection.execute(update(ing_plan).where(ing_plan.c.id == plan_id).values(status_code=status))
    return status
