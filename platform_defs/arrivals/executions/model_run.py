"""What a Dagster run of a model does, whoever launched it: one execution from its start to its end."""

from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import Engine

from platform_defs.arrivals.errors import InvalidArrival, ModelFailed, TakenOver, failure_text
from platform_defs.arrivals.executions.lifecycle import (
    Execution,
    Notify,
    fence,
    finish_execution,
    start_operator_execution,
    start_queued_execution,
)
from platform_defs.arrivals.executions.task_log import TaskStatus
from platform_defs.arrivals.models.catalog import load_models
from platform_defs.arrivals.models.compute import Counts, compute
from platform_defs.arrivals.op_time import normalise_op_time
from platform_defs.arrivals.readiness import missing_tables
from platform_defs.sources import Sources
from platform_defs.store.engine import read


@dataclass(frozen=True)
class ExecutionEnvironment:
    """The database, the sources, the time limit and the notification that executions use."""

    engine: Engine
    sources: Sources
    timeout_s: float
    notify: Notify


@dataclass(frozen=True)
class ExecutionResult:
    """A successful execution."""

    task_id: int
    model_id: str
    op_time: str
    counts: Counts
    # dependencies that had not arrived; only an operator's launch can have any
    missing_tables: list[str]
    # the task that was queued because a table arrived during this execution
    next_task_id: int | None
    # the period of the model's batches
    period: str | None = None
    # the version of the model that computed the values; None if it is not known any more
    version: int | None = None


def run_for_work(
    environment: ExecutionEnvironment, model_id: str, op_time: str, work_id: int, run_id: str
) -> ExecutionResult:
    """Executes what was queued with a row of work. Raises ModelFailed after the task log was closed as FAILED."""
    now = datetime.now(UTC)
    return _execute(environment, start_queued_execution(environment.engine, (model_id, op_time), work_id, run_id, now))


def run_for_operator(environment: ExecutionEnvironment, model_id: str, op_time: str, run_id: str) -> ExecutionResult:
    """Executes a batch that was launched in the UI. Raises AlreadyRunning if an execution is under way."""
    if op_time != normalise_op_time(op_time):
        raise InvalidArrival("opTime", f"expected {normalise_op_time(op_time)}, as arrivals are recorded")
    now = datetime.now(UTC)
    return _execute(environment, start_operator_execution(environment.engine, model_id, op_time, run_id, now))


def _execute(environment: ExecutionEnvironment, execution: Execution) -> ExecutionResult:
    engine, (model_id, op_time) = environment.engine, execution.batch
    try:
        model = read(engine, lambda connection: load_models(connection, [model_id]))[model_id]
        counts = compute(
            engine,
            model,
            op_time,
            sources=environment.sources,
            timeout_s=environment.timeout_s,
            fence=lambda connection: fence(connection, execution),
        )
    except TakenOver:
        raise
    # Not BaseException: a run that is told to stop leaves its task to the recovery, which knows who stopped the run.
    except Exception as error:
        message = failure_text(error)
        finish_execution(engine, execution, TaskStatus.FAILED, environment.notify, message=message)
        raise ModelFailed(message) from error
    next_task_id = finish_execution(
        engine,
        execution,
        TaskStatus.SUCCESS,
        environment.notify,
        compute_count=counts.computed,
        storage_count=counts.stored,
    )
    missing = missing_tables(execution.standing)
    return ExecutionResult(
        execution.task_id, model_id, op_time, counts, missing, next_task_id, model.period, model.version
    )
