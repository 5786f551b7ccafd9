"""What a person is told of plans while they are fetched: how far they are, and why a task waits."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Engine, func, select

from platform_defs.ingest.codes import BatchStatus, PlanStatus, TaskStatus
from platform_defs.store.engine import read
from platform_defs.store.tables.ingest import ing_plan, ing_task, ing_task_run_batch


@dataclass(frozen=True)
class PlansProgress:
    """How far some windows or buckets are, whoever works on them."""

    plans: int
    complete: int
    pages: int
    records: int
    at_work: int
    waiting: int
    given_up: int

    def __str__(self) -> str:
        stored = f"{self.records:,} records of {self.pages:,} {'page' if self.pages == 1 else 'pages'} are stored"
        slices = f"slices at work: {self.at_work}, waiting: {self.waiting}, given up: {self.given_up}"
        return f"{self.complete} of {self.plans} {'is' if self.plans == 1 else 'are'} complete; {stored}; {slices}"


def plans_progress(engine: Engine, plan_ids: Sequence[int]) -> PlansProgress:
    plan, task, batch = ing_plan.c, ing_task.c, ing_task_run_batch.c
    complete = select(func.count()).where(plan.id.in_(plan_ids), plan.status_code == PlanStatus.COMPLETED)
    tasks = select(task.status_code, func.count()).where(task.plan_id.in_(plan_ids)).group_by(task.status_code)
    stored = select(func.count(), func.coalesce(func.sum(batch.record_count), 0)).where(
        batch.plan_id.in_(plan_ids), batch.status_code == BatchStatus.SUCCEEDED
    )
    done, states, (pages, records) = read(
        engine,
        lambda connection: (
            connection.execute(complete).scalar_one(),
            {row[0]: row[1] for row in connection.execute(tasks)},
            connection.execute(stored).one(),
        ),
    )
    return PlansProgress(
        len(plan_ids),
        done,
        pages,
        int(records),
        at_work=states.get(TaskStatus.DISPATCHED, 0) + states.get(TaskStatus.EXECUTING, 0),
        waiting=states.get(TaskStatus.QUEUED, 0),
        given_up=states.get(TaskStatus.FAILED, 0) + states.get(TaskStatus.PARTIAL, 0),
    )


def why_task_waits(engine: Engine, task_id: int) -> str | None:
    """The error for which a task waits, and until when; None where it does not wait, or for no error."""
    task = ing_task.c
    query = select(task.status_code, task.last_error_msg, task.scheduled_at).where(task.id == task_id)
    found = read(engine, lambda connection: connection.execute(query).one_or_none())
    if found is None or found.status_code != TaskStatus.QUEUED or not found.last_error_msg:
        return None
    return f"{found.last_error_msg}. It goes on at {found.scheduled_at:%F %T} UTC or later"


def plan_key_of(engine: Engine, plan_id: int) -> str:
    """The plan as people name it; its number where it was removed meanwhile."""
    query = select(ing_plan.c.plan_key).where(ing_plan.c.id == plan_id)
    return read(engine, lambda connection: connection.scalar(query)) or f"plan {plan_id}"
