"""The jobs of table arrival: execute a model, report arrivals to Dagster, forget old records."""

from datetime import UTC, datetime, timedelta

from dagster import Config, Definitions, Failure, OpExecutionContext, job, op
from pydantic import Field

from assets.arrivals.names import tables_text
from assets.arrivals.reports import add_partitions, model_materialization, note_reported, report_arrivals
from assets.retention import tell_deleted
from platform_defs.arrivals.errors import ArrivalsError
from platform_defs.arrivals.executions.model_run import run_for_operator, run_for_work
from platform_defs.arrivals.kinds_of_work import TABLES_TAG
from platform_defs.arrivals.retention import forget_old_rows
from platform_defs.settings import Settings
from platform_defs.work.jobs import WORK_TAG, tag_of
from platform_defs.work.wake import wake
from resources.database import DatabaseResource
from resources.model_execution import ModelExecutionResource

# The jobs bind their resources here and not through the Definitions object. For a sensor that targets a job, the
# Definitions object would have to copy the job with a parameter of Dagster that is still beta.
_DATABASE = DatabaseResource()


class BatchConfig(Config):
    model_id: str = Field(description="The model to execute.")
    op_time: str = Field(description="The batch to execute it for.")


@op
def execute_model(context: OpExecutionContext, config: BatchConfig, model_execution: ModelExecutionResource) -> None:
    """Executes a model for a batch: runs its query, replaces the values, closes the task and writes the deliveries."""
    environment = model_execution.environment
    # A re-execution has the tags of its parent run, whose row of work is closed: it counts as an operator's launch.
    work_id = tag_of(context.run.tags, WORK_TAG) if context.run.parent_run_id is None else None
    try:
        if work_id is None:
            result = run_for_operator(environment, config.model_id, config.op_time, context.run_id)
        else:
            result = run_for_work(environment, config.model_id, config.op_time, int(work_id), context.run_id)
    except ArrivalsError as error:
        raise Failure(str(error), allow_retries=False) from None
    if result.next_task_id is not None:
        wake(Settings.load().home)
    materialization = model_materialization(result)
    add_partitions(context.instance, [result.op_time])
    context.log_event(materialization)
    note_reported(environment.engine, result)


@job(
    description="Executes a model for a batch, as an arrival does. To compute one again, materialise the model.",
    resource_defs={"model_execution": ModelExecutionResource(database=_DATABASE)},
)
def model_run() -> None:
    execute_model()


@op
def report_waiting_arrivals(context: OpExecutionContext, database: DatabaseResource) -> None:
    """Reports every arrival that Dagster has not been told of."""
    since = datetime.now(UTC) - timedelta(days=Settings.load().arrivals_lookback_days)
    total, tables = 0, set[str]()
    while reported := report_arrivals(context.instance, database.engine, since):
        total += len(reported)
        tables.update(report.table for report in reported)
    if tables:
        context.instance.add_run_tags(context.run_id, {TABLES_TAG: tables_text(tables)})
    context.log.info(f"reported {total} arrivals" if total else "nothing to do: Dagster knows every arrival")
    context.add_output_metadata({"arrivals": total})


@job(
    description="For the platform itself: shows arrivals of source tables as materialisations.",
    resource_defs={"database": _DATABASE},
)
def arrival_report() -> None:
    report_waiting_arrivals()


@op
def forget_old_executions(context: OpExecutionContext, database: DatabaseResource) -> None:
    """Deletes closed tasks, finished deliveries, finished work and versions that were read, beyond their retention."""
    settings = Settings.load()
    counts = forget_old_rows(
        database.engine,
        days=settings.arrivals_retention_days,
        lookback_days=settings.arrivals_lookback_days,
        at=datetime.now(UTC),
    )
    tell_deleted(context, counts)


@job(description="For the platform itself: deletes tasks, deliveries and work that are older than their retention.")
def arrivals_retention() -> None:
    forget_old_executions()


def definitions() -> Definitions:
    return Definitions(jobs=[model_run, arrival_report, arrivals_retention])
