"""Moves a cursor that was left behind: its executor died after the end of a task and before it moved the cursor."""

from datetime import datetime
from typing import Any

from sqlalchemy import Engine, Select, func, select

from platform_defs.ingest.codes import Operation, PlanStatus
from platform_defs.ingest.cursors.advance import Lineage
from platform_defs.ingest.cursors.operations import advance_after, read_plan_cursor
from platform_defs.ingest.planning.planner import plan_spec
from platform_defs.store.engine import read
from platform_defs.store.tables.ingest import ing_plan, ing_task, ing_task_run


def catch_up(engine: Engine, plan_id: int, now: datetime) -> bool:
    """Moves the cursor of a complete plan to where its last task would have moved it; True if it moved.

    To be called before anybody is told that the plan is complete: after that nobody looks at it again, and the
    watermark would stay behind until another window is complete, the cursor of a backfill for good.
    """
    of_plan = select(ing_plan).where(ing_plan.c.id == plan_id)
    plan = read(engine, lambda connection: connection.execute(of_plan).one_or_none())
    last = read(engine, lambda connection: connection.execute(_last_task(plan_id)).one_or_none())
    if plan is None or last is None or PlanStatus(plan.status_code) is not PlanStatus.COMPLETED:
        return False
    spec = plan_spec(plan)
    # an update's cursor is a time of its own, and only the first one says when its records had been fetched
    if spec.operation is Operation.UPDATE and read_plan_cursor(engine, spec, plan_id) is not None:
        return False
    lineage = Lineage(plan.schedule_instance_id, plan_id, last.slice_id, last.id, last.run_id)
    return advance_after(engine, plan, spec, last.finished_at or now, lineage=lineage)


def _last_task(plan_id: int) -> Select[Any]:
    """The task of the plan that ended last, with its last run."""
    task, run = ing_task.c, ing_task_run.c
    return (
        select(task.id, task.slice_id, task.finished_at, func.max(run.id).label("run_id"))
        .outerjoin_from(ing_task, ing_task_run, run.task_id == task.id)
        .where(task.plan_id == plan_id)
        .group_by(task.id, task.slice_id, task.finished_at)
        .order_by(task.finished_at.desc(), task.id.desc())
        .limit(1)
    )
