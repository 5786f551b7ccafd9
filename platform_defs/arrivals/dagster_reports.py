"""Which arrivals and executions Dagster has not been told of.

The database notes which version of an arrival, and which execution, was reported. What a crash left unreported is
therefore found and reported later.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, or_, select, update

from platform_defs.arrivals.executions.model_run import ExecutionResult
from platform_defs.arrivals.executions.task_log import TaskStatus, has_later_task
from platform_defs.arrivals.matching import arrivals_per_dependency
from platform_defs.arrivals.models.catalog import load_models
from platform_defs.arrivals.models.compute import Counts
from platform_defs.arrivals.models.totals import meaningful_totals, stored_sums
from platform_defs.arrivals.op_time import batch_of
from platform_defs.store.tables.arrivals import metrics_etl_log, metrics_task_log


@dataclass(frozen=True)
class ArrivalReport:
    """An arrival to report, with every dependency that it satisfies: each is an asset of its own."""

    id: int
    table: str
    op_time: str
    arrival_time: datetime | None  # None if an ETL job wrote a text that is no time
    dependencies: tuple[str, ...]


def unreported_arrivals(connection: Connection, since: datetime, limit: int) -> list[ArrivalReport]:
    """Arrivals for published models that were not reported in their present version, the oldest first."""
    log = metrics_etl_log.c
    unreported = or_(log.reported_time.is_(None), log.reported_time != log.arrival_time)
    found = arrivals_per_dependency(since, unreported).subquery("found")
    oldest = select(found.c.id).distinct().order_by(found.c.id).limit(limit).subquery("oldest")
    query = (
        select(found.c.id, found.c.table_name, found.c.op_time, found.c.arrival_time, found.c.dependency)
        .join(oldest, oldest.c.id == found.c.id)
        .distinct()
        .order_by(found.c.id, found.c.dependency)
    )
    reports: dict[int, ArrivalReport] = {}
    for id_, table, op_time, arrival_time, dependency in connection.execute(query):
        before = reports[id_].dependencies if id_ in reports else ()
        reports[id_] = ArrivalReport(id_, table, batch_of(op_time), arrival_time, (*before, dependency))
    return list(reports.values())


def mark_arrivals_reported(connection: Connection, reports: Sequence[ArrivalReport]) -> None:
    """Notes that these versions were reported; an arrival that came again meanwhile stays unreported."""
    versions = {report.id: report.arrival_time for report in reports}
    log = metrics_etl_log.c
    present = connection.execute(select(log.id, log.arrival_time).where(log.id.in_(versions)).with_for_update())
    same = [id_ for id_, arrival_time in present if arrival_time == versions[id_]]
    if same:
        # The column is copied, because on SQLite unreported_arrivals compares texts: an ETL job may have written the
        # time in another form than we would.
        connection.execute(update(metrics_etl_log).where(log.id.in_(same)).values(reported_time=log.arrival_time))


def unreported_executions(
    connection: Connection, since: datetime, until: datetime, limit: int
) -> list[ExecutionResult]:
    """Successful executions that ended in this time and whose run died before it told Dagster, the oldest first.

    An execution is left out if a later one of the same batch succeeded: reported now, its counts would hide the newer
    ones.
    """
    task = metrics_task_log.c
    query = (
        select(metrics_task_log)
        .where(task.status == TaskStatus.SUCCESS, task.reported_at.is_(None))
        .where(task.end_time >= since, task.end_time < until, ~has_later_task(TaskStatus.SUCCESS))
        .order_by(task.id)
        .limit(limit)
    )
    rows = connection.execute(query).all()
    models = load_models(connection, [row.model_id for row in rows])
    sums = stored_sums(connection, [(row.model_id, row.op_time) for row in rows])
    return [
        ExecutionResult(
            row.id,
            row.model_id,
            row.op_time,
            Counts(
                row.compute_count or 0,
                row.storage_count or 0,
                meaningful_totals(model, sums[row.model_id, row.op_time], row.compute_count or 0) if model else {},
            ),
            row.missing_tables or [],
            next_task_id=None,
            period=model.period if model else None,
        )
        for row in rows
        for model in [models.get(row.model_id)]
    ]


def mark_executions_reported(connection: Connection, task_ids: Sequence[int], now: datetime) -> None:
    log = metrics_task_log
    connection.execute(update(log).where(log.c.id.in_(task_ids)).values(reported_at=now))
