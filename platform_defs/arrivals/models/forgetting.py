"""Forgets what deleted models left behind: their executions, what subscribers were told, and arrivals for nobody."""

from collections.abc import Collection

from sqlalchemy import Connection, Engine, delete, select, union

from platform_defs.store.engine import read, transact
from platform_defs.store.tables.arrivals import metrics_etl_log, metrics_model_dependency, metrics_task_log
from platform_defs.store.tables.webhooks import metrics_webhook_attempt, metrics_webhook_delivery


def forget_models(engine: Engine, model_ids: Collection[str], tables: Collection[str]) -> None:
    """Arrivals of tables that another model reads stay."""
    task, delivery, log = metrics_task_log.c, metrics_webhook_delivery.c, metrics_etl_log.c
    attempt, dependency = metrics_webhook_attempt.c, metrics_model_dependency.c

    def work(connection: Connection) -> None:
        told = select(delivery.id).where(delivery.model_id.in_(model_ids))
        connection.execute(delete(metrics_webhook_attempt).where(attempt.delivery_id.in_(told)))
        connection.execute(delete(metrics_webhook_delivery).where(delivery.model_id.in_(model_ids)))
        connection.execute(delete(metrics_task_log).where(task.model_id.in_(model_ids)))
        read_by_others = select(dependency.dependency_table_name)
        gone = (log.table_name.in_(tables), log.table_name.not_in(read_by_others))
        connection.execute(delete(metrics_etl_log).where(*gone))

    transact(engine, work)


def unused_batches(engine: Engine, op_times: Collection[str]) -> list[str]:
    """Those of these opTimes for which no table has arrived and no model was executed."""
    log, task = metrics_etl_log.c, metrics_task_log.c
    used = union(
        select(log.op_time).where(log.op_time.in_(op_times)), select(task.op_time).where(task.op_time.in_(op_times))
    )
    return sorted(set(op_times) - read(engine, lambda connection: set(connection.scalars(used))))
