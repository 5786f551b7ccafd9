"""Whether something waits in the queue although nobody is going to take it up: its run was killed or stopped."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from sqlalchemy import Connection, Engine, func, or_, select

from platform_defs.ingest.codes import PlanStatus, SliceStatus
from platform_defs.ingest.ledger.queue import OPEN_STATES
from platform_defs.ingest.tasks.health import read_limits
from platform_defs.ingest.tasks.picking import LEASED, Partition, is_blocked
from platform_defs.store.engine import read
from platform_defs.store.tables.ingest import ing_plan, ing_plan_slice, ing_task


def is_forgotten(engine: Engine, now: datetime, *, waiting_for: timedelta) -> bool:
    """Whether tasks, or slices without a task, have waited that long although one more could be worked on.

    Tasks count if nobody works on anything that was planned together with them: a run fetches its windows some at a
    time, and does not forget the others. They do not if as many slices of their endpoint and operation are worked on as
    may be at a time. What is blocked waits for an operator.
    """
    waiting, busy = read(engine, lambda connection: _waiting_and_busy(connection, now, waiting_for))
    lowered = {partition: limit.max_concurrent for partition, limit in read_limits(engine, now).items()}
    return has_free_place(waiting, busy, lowered) or read(
        engine, lambda connection: _has_forgotten_slice(connection, now - waiting_for)
    )


def has_free_place(
    waiting: Mapping[Partition, int], busy: Mapping[Partition, int], lowered: Mapping[Partition, int]
) -> bool:
    """Whether one of the partitions that wait could have one more task worked on.

    `waiting` says how many may be worked on at a time, `busy` how many are, `lowered` how many may for the moment.
    """
    return any(busy.get(each, 0) < min(most, lowered.get(each, most)) for each, most in waiting.items())


def _waiting_and_busy(
    connection: Connection, now: datetime, waiting_for: timedelta
) -> tuple[dict[Partition, int], dict[Partition, int]]:
    """Partitions with tasks that nobody is going to work on, and how many are worked on in each partition."""
    task, since = ing_task.c, now - waiting_for
    partition = (task.provenance_code, task.endpoint_name, task.operation_code)
    is_alive = (task.status_code.in_(LEASED), task.leased_until >= now)
    at_work = select(task.schedule_instance_id).where(*is_alive)
    waiting = (
        select(*partition, func.min(task.max_concurrent))
        .where(
            task.status_code.in_(OPEN_STATES),
            func.coalesce(task.leased_until, task.scheduled_at) < since,
            task.scheduled_at < since,
            task.schedule_instance_id.not_in(connection.execute(at_work.distinct()).scalars().all()),
        )
        .group_by(*partition)
        .having(~is_blocked())
    )
    busy = select(*partition, func.count()).where(*is_alive).group_by(*partition)
    return (
        {(row[0], row[1], row[2]): row[3] for row in connection.execute(waiting)},
        {(row[0], row[1], row[2]): row[3] for row in connection.execute(busy)},
    )


def _has_forgotten_slice(connection: Connection, since: datetime) -> bool:
    """Whether a slice has no task although the queue is empty: who ended its last task would have given it one."""
    piece, plan, task = ing_plan_slice.c, ing_plan.c, ing_task.c
    same = (
        task.provenance_code == plan.provenance_code,
        task.operation_code == plan.operation_code,
        task.endpoint_name == plan.endpoint_name,
    )
    is_at_work = or_(task.status_code.in_(OPEN_STATES), task.finished_at >= since)
    query = (
        select(piece.id)
        .join_from(ing_plan_slice, ing_plan, plan.id == piece.plan_id)
        .where(
            piece.status_code == SliceStatus.PENDING,
            plan.status_code.in_([status for status in PlanStatus if status.is_open]),
            ~is_blocked(plan),
            ~select(task.id).where(*same, is_at_work).exists(),
        )
        .limit(1)
    )
    return connection.execute(query).first() is not None
