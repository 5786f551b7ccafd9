"""The executor of chains: drives the run of a chain and shows it as a Dagster run, at the cost of one process.

The driver of platform_defs/chains decides what runs; Dagster's own loop only hears of it. With step_events.py and
job_building.py this is all that touches internals of Dagster: tests/chains/dagster fails if an upgrade moves them.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from dagster import DagsterEvent, Field, InitExecutorContext, executor
from dagster._core.errors import DagsterExecutionInterruptedError
from dagster._core.execution.context.system import PlanOrchestrationContext
from dagster._core.execution.plan.plan import ExecutionPlan
from dagster._core.execution.retries import RetryMode
from dagster._core.executor.base import Executor
from dagster._utils.interrupts import check_captured_interrupt
from sqlalchemy import Engine

from assets.chains.driving import opened_driver, opened_engine
from assets.chains.names import aliases
from assets.chains.step_events import StepEvents
from assets.chains.ui_starts import start_from_ui
from platform_defs.chains.dag import parse_snapshot
from platform_defs.chains.errors import ChainsError
from platform_defs.chains.runs.drives import Drive, find_drive
from platform_defs.chains.runs.happenings import DriveEnd, Interrupted, Parked, Superseded
from platform_defs.chains.runs.queries import get_run, list_nodes
from platform_defs.chains.states import NodeStatus, RunStatus
from platform_defs.runner import parking
from platform_defs.store.engine import read


class ChainExecutor(Executor):
    """`params` are those of a run that is started by launching the job in the UI."""

    def __init__(self, params: Mapping[str, Any]) -> None:
        self._params = params

    @property
    def retries(self) -> RetryMode:
        return RetryMode.DISABLED

    def execute(self, plan_context: PlanOrchestrationContext, execution_plan: ExecutionPlan) -> Iterator[DagsterEvent]:
        with opened_engine() as engine:
            drive = read(engine, lambda connection: find_drive(connection, plan_context.run_id))
            drive = drive or start_from_ui(engine, plan_context, execution_plan, self._params)
            yield from _Execution(engine, drive, plan_context, execution_plan).events()


class _Execution:
    """One Dagster run that shows one drive."""

    def __init__(
        self, engine: Engine, drive: Drive, context: PlanOrchestrationContext, execution_plan: ExecutionPlan
    ) -> None:
        self._engine = engine
        self._drive = drive
        self._context = context
        step_keys = aliases(parse_snapshot(get_run(engine, drive.run_id).dag_json).by_id)
        self._steps = StepEvents(
            context, execution_plan, drive.run_id, step_keys, is_resumed=context.resume_from_failure
        )

    def events(self) -> Iterator[DagsterEvent]:
        with opened_driver(
            self._engine, self._drive, interrupted=check_captured_interrupt, may_park=parking.is_allowed()
        ) as driver:
            for happening in driver.drive():
                yield from self._steps.of(happening)
        assert isinstance(happening, DriveEnd), "the last happening of a drive is its end"
        yield from self._end(happening)

    def _end(self, end: DriveEnd) -> Iterator[DagsterEvent]:
        """Ends the Dagster run as the run ended, or leaves it to the process that goes on with it."""
        match end:
            case Parked(until, waits_for):
                what = "; ".join(str(dict(item)) for item in waits_for) or "the next attempt"
                text = f"Gives its slot back until {until:%Y-%m-%d %H:%M:%S} UTC or earlier: waits for {what}."
                yield self._steps.note(text, marker=parking.MARKER)
            case Interrupted():
                raise DagsterExecutionInterruptedError("the process was told to end; the run goes on in another one")
            case _:
                run = get_run(self._engine, self._drive.run_id)
                if isinstance(end, Superseded) and not RunStatus(run.status).is_ended:
                    raise ChainsError(f"drive {run.drive_no} of run {run.run_id} executes it, this was a former one")
                yield from self._end_as(RunStatus(run.status))

    def _end_as(self, status: RunStatus) -> Iterator[DagsterEvent]:
        if status is RunStatus.STOPPED:
            # Dagster calls a run that was interrupted canceled only if somebody asked for it before.
            self._context.instance.report_run_canceling(self._context.dagster_run)
            raise DagsterExecutionInterruptedError("the run was stopped")
        if status is RunStatus.FAILED:
            held = self._steps.held_failures()
            for node in list_nodes(self._engine, self._drive.run_id):
                if node.status == NodeStatus.FAILED and node.node_id not in held:
                    self._steps.fail(node.node_id, node.last_error or "", node.attempt)
            # The UI shows the error of a failed step alone, and not what can be done about it.
            yield self._steps.advice(list(held))
            yield from held.values()


@executor(name="chain", config_schema={"params": Field(dict, is_required=False, default_value={})})
def chain_executor(context: InitExecutorContext) -> Executor:
    """Executes the nodes of a chain in threads. `params` are given to the run, as by POST /api/v1/chains/ID:start."""
    params: Any = context.executor_config.get("params")
    return ChainExecutor(params or {})
