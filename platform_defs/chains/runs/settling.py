"""Decides what becomes of a node when its attempt has ended, and what an interruption leaves of it. Without I/O."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from platform_defs.chains.dag import Node
from platform_defs.chains.nodes.port import NodeResult, Outcome, Waiting
from platform_defs.chains.runs.attempts import Failure
from platform_defs.chains.runs.happenings import AttemptFailed, Happening, NodeEnded, NodeWaits
from platform_defs.chains.runs.node_rows import NodeRow
from platform_defs.chains.states import NodeStatus

# A node during which the process died this often is at fault itself.
MOST_DEATHS = 3


@dataclass(frozen=True)
class Settled:
    """New values of the node's row, a checkpoint to save with them, and what to report. No values: nothing changes."""

    values: Mapping[str, Any]
    happening: Happening | None = None
    checkpoint: Any = None


def settle(node: Node, row: NodeRow, result: Outcome | Failure, now: datetime) -> Settled:
    """What an attempt leaves of its node: success, another wait, another try after the pause of its policy, failure."""
    match result:
        case NodeResult(artifact, checkpoint):
            values = _ended(NodeStatus.SUCCESS, now) | {"artifact_json": artifact}
            happening = NodeEnded(node.id, NodeStatus.SUCCESS, row.attempt, artifact=artifact)
            return Settled(values, happening, checkpoint)
        case Waiting(waits_for, look_again_at, checkpoint):
            waiting = {"waits_for": dict(waits_for), "next_try_at": look_again_at}
            return Settled(waiting, NodeWaits(node.id, waits_for, look_again_at), checkpoint)
        case Failure(error, may_retry, stopped):
            if stopped:
                return Settled({})
            if may_retry and row.tries < node.retry.max_attempts:
                next_try_at = now + timedelta(seconds=node.retry.delay_s(row.tries))
                values = again(row, next_try_at) | {"last_error": error, "ended_at": now}
                return Settled(values, AttemptFailed(node.id, row.attempt, error, next_try_at))
            return Settled(
                _ended(NodeStatus.FAILED, now) | {"last_error": error},
                NodeEnded(node.id, NodeStatus.FAILED, row.attempt, error=error),
            )


def again(row: NodeRow, next_try_at: datetime) -> dict[str, Any]:
    """The next attempt of the node is due at this time."""
    return {
        "status": NodeStatus.RETRYING,
        "attempt": row.attempt + 1,
        "next_try_at": next_try_at,
        "waits_for": None,
    }


def interrupted(row: NodeRow, now: datetime) -> dict[str, Any]:
    """The process was told to end: the next attempt is due at once, and the present one is not counted as a try."""
    return again(row, now) | {"tries": max(0, row.tries - 1), "last_error": "the platform was stopped"}


def died(row: NodeRow, now: datetime) -> Settled:
    """The process died while the node ran. That is not counted as a try either, but it must not go on for ever."""
    deaths = row.deaths + 1
    if deaths < MOST_DEATHS:
        values = again(row, now) | {"tries": max(0, row.tries - 1), "deaths": deaths}
        return Settled(values | {"last_error": "the process died while this node ran"})
    error = f"the process died {deaths} times while this node ran"
    values = _ended(NodeStatus.FAILED, now) | {"deaths": deaths, "last_error": error}
    return Settled(values, NodeEnded(row.node_id, NodeStatus.FAILED, row.attempt, error=error))


def _ended(status: NodeStatus, now: datetime) -> dict[str, Any]:
    return {"status": status, "ended_at": now, "waits_for": None, "next_try_at": None}
