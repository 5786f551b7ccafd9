"""What a Dagster run of a model does, whoever launched it: one execution from its start to its end."""

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from sqlalchemy import Connection, Engine

from platform_defs.arrivals.errors import InvalidArrival, ModelChanged, ModelFailed, TakenOver, failure_text
from platform_defs.arrivals.executions.lifecycle import (
    Execution,
    Notify,
    fence,
    finish_execution,
    start_operator_execution,
    start_queued_execution,
)
from platform_defs.arrivals.executions.statements import end_left_statements, statement_mark
from platform_defs.arrivals.executions.task_log import FailureCode, TaskStatus
from platform_defs.arrivals.models.catalog import find_version, load_models
from platform_defs.arrivals.models.compute import Counts, compute
from platform_defs.arrivals.models.model import Model
from platform_defs.arrivals.op_time import normalise_op_time
from platform_defs.arrivals.readiness import missing_tables
from platform_defs.sources.named import Sources
from platform_defs.store.engine import is_transient, read
from platform_defs.store.errors import StoreUnavailable
from platform_defs.work.processes import ProcessId


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
    process = ProcessId.current().full_name
    execution = start_queued_execution(environment.engine, (model_id, op_time), work_id, run_id, now, process=process)
    return _execute(environment, execution, run_id)


def run_for_operator(environment: ExecutionEnvironment, model_id: str, op_time: str, run_id: str) -> ExecutionResult:
    """Executes a batch that was launched in the UI. Raises AlreadyRunning if an execution is under way."""
    if op_time != normalise_op_time(op_time):
        raise InvalidArrival("opTime", f"expected {normalise_op_time(op_time)}, as arrivals are recorded")
    now = datetime.now(UTC)
    process = ProcessId.current().full_name
    execution = start_operator_execution(environment.engine, model_id, op_time, run_id, now, process=process)
    return _execute(environment, execution, run_id)


def _execute(environment: ExecutionEnvironment, execution: Execution, run_id: str) -> ExecutionResult:
    """Computes the batch and closes its task, as SUCCESS or as FAILED; in the latter case raises ModelFailed."""
    engine, (model_id, op_time) = environment.engine, execution.batch
    model: Model | None = None
    try:
        # Before its own query: two queries of one batch must not run side by side.
        end_left_statements(engine, environment.sources, datetime.now(UTC), execution.batch)
        while True:
            model = read(engine, lambda connection: load_models(connection, [model_id]))[model_id]
            # Another round for each version that is loaded meanwhile: values of an old one must not replace anything.
            with suppress(ModelChanged):
                counts = compute(
                    engine,
                    model,
                    op_time,
                    sources=environment.sources,
                    timeout_s=model.timeout_s or environment.timeout_s,
                    mark=statement_mark(execution.task_id, run_id),
                    fence=partial(_fence, execution=execution, version=model.version),
                )
                break
    except TakenOver:
        raise
    # Not BaseException: a run that is told to stop leaves its task to the recovery, which knows who stopped the run.
    except Exception as error:
        message = failure_text(error)
        finish_execution(
            engine,
            execution,
            TaskStatus.FAILED,
            environment.notify,
            message=message,
            failure_code=FailureCode.SOURCE if _source_is_down(error) else None,
            retries=None if model is None else model.retries,
        )
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


def _fence(connection: Connection, *, execution: Execution, version: int) -> None:
    """Refuses values of an execution that somebody has closed, or of a version that is not the present one.

    The values of a batch that a load finds stored can be computed again by the command that it prints. It cannot know
    of a batch whose query is running, and a KPI may belong to another model by now, which has its own values of it.
    """
    fence(connection, execution)
    if find_version(connection, execution.standing.model_id) != version:
        raise ModelChanged(f"model {execution.standing.model_id} was loaded anew while its query ran")


def _source_is_down(error: Exception) -> bool:
    """Whether a later try may succeed; the platform's own database, where the values are written, may be busy too."""
    if isinstance(error, ModelFailed):
        return error.source_is_down
    return isinstance(error, StoreUnavailable) or is_transient(error)
