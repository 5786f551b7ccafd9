"""What an executor with nothing to work on does: gives tasks to slices that had none, and waits, but not for long."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Engine, func, select

from platform_defs.ingest.codes import PlanStatus, SliceStatus, TaskStatus
from platform_defs.ingest.planning.planner import queue_pending_slices
from platform_defs.ingest.tasks.picking import is_blocked
from platform_defs.store.engine import read
from platform_defs.store.tables.ingest import ing_plan, ing_plan_slice, ing_task

# A task that is due later than this is not waited for: meanwhile others need the place of the run that would wait. As
# long as a request waits for the rate gate.
LONG_WAIT = timedelta(minutes=5)


@dataclass(frozen=True)
class OpenTask:
    """A task that is not over: another executor works on it, or it waits."""

    task_id: int
    scheduled_at: datetime
    lease_owner: str | None
    leased_until: datetime | None


def waits_long(scheduled_at: datetime, now: datetime) -> bool:
    """Whether a task that nobody works on is due so late that no run waits for it."""
    return scheduled_at - now > LONG_WAIT


def next_open_task(engine: Engine, plan_ids: Sequence[int]) -> OpenTask | None:
    """A task of the plans on which another executor works, or else the first one that is due; None if there is none.

    What waits for an operator to unblock its endpoint is not counted.
    """
    task = ing_task.c
    query = (
        select(task.id, task.scheduled_at, task.lease_owner, task.leased_until)
        .where(
            task.plan_id.in_(plan_ids),
            task.status_code.in_([TaskStatus.QUEUED, TaskStatus.DISPATCHED, TaskStatus.EXECUTING]),
            ~((task.status_code == TaskStatus.QUEUED) & is_blocked()),
        )
        .order_by(task.leased_until.desc(), task.scheduled_at)
        .limit(1)
    )
    found = read(engine, lambda connection: connection.execute(query).one_or_none())
    return None if found is None else OpenTask(*found)


def queue_pending(engine: Engine, plan_ids: Sequence[int] | None, now: datetime) -> int:
    """Gives tasks to slices that had none, as far as the queue has room; returns to how many.

    Slices of these plans, or with None of all that are open: the run that planned them may be dead.
    """
    queued = 0
    while added := sum(queue_pending_slices(engine, plan_id, now) for plan_id in _first_pending(engine, plan_ids)):
        queued += added
    return queued


def _first_pending(engine: Engine, plan_ids: Sequence[int] | None) -> list[int]:
    """Of each source, endpoint and operation the first plan with a slice that has no task.

    One of each, because the next one has room only after that: the queue of each is limited, and there may be hundreds
    of plans.
    """
    piece, plan = ing_plan_slice.c, ing_plan.c
    query = (
        select(func.min(plan.id))
        .join_from(ing_plan_slice, ing_plan, plan.id == piece.plan_id)
        .where(
            piece.status_code == SliceStatus.PENDING,
            plan.status_code.in_([status for status in PlanStatus if status.is_open]),
        )
        .group_by(plan.provenance_code, plan.endpoint_name, plan.operation_code)
        .having(~is_blocked(plan))
    )
    if plan_ids is not None:
        query = query.where(piece.plan_id.in_(plan_ids))
    return list(read(engine, lambda connection: connection.execute(query).scalars().all()))
