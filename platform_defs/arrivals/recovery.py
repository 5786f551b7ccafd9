"""What nobody reported: arrivals that ETL jobs wrote themselves, and executions whose process died."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sqlalchemy import Connection, Engine, Select, and_, case, func, or_, select, true, union_all

from platform_defs.arrivals import task_log
from platform_defs.arrivals.batches import Batch
from platform_defs.arrivals.matching import batch_sql, dashed_sql, rendered_name_sql
from platform_defs.arrivals.models.model import PUBLISHED
from platform_defs.arrivals.readiness import Verdict, judge, may_run_again
from platform_defs.arrivals.standings import load_standings
from platform_defs.arrivals.task_log import Trigger, begin_due, decide, trigger
from platform_defs.store.chunks import chunks
from platform_defs.store.engine import read
from platform_defs.store.tables.arrivals import (
    metrics_etl_log,
    metrics_model,
    metrics_model_dependency,
    metrics_model_input,
    metrics_model_running,
    metrics_task_log,
)
from platform_defs.store.tables.work import work

# What one transaction of a sweep begins: a model of 5-minute batches has two thousand of them in a week.
AT_ONCE = 200
# The final states of a row of work, as the runner names them.
_SUCCEEDED = "SUCCEEDED"
_FAILED = "FAILED"
_CANCELED = "CANCELED"


@dataclass(frozen=True)
class DeadExecution:
    """A RUNNING task whose run is over."""

    task_id: int
    batch: Batch
    attempt: int
    reason: str
    canceled_by_operator: bool = False
    # ended because its runner was: that says nothing against the model, however often it happens
    stopped: bool = False


@dataclass(frozen=True)
class RecoveryResult:
    begun: dict[Batch, int] = field(default_factory=dict)
    closed: list[int] = field(default_factory=list)


def sweep_arrivals(engine: Engine, lookback: timedelta, now: datetime) -> dict[Batch, int]:
    """Begins every batch that changed within the lookback and that nobody has begun."""
    candidates = read(engine, lambda connection: connection.execute(_due_batches_query(now - lookback)).all())
    if not candidates:
        return {}
    batches = sorted((row[0], row[1]) for row in candidates)
    begun: dict[Batch, int] = {}
    for some in chunks(batches, AT_ONCE):
        begun |= begin_due(engine, some, Trigger.SENSOR, now)
    return begun


def settle_dead_executions(engine: Engine, now: datetime, others: Sequence[DeadExecution] = ()) -> RecoveryResult:
    """Closes the executions whose process died, and makes them once more. `others` are known from elsewhere."""
    swept = RecoveryResult()
    for dead in [*read(engine, find_dead_executions), *others]:

        def close(connection: Connection, dead: DeadExecution = dead) -> int | None:
            if not task_log.close_dead(connection, dead.task_id, dead.batch, dead.reason, now):
                return None
            found = load_standings(connection, [dead.batch])
            if not found or judge(found[0]) is not Verdict.DUE:
                return None
            attempt = dead.attempt if dead.stopped else dead.attempt + 1
            if may_run_again(canceled_by_operator=dead.canceled_by_operator, attempt=attempt):
                begun = trigger(connection, [dead.batch], Trigger.RECOVERY, now, attempt=attempt)
                return begun.get(dead.batch)
            task_log.remember(connection, dead.batch, found[0].arrived)
            return None

        following = decide(engine, close)
        swept.closed.append(dead.task_id)
        if following is not None:
            swept.begun[dead.batch] = following
    return swept


def find_dead_executions(connection: Connection) -> list[DeadExecution]:
    """RUNNING tasks whose row of work is closed: the process that should have closed the task cannot any more."""
    log, by_run = metrics_task_log.c, work.alias("by_run")
    query = (
        select(
            *(log.id, log.model_id, log.op_time, log.attempt),
            func.coalesce(work.c.status, by_run.c.status).label("status"),
            func.coalesce(work.c.error, by_run.c.error).label("error"),
            func.coalesce(work.c.cancel_requested_at, by_run.c.cancel_requested_at).label("cancel_requested_at"),
        )
        .select_from(metrics_model_running)
        .join(metrics_task_log, log.id == metrics_model_running.c.task_id)
        .outerjoin(work, work.c.id == log.work_id)
        .outerjoin(by_run, and_(log.work_id.is_(None), by_run.c.run_id == log.run_id))
        .where(func.coalesce(work.c.status, by_run.c.status).in_([_SUCCEEDED, _FAILED, _CANCELED]))
        .order_by(log.id)
    )
    return [
        DeadExecution(
            found.id,
            (found.model_id, found.op_time),
            found.attempt,
            found.error or "its run ended without closing the task",
            canceled_by_operator=found.status == _CANCELED and found.cancel_requested_at is not None,
            stopped=found.status == _CANCELED and found.cancel_requested_at is None,
        )
        for found in connection.execute(query)
    ]


def executions_without_work(connection: Connection) -> Mapping[str, DeadExecution]:
    """RUNNING tasks of runs that no row of work stands for, by run id: only Dagster knows what became of them."""
    log = metrics_task_log.c
    query = (
        select(log.id, log.model_id, log.op_time, log.attempt, log.run_id)
        .select_from(metrics_model_running)
        .join(metrics_task_log, log.id == metrics_model_running.c.task_id)
        .outerjoin(work, work.c.run_id == log.run_id)
        .where(log.work_id.is_(None), work.c.id.is_(None))
    )
    return {
        found.run_id: DeadExecution(found.id, (found.model_id, found.op_time), found.attempt, "its run has ended")
        for found in connection.execute(query)
    }


def _due_batches_query(since: datetime) -> Select[str, str]:
    """One query: published models, no execution, all dependencies arrived, one of them in a version it has not read."""
    changed = _changed_batches_query(since).subquery("changed")
    dependency, log, model = metrics_model_dependency, metrics_etl_log, metrics_model
    met = case((log.c.id.is_not(None), dependency.c.id))
    return (
        select(changed.c.model_id, changed.c.op_time)
        .select_from(changed)
        .join(model, and_(model.c.model_id == changed.c.model_id, model.c.state == PUBLISHED))
        .outerjoin(
            metrics_model_running,
            and_(
                metrics_model_running.c.model_id == changed.c.model_id,
                metrics_model_running.c.op_time == changed.c.op_time,
            ),
        )
        .join(dependency, dependency.c.model_id == changed.c.model_id)
        .outerjoin(
            log,
            and_(
                log.c.op_time.in_([changed.c.op_time, dashed_sql(changed.c.op_time)]),
                log.c.table_name.in_(
                    [
                        dependency.c.dependency_table_name,
                        rendered_name_sql(dependency.c.dependency_table_name, changed.c.op_time),
                    ]
                ),
            ),
        )
        .where(metrics_model_running.c.task_id.is_(None))
        .group_by(changed.c.model_id, changed.c.op_time)
        .having(func.count(dependency.c.id.distinct()) == func.count(met.distinct()))
    )


def _changed_batches_query(since: datetime) -> Select[str, str]:
    """Batches with an arrival within the lookback that the model's last ended execution has not read."""
    dependency, log, read_before = metrics_model_dependency.c, metrics_etl_log.c, metrics_model_input.c

    unread = and_(
        log.arrival_time >= since, or_(read_before.id.is_(None), read_before.arrival_time != log.arrival_time)
    )
    same_input = and_(
        read_before.model_id == dependency.model_id,
        read_before.op_time == log.op_time,
        read_before.dependency_table_name == log.table_name,
    )
    by_name = (
        select(dependency.model_id, batch_sql(log.op_time).label("op_time"))
        .select_from(metrics_etl_log)
        .join(metrics_model_dependency, dependency.dependency_table_name == log.table_name)
        .outerjoin(metrics_model_input, same_input)
        .where(unread)
    )
    # placeholders are few: from them to the arrivals, because the other way round nothing could be looked up
    batches = select(log.op_time).where(log.arrival_time >= since).distinct().subquery("batches")
    placeholders = (
        select(dependency.model_id, dependency.dependency_table_name)
        .where(dependency.dependency_table_name.like("%yyyy%"))
        .subquery("placeholders")
    )
    name = rendered_name_sql(placeholders.c.dependency_table_name, batch_sql(batches.c.op_time))
    same_input_rendered = and_(
        read_before.model_id == placeholders.c.model_id,
        read_before.op_time == log.op_time,
        read_before.dependency_table_name == log.table_name,
    )
    by_batch = (
        select(placeholders.c.model_id, batch_sql(log.op_time).label("op_time"))
        .select_from(placeholders.join(batches, true()))
        .join(metrics_etl_log, and_(log.table_name == name, log.op_time == batches.c.op_time))
        .outerjoin(metrics_model_input, same_input_rendered)
        .where(unread)
    )
    both = union_all(by_name, by_batch).subquery("arrivals")
    return select(both.c.model_id, both.c.op_time).distinct()
