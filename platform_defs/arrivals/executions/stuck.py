"""Executions that are stuck: beyond the time that their query may take, or left RUNNING by a closed row of work."""

from datetime import datetime, timedelta

from sqlalchemy import Connection, select

from platform_defs.store.tables.arrivals import metrics_model, metrics_model_running, metrics_task_log
from platform_defs.store.tables.work import work
from platform_defs.work.rows import Status
from platform_defs.work.stuck import Stuck


def find_stuck_tasks(connection: Connection, patience: timedelta, timeout: timedelta, now: datetime) -> list[Stuck]:
    """`timeout` is how long the query of a model may take that does not say so itself."""
    log, model = metrics_task_log.c, metrics_model.c
    query = (
        select(log.id, log.start_time, log.versions, model.timeout_s, work.c.status, work.c.finished_at)
        .select_from(metrics_model_running)
        .join(metrics_task_log, log.id == metrics_model_running.c.task_id)
        .outerjoin(metrics_model, model.model_id == log.model_id)
        .outerjoin(work, work.c.id == log.work_id)
        .where(log.start_time < now - patience)
        .order_by(log.id)
    )
    found = []
    for row in connection.execute(query):
        free = f"`platform models release {row.id}` frees it"
        longest = timeout if row.timeout_s is None else timedelta(seconds=row.timeout_s)
        if row.finished_at is not None and Status(row.status).is_final and row.finished_at < now - patience:
            found.append(
                Stuck("task", row.finished_at, f"task {row.id} is RUNNING, but its row of work is closed; {free}")
            )
        elif row.versions is not None and row.start_time + longest < now - patience:
            since = row.start_time + longest
            found.append(
                Stuck("task", since, f"task {row.id} runs longer than its {longest.total_seconds():g} s; {free}")
            )
    return found
