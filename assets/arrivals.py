"""What table arrival runs: triggered models, reports of arrivals to Dagster, webhooks while no API is alive."""

from datetime import UTC, datetime, timedelta
from typing import Any

from dagster import (
    AssetMaterialization,
    Config,
    DagsterInstance,
    Definitions,
    Failure,
    MetadataValue,
    OpExecutionContext,
    job,
    op,
)
from pydantic import Field
from sqlalchemy import Engine

from assets.models import OP_TIMES, materialized, note_reported, partition_of, table_key
from platform_defs.arrivals.dagster_reports import (
    ArrivalReport,
    mark_arrivals_reported,
    mark_executions_reported,
    unreported_arrivals,
    unreported_executions,
)
from platform_defs.arrivals.errors import ArrivalsError
from platform_defs.arrivals.execution import run_for_operator, run_for_work
from platform_defs.settings import Settings
from platform_defs.store.engine import read, transact
from platform_defs.webhooks.sender import open_sender
from platform_defs.work.jobs import WORK_TAG
from platform_defs.work.wake import wake
from resources.database import DatabaseResource
from resources.model_execution import ModelExecutionResource

# An event costs Dagster 10 to 40 ms: so many stay well below the minute that a sensor has.
REPORTED_AT_ONCE = 500
REPAIRED_AT_ONCE = 100
# From closing its task to telling Dagster a run takes less than this, or it died in between.
TELLING = timedelta(seconds=30)


class Batch(Config):
    model_id: str = Field(description="The model to execute.")
    op_time: str = Field(description="The batch to execute it for.")


@op
def execute_model(context: OpExecutionContext, config: Batch, model_execution: ModelExecutionResource) -> None:
    """The execution that a row of work stands for: query, values, task log and webhooks."""
    # a re-execution has the tags of its parent, whose row of work is closed: it is the operator's launch
    work_id = context.run.tags.get(WORK_TAG) if context.run.parent_run_id is None else None
    try:
        if work_id is None:
            ended = run_for_operator(model_execution.environment, config.model_id, config.op_time, context.run_id)
        else:
            ended = run_for_work(
                model_execution.environment, config.model_id, config.op_time, int(work_id), context.run_id
            )
    except ArrivalsError as error:
        raise Failure(str(error), allow_retries=False) from None
    if ended.next_task_id is not None:
        wake(Settings.load().home)
    materialization = materialized(ended)
    _add_partitions(context.instance, [materialization.partition])
    context.log_event(materialization)
    note_reported(model_execution.database.engine, ended)


# Bound here, not by the Definitions: a sensor that targets a job would be copied by a parameter that is still beta.
_DATABASE = DatabaseResource()


@job(
    description="Executes a model for a batch whose tables have arrived.",
    resource_defs={"model_execution": ModelExecutionResource(database=_DATABASE)},
)
def model_run() -> None:
    execute_model()


@op
def report_waiting_arrivals(context: OpExecutionContext, database: DatabaseResource) -> None:
    """Every arrival that Dagster has not heard of, as a materialisation of the table's partition."""
    since = datetime.now(UTC) - timedelta(days=Settings.load().arrivals_lookback_days)
    total = 0
    while told := report(context.instance, database.engine, since):
        total += told
    context.log.info(f"reported {total} arrivals")
    context.add_output_metadata({"arrivals": total})


@job(
    description="Shows arrivals of source tables as materialisations.",
    resource_defs={"database": _DATABASE},
)
def arrival_report() -> None:
    report_waiting_arrivals()


@op
def send_due_webhooks(context: OpExecutionContext, database: DatabaseResource) -> None:
    """Every attempt that is due now."""
    sender = open_sender(Settings.load(), database.engine, owner=f"run {context.run_id}")
    try:
        attempts = sender.send_due()
    finally:
        sender.close()
    context.log.info(f"made {attempts} attempts")
    context.add_output_metadata({"attempts": attempts})


@job(
    description="Sends the webhooks that are due while no API process does.",
    resource_defs={"database": _DATABASE},
)
def webhook_send() -> None:
    send_due_webhooks()


def report(instance: DagsterInstance, engine: Engine, since: datetime) -> int:
    """Told first, noted second: a process that dies in between tells it twice, which harms nobody."""
    waiting = read(engine, lambda connection: unreported_arrivals(connection, since, REPORTED_AT_ONCE))
    if waiting:
        _add_partitions(instance, [partition_of(arrival.op_time) for arrival in waiting])
        for arrival in waiting:
            _tell(instance, arrival)
        transact(engine, lambda connection: mark_arrivals_reported(connection, waiting))
    return len(waiting)


def repair(instance: DagsterInstance, engine: Engine, since: datetime, now: datetime) -> int:
    """Tells of executions whose run died after it had stored its values; the number of those."""
    waiting = read(engine, lambda connection: unreported_executions(connection, since, now - TELLING, REPAIRED_AT_ONCE))
    if waiting:
        materializations = [materialized(ended) for ended in waiting]
        _add_partitions(instance, [materialization.partition for materialization in materializations])
        for materialization in materializations:
            instance.report_runless_asset_event(materialization)
        task_ids = [ended.task_id for ended in waiting]
        transact(engine, lambda connection: mark_executions_reported(connection, task_ids, now))
    return len(waiting)


def _tell(instance: DagsterInstance, arrival: ArrivalReport) -> None:
    metadata: dict[str, Any] = {"arrived as": arrival.table}
    if arrival.arrival_time is not None:
        metadata["arrival time"] = MetadataValue.timestamp(arrival.arrival_time)
    for dependency in arrival.dependencies:
        instance.report_runless_asset_event(
            AssetMaterialization(
                asset_key=table_key(dependency), partition=partition_of(arrival.op_time), metadata=metadata
            )
        )


def _add_partitions(instance: DagsterInstance, keys: list[str | None]) -> None:
    wanted = sorted({key for key in keys if key is not None})
    if wanted:
        instance.add_dynamic_partitions(str(OP_TIMES.name), wanted)


def definitions() -> Definitions:
    return Definitions(jobs=[model_run, arrival_report, webhook_send])
