"""Cancels plans: tasks that wait are not executed, tasks at work end after their page, and stored records stay.

A cancelled window stays cancelled, and the check `complete` names it, until somebody materialises it again. That begins
a new generation.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Engine, Row, and_, select, update

from platform_defs.ingest.codes import Operation, PlanStatus, SliceStatus, TaskStatus
from platform_defs.ingest.planning.windows import Window
from platform_defs.store.engine import read, transact
from platform_defs.store.tables.ingest import ing_plan, ing_plan_slice, ing_task

CANCELLED_BY_OPERATOR = "CANCELLED_BY_OPERATOR"
# Tasks that nobody works on and that are not complete.
_IDLE = (TaskStatus.QUEUED, TaskStatus.FAILED, TaskStatus.PARTIAL)
_AT_WORK = (TaskStatus.DISPATCHED, TaskStatus.EXECUTING)


@dataclass(frozen=True)
class PlanChoice:
    """Which open plans of an endpoint and operation are meant; a field that is None restricts nothing."""

    # windows that share time with [start, end)
    start: datetime | None = None
    end: datetime | None = None
    bucket: int | None = None
    plan_key: str | None = None


@dataclass(frozen=True)
class CancelledPlan:
    plan_id: int
    plan_key: str
    # None for an update bucket, which has its number instead
    window: Window | None
    bucket: int | None
    # tasks, and slices without a task, on which nobody worked
    taken_back: int
    # tasks that an executor ends when it next looks, or when the page that has come is stored
    stopping: int

    @property
    def name(self) -> str:
        return str(self.window) if self.window is not None else f"bucket {self.bucket}"


def cancel_plans(
    engine: Engine,
    provenance_code: str,
    endpoint_name: str,
    operation: Operation,
    choice: PlanChoice,
    *,
    reason: str | None,
    now: datetime,
) -> list[CancelledPlan]:
    """Each plan in a transaction of its own; plans that end at the same moment are left as they are."""
    table = ing_plan.c
    query = (
        select(ing_plan)
        .where(
            table.provenance_code == provenance_code,
            table.endpoint_name == endpoint_name,
            table.operation_code == operation,
            table.status_code.in_([status for status in PlanStatus if status.is_open]),
        )
        .order_by(table.window_from, table.id)
    )
    rows = read(engine, lambda connection: connection.execute(query).all())
    wanted = [row.id for row in rows if _is_chosen(row, choice)]
    found = [transact(engine, lambda c, plan_id=plan_id: _cancel(c, plan_id, reason, now)) for plan_id in wanted]  # type: ignore[misc]
    return [each for each in found if each is not None]


def _is_chosen(plan: Row[Any], choice: PlanChoice) -> bool:
    return (
        (choice.plan_key is None or plan.plan_key == choice.plan_key)
        and (choice.bucket is None or (plan.slice_params or {}).get("bucket") == choice.bucket)
        and (choice.start is None or (plan.window_to is not None and plan.window_to > choice.start))
        and (choice.end is None or (plan.window_from is not None and plan.window_from < choice.end))
    )


def _cancel(connection: Connection, plan_id: int, reason: str | None, now: datetime) -> CancelledPlan | None:
    """Cancels one plan under its lock; None if it has ended meanwhile."""
    plan = connection.execute(select(ing_plan).where(ing_plan.c.id == plan_id).with_for_update()).one()
    if not PlanStatus(plan.status_code).is_open:
        return None
    task, piece = ing_task.c, ing_plan_slice.c
    text = f"somebody cancelled it at {now:%F %T} UTC" + (f": {reason}" if reason else "")
    # Read without locks and then changed by their ids, so that no other rows are locked: a process that ends a task at
    # this moment has locked that task and waits for the plan.
    open_tasks = select(task.id).where(task.plan_id == plan_id, task.status_code.in_([*_IDLE, *_AT_WORK]))
    ids = connection.execute(open_tasks).scalars().all()
    asked = {"cancel_requested_at": now, "last_error_code": CANCELLED_BY_OPERATOR, "last_error_msg": text}
    still_open = and_(task.id.in_(ids), task.status_code.in_([*_IDLE, *_AT_WORK]))
    marked = connection.execute(update(ing_task).where(still_open).values(asked)).rowcount if ids else 0
    idle = and_(task.id.in_(ids), task.status_code.in_(_IDLE))
    over = {"status_code": TaskStatus.CANCELLED, "finished_at": now}
    taken_back = connection.execute(update(ing_task).where(idle).values(over)).rowcount if ids else 0
    pending = and_(piece.plan_id == plan_id, piece.status_code == SliceStatus.PENDING)
    left = connection.execute(update(ing_plan_slice).where(pending).values(status_code=SliceStatus.CANCELLED)).rowcount
    remarks = {**(plan.record_remarks or {}), "cancelled": text}
    values = {"status_code": PlanStatus.CANCELLED, "record_remarks": remarks, "updated_at": now}
    connection.execute(update(ing_plan).where(ing_plan.c.id == plan_id).values(values))
    window = None if plan.window_from is None else Window(plan.window_from, plan.window_to)
    bucket = (plan.slice_params or {}).get("bucket")
    return CancelledPlan(plan_id, plan.plan_key, window, bucket, taken_back + left, marked - taken_back)


def count_stopping(engine: Engine) -> int:
    """Tasks that are cancelled and still worked on, for a moment."""
    task = ing_task.c
    query = select(task.id).where(task.status_code.in_(_AT_WORK), task.cancel_requested_at.is_not(None))
    found: Sequence[int] = read(engine, lambda connection: connection.execute(query).scalars().all())
    return len(found)
