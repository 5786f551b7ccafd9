"""Models and arrivals for tests, written straight into the tables."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Engine, select

from platform_defs.store.engine import read, transact
from platform_defs.store.tables.arrivals import (
    metrics_etl_log,
    metrics_kpi,
    metrics_model,
    metrics_model_dependency,
    metrics_task_log,
)
from platform_defs.store.tables.work import work
from platform_defs.store.upsert import upsert

SQL = "SELECT ${dimGroup}, ${kpis} FROM orders WHERE op_time = ${op_time} GROUP BY ${dimGroup}"


def add_model(engine: Engine, model_id: str, tables: Sequence[str], *, published: bool = True, sql: str = SQL) -> None:
    add_models(engine, {model_id: tables}, published=published, sql=sql)


def add_models(engine: Engine, models: dict[str, Sequence[str]], *, published: bool = True, sql: str = SQL) -> None:
    state = "1" if published else "0"
    rows = [
        {
            "model_id": model_id,
            "name": model_id,
            "state": state,
            "source": "platform",
            "source_sql": sql,
            "dimensions": ["region"],
            "published_at": datetime.now(UTC) if published else None,
        }
        for model_id in models
    ]
    dependencies = [
        {"model_id": model_id, "dependency_table_name": table}
        for model_id, tables in models.items()
        for table in tables
    ]
    kpis = [
        {"kpi_id": f"{model_id}-amount", "name": "Amount", "kpi_type": "EXTENDED", "model_id": model_id}
        | {"expression": "SUM(amount)", "depends_on": None}
        for model_id in models
    ]

    def write(connection: Any) -> None:
        upsert(connection, metrics_model, rows, key=["model_id"])
        upsert(connection, metrics_model_dependency, dependencies, key=["model_id", "dependency_table_name"])
        upsert(connection, metrics_kpi, kpis, key=["kpi_id"])

    transact(engine, write)


def write_arrival(engine: Engine, table: str, op_time: str, at: datetime | None = None) -> None:
    """Writes an arrival as an ETL job does: into the table itself, with its own clock, over an earlier row."""
    row = {"table_name": table, "op_time": op_time, "arrival_time": at or datetime.now(UTC)}
    transact(engine, lambda connection: upsert(connection, metrics_etl_log, [row], key=["table_name", "op_time"]))


def logged_tasks(engine: Engine, model_id: str, op_time: str) -> list[Any]:
    log = metrics_task_log.c
    query = select(metrics_task_log).where(log.model_id == model_id, log.op_time == op_time).order_by(log.id)
    return list(read(engine, lambda connection: connection.execute(query).all()))


def work_of(engine: Engine, task: Any) -> Any:
    return read(engine, lambda connection: connection.execute(select(work).where(work.c.id == task.work_id)).one())


def silent(connection: Any, **_: Any) -> int:
    """A Notify that writes no deliveries, as if nobody had subscribed."""
    return 0
