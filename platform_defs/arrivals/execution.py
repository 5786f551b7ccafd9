"""One execution from its beginning to its end: what a Dagster run of a model does, whoever launched it."""

from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import Engine

from platform_defs.arrivals import task_log
from platform_defs.arrivals.errors import ArrivalsError, InvalidArrival, ModelFailed
from platform_defs.arrivals.models.catalog import load_models
from platform_defs.arrivals.models.compute import Counts, compute
from platform_defs.arrivals.op_time import normalise_op_time
from platform_defs.arrivals.ports import Notify
from platform_defs.arrivals.readiness import missing_tables
from platform_defs.arrivals.task_log import Begun, TakenOver, TaskStatus
from platform_defs.errors import driver_error, one_line
from platform_defs.logs import mask
from platform_defs.sources import Sources
from platform_defs.store.engine import read


@dataclass(frozen=True)
class ExecutionEnvironment:
    """What an execution works with."""

    engine: Engine
    sources: Sources
    timeout_s: float
    notify: Notify


@dataclass(frozen=True)
class ExecutionResult:
    task_id: int
    model_id: str
    op_time: str
    counts: Counts
    missing_tables: list[str]
    # the execution that was begun because a table arrived during this one
    next_task_id: int | None


def run_for_work(
    environment: ExecutionEnvironment, model_id: str, op_time: str, work_id: int, run_id: str
) -> ExecutionResult:
    """The execution of a row of work; raises ModelFailed once the task log says FAILED."""
    return _execute(
        environment, task_log.begin(environment.engine, (model_id, op_time), work_id, run_id, datetime.now(UTC))
    )


def run_for_operator(environment: ExecutionEnvironment, model_id: str, op_time: str, run_id: str) -> ExecutionResult:
    """An execution launched in the UI; raises AlreadyRunning beside another one."""
    if op_time != normalise_op_time(op_time):
        raise InvalidArrival("opTime", f"expected {normalise_op_time(op_time)}, as arrivals are recorded")
    return _execute(
        environment, task_log.begin_by_operator(environment.engine, model_id, op_time, run_id, datetime.now(UTC))
    )


def described(error: Exception) -> str:
    """One line without what SQLAlchemy adds: the statement and its parameters are nobody's business outside."""
    if isinstance(error, ArrivalsError):
        return str(error)
    cause = driver_error(error)
    return mask(f"{type(cause).__name__}: {one_line(cause) if str(cause) else 'no reason given'}")


def _execute(environment: ExecutionEnvironment, begun: Begun) -> ExecutionResult:
    standing = begun.standing
    try:
        model = read(environment.engine, lambda connection: load_models(connection, [standing.model_id]))[
            standing.model_id
        ]
        counts = compute(
            environment.engine,
            model,
            standing.op_time,
            sources=environment.sources,
            timeout_s=environment.timeout_s,
            fence=lambda connection: task_log.fence(connection, begun),
        )
    except TakenOver:
        raise
    # not BaseException: a run that is told to end leaves its task to the recovery, which knows who wanted the end
    except Exception as error:
        message = described(error)
        task_log.finish(environment.engine, begun, TaskStatus.FAILED, environment.notify, message=message)
        raise ModelFailed(message) from error
    following = task_log.finish(
        environment.engine,
        begun,
        TaskStatus.SUCCESS,
        environment.notify,
        compute_count=counts.computed,
        storage_count=counts.stored,
    )
    return ExecutionResult(
        begun.task_id, standing.model_id, standing.op_time, counts, missing_tables(standing), following
    )
