"""How the queue of tasks stands: what waits, what is worked on, and in which buckets somebody asked for records."""

from collections.abc import Collection, Mapping
from datetime import datetime

from sqlalchemy import Engine, func, select

from platform_defs.ingest.codes import Operation, PlanStatus, TaskStatus
from platform_defs.ingest.tasks.waiting import waits_long
from platform_defs.store.engine import ATTEMPTS, read
from platform_defs.store.tables.ingest import ing_plan, ing_signal, ing_task

# Source, endpoint, operation and state.
QueueKey = tuple[str, str, str, str]
OPEN_STATES = (TaskStatus.QUEUED, TaskStatus.DISPATCHED, TaskStatus.EXECUTING)
# Nobody works on these until their window or bucket, which is not complete, is asked for again.
GIVEN_UP = (TaskStatus.FAILED, TaskStatus.PARTIAL)


def count_tasks(engine: Engine, *, attempts: int = ATTEMPTS) -> Mapping[QueueKey, int]:
    """Tasks that wait or are worked on, by source, endpoint, operation and state."""
    task = ing_task.c
    columns = (task.provenance_code, task.endpoint_name, task.operation_code, task.status_code)
    query = select(*columns, func.count()).where(task.status_code.in_(OPEN_STATES)).group_by(*columns)
    rows = read(engine, lambda connection: connection.execute(query).all(), attempts=attempts)
    return {(row[0], row[1], row[2], row[3]): row[4] for row in rows}


def count_plans_under_way(engine: Engine, codes: Collection[str]) -> Mapping[tuple[str, str, str], int]:
    """Windows and buckets of these sources with tasks that wait or run, by source, endpoint and operation."""
    task = ing_task.c
    columns = (task.provenance_code, task.endpoint_name, task.operation_code)
    query = (
        select(*columns, func.count(task.plan_id.distinct()))
        .where(task.provenance_code.in_(codes), task.status_code.in_(OPEN_STATES))
        .group_by(*columns)
    )
    rows = read(engine, lambda connection: connection.execute(query).all())
    return {(row[0], row[1], row[2]): row[3] for row in rows}


def waits_until(
    engine: Engine, provenance_code: str, endpoint_name: str, operation: Operation, now: datetime
) -> datetime | None:
    """When the first task of an endpoint and operation is due, if that is so late that no run waits for it.

    None where a task is due sooner, where somebody works on one, and where there is none. As long as it is not None,
    the source lets nothing through, and more windows would only wait, too.
    """
    task = ing_task.c
    query = (
        select(task.status_code, func.min(task.scheduled_at, type_=task.scheduled_at.type))
        .where(
            task.status_code.in_(OPEN_STATES),
            task.provenance_code == provenance_code,
            task.endpoint_name == endpoint_name,
            task.operation_code == operation,
        )
        .group_by(task.status_code)
    )
    first_due = {row[0]: row[1] for row in read(engine, lambda connection: connection.execute(query).all())}
    if set(first_due) != {TaskStatus.QUEUED}:
        return None
    due: datetime = first_due[TaskStatus.QUEUED]
    return due if waits_long(due, now) else None


def buckets_with_signals(engine: Engine, provenance_code: str, endpoint_name: str, buckets: int) -> list[int]:
    """Update buckets in which somebody asked for a record; not those that were cancelled since then."""
    signal = ing_signal.c
    bucket = (signal.id_number % buckets).label("bucket")
    query = (
        select(bucket, func.max(signal.requested_at, type_=signal.requested_at.type))
        .where(
            signal.provenance_code == provenance_code,
            signal.endpoint_name == endpoint_name,
            signal.status_code == "OPEN",
        )
        .group_by(bucket)
    )
    asked = {row[0]: row[1] for row in read(engine, lambda connection: connection.execute(query).all())}
    cancelled = _cancelled_buckets(engine, provenance_code, endpoint_name) if asked else {}
    return sorted(number for number, at in asked.items() if number not in cancelled or at > cancelled[number])


def _cancelled_buckets(engine: Engine, provenance_code: str, endpoint_name: str) -> dict[int, datetime]:
    """Buckets whose newest plan was cancelled, and when."""
    plan = ing_plan.c
    query = select(plan.slice_params, plan.status_code, plan.updated_at).where(
        plan.provenance_code == provenance_code,
        plan.endpoint_name == endpoint_name,
        plan.operation_code == Operation.UPDATE,
    )
    rows = read(engine, lambda connection: connection.execute(query.order_by(plan.id)).all())
    newest = {row.slice_params["bucket"]: row for row in rows}
    return {bucket: row.updated_at for bucket, row in newest.items() if row.status_code == PlanStatus.CANCELLED}


def buckets_begun_since(engine: Engine, provenance_code: str, endpoint_name: str, since: datetime) -> set[int]:
    """Update buckets whose plan is not complete and has changed since then: they are at work, or failed just now."""
    plan = ing_plan.c
    query = select(plan.slice_params).where(
        plan.provenance_code == provenance_code,
        plan.endpoint_name == endpoint_name,
        plan.operation_code == Operation.UPDATE,
        plan.status_code.in_([status for status in PlanStatus if status.is_open]),
        plan.updated_at >= since,
    )
    return {params["bucket"] for params in read(engine, lambda connection: connection.execute(query).scalars().all())}
