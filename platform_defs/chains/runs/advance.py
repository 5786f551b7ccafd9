"""One transaction of a drive: writes results, decides what follows from them, and begins the attempts that are due."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from platform_defs.chains.dag import Node
from platform_defs.chains.nodes.checkpoints import write_checkpoint
from platform_defs.chains.nodes.port import NodeResult, Outcome, Waiting
from platform_defs.chains.runs import settling, waking
from platform_defs.chains.runs.attempts import Failure, Finished, timeout_of
from platform_defs.chains.runs.board import Board, Draft, deadline_of
from platform_defs.chains.runs.happenings import (
    AttemptStarted,
    NodeEnded,
    NodeRetried,
    NodesRevived,
    NodesSkipped,
)
from platform_defs.chains.runs.node_rows import NodeRow
from platform_defs.chains.runs.operations import stop_sub_runs
from platform_defs.chains.states import NodeStatus, next_steps

# Who stops a sub-run whose node has used up its time.
PLATFORM = "platform"


@dataclass(frozen=True)
class Step:
    """What a step is given. `free` is how many attempts may begin; `reload`: somebody else may have changed nodes."""

    run_id: str
    drive_no: int
    now: datetime
    results: Sequence[Finished]
    free: int
    reload: bool
    # The process was told to end: attempts that were interrupted are due again.
    is_leaving: bool = False


def advance(connection: Connection, board: Board, step: Step) -> Draft:
    """Writes everything that follows from the step. The caller takes over the draft once it is committed.

    It may be repeated with the same board and step after a commit whose answer was lost, and gives the same draft.
    """
    draft = Draft(board, step.run_id, connection, reload=step.reload)
    if step.reload:
        _note_operations(draft)
    for finished in step.results:
        _settle(draft, step, finished.attempt.node.id, finished.attempt.number, finished.result)
    if step.free > 0:
        if draft.is_stale:
            _find_ready(draft)
        _start_due(draft, step)
    return draft


def _note_operations(draft: Draft) -> None:
    """Reports what operators did to nodes."""
    for node_id, before in draft.board.nodes.items():
        row = draft.row(node_id)
        if (row.status, row.attempt) == (before.status, before.attempt):
            continue
        by_hand = row.operations[-1] if row.operations else None
        if row.status is NodeStatus.SUCCESS:
            draft.happenings.append(NodeEnded(node_id, row.status, row.attempt, by_hand=by_hand))
        elif row.status is NodeStatus.RETRYING:
            draft.happenings.append(NodeRetried(node_id, row.attempt, by_hand))


def _settle(draft: Draft, step: Step, node_id: str, attempt: int, result: Outcome | Failure) -> None:
    """Writes the result of an attempt, unless somebody else has changed the node meanwhile."""
    row = draft.row(node_id)
    if row.status is not NodeStatus.RUNNING or row.attempt != attempt or row.drive_no != step.drive_no:
        return  # An operator completed the node meanwhile: this result comes too late.
    node = draft.board.dag.by_id[node_id]
    if isinstance(result, Waiting) and _is_overdue(node, row, step.now):
        result = timeout_of(node)
    settled = settling.settle(node, row, result, step.now)
    values = dict(settled.values)
    if step.is_leaving and not values:
        values = settling.interrupted(row, step.now)
    elif values.get("waits_for") is not None and waking.is_over(draft.connection, values["waits_for"]):
        values["next_try_at"] = step.now
    if not values or not draft.write(row, values):
        return
    if settled.checkpoint is not None:
        write_checkpoint(draft.connection, draft.run_id, node_id, settled.checkpoint)
    if settled.happening is not None:
        draft.happenings.append(settled.happening)
    if isinstance(result, NodeResult):
        draft.add_ready_below(node_id)
    elif values.get("status") is NodeStatus.FAILED:
        draft.is_stale = True
    if isinstance(result, Failure) and result.timed_out:
        reason = f"node {node_id} {result.error}"
        stop_sub_runs(draft.connection, draft.run_id, node_id, actor=PLATFORM, reason=reason)


def _is_overdue(node: Node, row: NodeRow, now: datetime) -> bool:
    """Whether a node that would go on waiting has used up its time.

    It is asked only after a look: what a node waits for may have happened in time although nobody has looked since,
    because the platform was down or no slot was free.
    """
    deadline = deadline_of(node, row.started_at)
    return deadline is not None and deadline <= now


def _find_ready(draft: Draft) -> None:
    steps = next_steps(draft.board.dag, draft.statuses())
    draft.move(steps.skip, NodeStatus.PENDING, NodeStatus.SKIPPED)
    draft.move(steps.revive, NodeStatus.SKIPPED, NodeStatus.PENDING)
    draft.happenings += [NodesSkipped(steps.skip)] if steps.skip else []
    draft.happenings += [NodesRevived(steps.revive)] if steps.revive else []
    draft.ready, draft.is_stale = list(steps.ready), False


def _start_due(draft: Draft, step: Step) -> None:
    """Begins what is due: nodes that are active first, then new ones."""
    due = [row.node_id for row in draft.idle_rows() if draft.board.due_at(row, step.now) <= step.now]
    chosen = (due + draft.ready)[: step.free]
    for row in [draft.row(node_id) for node_id in chosen]:
        values: dict[str, Any] = {"waits_for": None, "next_try_at": None}
        if not row.is_waiting:
            values |= {
                "status": NodeStatus.RUNNING,
                "attempt": row.attempt + 1 if row.status is NodeStatus.PENDING else row.attempt,
                "tries": row.tries + 1,
                "drive_no": step.drive_no,
                "started_at": step.now,
                "ended_at": None,
            }
        if not draft.write(row, values):
            continue
        begun = draft.row(row.node_id)
        draft.started.append(begun)
        if not row.is_waiting:
            draft.happenings.append(AttemptStarted(begun.node_id, begun.attempt))
    draft.ready = [node_id for node_id in draft.ready if node_id not in set(chosen)]
