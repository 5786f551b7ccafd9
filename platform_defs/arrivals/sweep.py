"""The sweep: queues every batch that an arrival made due although no request reported the arrival.

ETL jobs may write arrivals into the table themselves, and publishing a model makes earlier arrivals count. One query
finds all such batches.
"""

from datetime import datetime, timedelta

from sqlalchemy import Connection, Engine, Select, and_, case, func, or_, select, true, union_all

from platform_defs.arrivals.batches import Batch
from platform_defs.arrivals.executions.inputs import versions_of
from platform_defs.arrivals.executions.lifecycle import queue_due_batches
from platform_defs.arrivals.executions.task_log import Trigger
from platform_defs.arrivals.matching import batch_sql, dashed_sql, rendered_name_sql
from platform_defs.arrivals.models.model import PUBLISHED
from platform_defs.arrivals.standings import load_standings
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
from platform_defs.work.rows import Status

# How many batches one transaction queues: a model of 5-minute batches has two thousand of them in a week.
AT_ONCE = 200


def sweep_arrivals(engine: Engine, lookback: timedelta, now: datetime) -> dict[Batch, int]:
    """Queues the batches with an unread arrival within the lookback; returns their new tasks."""
    candidates = read(engine, lambda connection: connection.execute(_due_batches_query(now - lookback)).all())
    batches = sorted({(row[0], row[1]) for row in candidates} | set(read(engine, _changed_while_waiting)))
    queued: dict[Batch, int] = {}
    for some in chunks(batches, AT_ONCE):
        queued |= queue_due_batches(engine, some, Trigger.SENSOR, now)
    return queued


def _changed_while_waiting(connection: Connection) -> list[Batch]:
    """Batches whose queued execution waits for a time of its own, and whose tables arrived again meanwhile."""
    log = metrics_task_log.c
    query = (
        select(log.model_id, log.op_time, log.inputs)
        .select_from(metrics_model_running)
        .join(metrics_task_log, log.id == metrics_model_running.c.task_id)
        .join(work, work.c.id == log.work_id)
        .where(work.c.status == Status.QUEUED, work.c.not_before.is_not(None))
    )
    waiting = {(row.model_id, row.op_time): versions_of(row.inputs) for row in connection.execute(query)}
    standings = load_standings(connection, sorted(waiting)) if waiting else []
    return [
        (standing.model_id, standing.op_time)
        for standing in standings
        if standing.arrived != waiting[standing.model_id, standing.op_time]
    ]


def _due_batches_query(since: datetime) -> Select[str, str]:
    """Changed batches of published models that are not being executed and whose dependencies have all arrived."""
    changed = _changed_batches_query(since).subquery("changed")
    dependency, log, model = metrics_model_dependency, metrics_etl_log, metrics_model
    satisfied = case((log.c.id.is_not(None), dependency.c.id))
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
        .having(func.count(dependency.c.id.distinct()) == func.count(satisfied.distinct()))
    )


def _changed_batches_query(since: datetime) -> Select[str, str]:
    """Batches with an arrival since the instant that the last closed execution of the batch has not read."""
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
    # As in matching.py, the join starts from the few dependencies with a placeholder, so that an index is used.
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
    by_rendered_name = (
        select(placeholders.c.model_id, batch_sql(log.op_time).label("op_time"))
        .select_from(placeholders.join(batches, true()))
        .join(metrics_etl_log, and_(log.table_name == name, log.op_time == batches.c.op_time))
        .outerjoin(metrics_model_input, same_input_rendered)
        .where(unread)
    )
    both = union_all(by_name, by_rendered_name).subquery("arrivals")
    return select(both.c.model_id, both.c.op_time).distinct()
