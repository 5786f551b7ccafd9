"""Shows a drive in its Dagster run: turns what happens to nodes into events of their steps.

A STEP_FAILURE that reaches Dagster's own loop makes its run FAILURE for ever. Failures are therefore written to the
event log at once, which shows the step in red, but handed to the loop only when the run has ended: a step that is
retried before that turns green, and so does its run.
"""

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from dagster import DagsterEvent, MetadataValue
from dagster._core.events import DagsterEventType, EngineEventData
from dagster._core.execution.context.system import IStepContext, PlanOrchestrationContext
from dagster._core.execution.plan.objects import (
    ErrorSource,
    StepFailureData,
    StepRetryData,
    StepSuccessData,
    TypeCheckData,
)
from dagster._core.execution.plan.outputs import StepOutputData, StepOutputHandle
from dagster._core.execution.plan.plan import ExecutionPlan
from dagster_shared.error import SerializableErrorInfo

from platform_defs.chains.runs.happenings import (
    AttemptFailed,
    AttemptStarted,
    Happening,
    LineLogged,
    NodeEnded,
    NodeRetried,
    NodesRevived,
    NodesSkipped,
    NodeWaits,
)
from platform_defs.chains.states import NodeStatus

# A longer artifact is not copied into Dagster's event log; the API shows it whole.
LONGEST_ARTIFACT = 10_000
LISTED = 20


class StepEvents:
    """`aliases` has the step key of each node. `is_resumed`: an earlier process executed a part of the same drive."""

    def __init__(
        self,
        context: PlanOrchestrationContext,
        plan: ExecutionPlan,
        run_id: str,
        aliases: Mapping[str, str],
        *,
        is_resumed: bool,
    ) -> None:
        self._context = context
        self._plan = plan
        self._run_id = run_id
        self._aliases = aliases
        self._is_resumed = is_resumed
        self._steps: dict[str, IStepContext] = {}
        self._begun: dict[str, float] = {}
        self._held: dict[str, DagsterEvent] = {}

    def of(self, happening: Happening) -> Iterator[DagsterEvent]:
        """Writes the events of a happening, and yields those that Dagster's loop may have at once."""
        match happening:
            case AttemptStarted(node_id, attempt):
                yield self._start(node_id, attempt)
            case LineLogged(node_id, text):
                self._step(node_id).log.info(text)
            case NodeWaits(node_id, waits_for, look_again_at):
                what = json.dumps(dict(waits_for), ensure_ascii=False)
                self._step(node_id).log.info(f"Waits for {what}; looks again at {look_again_at:%Y-%m-%d %H:%M:%S} UTC.")
            case AttemptFailed(node_id, _, error, next_try_at):
                wait_s = max(0, round(next_try_at.timestamp() - time.time()))
                retry = StepRetryData(error=_error(error), seconds_to_wait=wait_s)  # type: ignore[no-untyped-call]
                yield DagsterEvent.step_retry_event(self._step(node_id), retry)
            case NodeEnded(node_id, NodeStatus.SUCCESS):
                yield from self._succeed(happening)
            case NodeEnded(node_id, status, attempt, error):
                self.fail(node_id, error or "", attempt, is_stopped=status is NodeStatus.STOPPED)
            case NodeRetried(node_id, attempt, by_hand):
                self._held.pop(node_id, None)
                self._step(node_id).log.info(f"Attempt {attempt} was asked for{_by(by_hand)}.")
            case NodesSkipped(node_ids):
                yield self.note(f"Skipped, because what they depend on did not succeed: {_listed(node_ids)}")
            case NodesRevived(node_ids):
                yield self.note(f"No longer skipped: {_listed(node_ids)}")
            case _:
                return

    def fail(self, node_id: str, error: str, attempt: int, *, is_stopped: bool = False) -> None:
        """Shows the step in red; the failure is held back from Dagster's loop."""
        source = ErrorSource.INTERRUPT if is_stopped else ErrorSource.FRAMEWORK_ERROR
        failure = StepFailureData(_error(error), None, source)  # type: ignore[no-untyped-call]
        retry = f"POST /api/v1/runs/{self._run_id}/nodes/{node_id}:retry executes it again"
        message = f"Attempt {attempt} of node {node_id} {'was stopped' if is_stopped else 'failed'}: {error} ({retry})"
        self._held[node_id] = DagsterEvent.step_failure_event(self._step(node_id), failure, message)

    def advice(self, failed: Sequence[str]) -> DagsterEvent:
        """Says how the run goes on after these nodes have failed."""
        nodes, node = ("these nodes", "NODE") if len(failed) > 1 else ("it", failed[0])
        return self.note(
            f"Failed: {_listed(failed)}. Mend the cause, then retry {nodes}, and the run goes on from there:"
            f" platform chains retry {self._run_id} {node}. Re-execute would begin a new run of the whole chain."
        )

    def held_failures(self) -> Mapping[str, DagsterEvent]:
        return self._held

    def note(self, message: str, *, marker: str | None = None) -> DagsterEvent:
        """An event of the run as a whole."""
        return DagsterEvent.engine_event(self._context, message, EngineEventData(marker_end=marker))

    def _start(self, node_id: str, attempt: int) -> DagsterEvent:
        is_again = attempt > 1 and (node_id in self._begun or self._is_resumed)
        self._begun[node_id] = time.monotonic()
        step = self._step(node_id)
        return DagsterEvent.step_restarted_event(step, attempt - 1) if is_again else DagsterEvent.step_start_event(step)

    def _succeed(self, ended: NodeEnded) -> Iterator[DagsterEvent]:
        self._held.pop(ended.node_id, None)
        step = self._step(ended.node_id)
        if ended.by_hand is not None:
            if ended.node_id not in self._begun:
                yield self._start(ended.node_id, 1)
            step.log.info(f"Completed by hand{_by(ended.by_hand)}.")
        output = StepOutputData(
            step_output_handle=StepOutputHandle(step.step.key, "result"),
            # The UI shows no log at all if an output has none.
            type_check_data=TypeCheckData(True, "Nothing"),  # type: ignore[no-untyped-call]
            metadata=self._output_metadata(ended),
        )
        message = f"Node {ended.node_id} succeeded in attempt {ended.attempt}."
        yield DagsterEvent.from_step(DagsterEventType.STEP_OUTPUT, step, output, message)
        seconds = time.monotonic() - self._begun.get(ended.node_id, time.monotonic())
        success = StepSuccessData(duration_ms=seconds * 1000)  # type: ignore[no-untyped-call]
        yield DagsterEvent.step_success_event(step, success)

    def _output_metadata(self, ended: NodeEnded) -> dict[str, MetadataValue[Any]]:
        metadata: dict[str, MetadataValue[Any]] = {
            "attempt": MetadataValue.int(ended.attempt),
            "nodes": MetadataValue.text(f"GET /api/v1/runs/{self._run_id}/nodes"),
        }
        if ended.artifact is None:
            return metadata
        text = json.dumps(ended.artifact, ensure_ascii=False)
        if len(text) > LONGEST_ARTIFACT:
            shown: MetadataValue[Any] = MetadataValue.text(f"{len(text)} characters, too long to be shown here")
        elif isinstance(ended.artifact, dict | list):
            shown = MetadataValue.json(ended.artifact)
        else:
            shown = MetadataValue.text(text)
        return metadata | {"artifact": shown}

    def _step(self, node_id: str) -> IStepContext:
        if node_id not in self._steps:
            self._steps[node_id] = self._context.for_step(self._plan.get_step_by_key(self._aliases[node_id]))  # type: ignore[arg-type]
        return self._steps[node_id]


def _error(message: str) -> SerializableErrorInfo:
    """Dagster shows a stack trace where there is none to show; a node has its own words."""
    return SerializableErrorInfo(message=message, stack=[], cls_name=None)


def _by(by_hand: Mapping[str, Any] | None) -> str:
    if not by_hand:
        return ""
    reason = f": {by_hand['reason']}" if by_hand.get("reason") else ""
    return f" by {by_hand.get('actor')}{reason}"


def _listed(node_ids: Iterable[str]) -> str:
    ids = list(node_ids)
    more = f" and {len(ids) - LISTED} more" if len(ids) > LISTED else ""
    return ", ".join(ids[:LISTED]) + more
