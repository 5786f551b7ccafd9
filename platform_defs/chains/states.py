"""The state machine of runs and nodes: what may run next, what is skipped, and how a run ends. Decides without I/O."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from platform_defs.chains.dag import Dag


class NodeStatus(StrEnum):
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUCCESS = "SUCCESS"
    FAILED = "FAILED"
    RETRYING = "RETRYING"
    SKIPPED = "SKIPPED"
    STOPPED = "STOPPED"


class RunStatus(StrEnum):
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUCCESS = "SUCCESS"
    FAILED = "FAILED"
    STOPPING = "STOPPING"
    STOPPED = "STOPPED"

    @property
    def is_ended(self) -> bool:
        return self in ENDED_RUNS


ENDED_RUNS = frozenset({RunStatus.SUCCESS, RunStatus.FAILED, RunStatus.STOPPED})
# What is below a node in one of these states cannot run: it is skipped until an operator retries or completes the node.
BLOCKING = frozenset({NodeStatus.FAILED, NodeStatus.STOPPED, NodeStatus.SKIPPED})
# An attempt is under way, or due as soon as its time has come.
ACTIVE = frozenset({NodeStatus.RUNNING, NodeStatus.RETRYING})

RETRYABLE = frozenset({NodeStatus.FAILED, NodeStatus.STOPPED})
COMPLETABLE = frozenset({NodeStatus.FAILED, NodeStatus.STOPPED, NodeStatus.RUNNING, NodeStatus.RETRYING})


@dataclass(frozen=True)
class NextSteps:
    """What follows from the present states of the nodes.

    `ready` holds PENDING nodes all of whose dependencies have succeeded. `skip` and `revive` hold nodes that must
    become SKIPPED, and SKIPPED nodes that must become PENDING again. `outcome` is how the run ends, None while a node
    runs or can run.
    """

    ready: tuple[str, ...]
    skip: tuple[str, ...]
    revive: tuple[str, ...]
    outcome: RunStatus | None


def next_steps(dag: Dag, statuses: Mapping[str, NodeStatus]) -> NextSteps:
    """Looks at the nodes in the order of their dependencies, so that what one node decides holds for those below it."""
    present = dict(statuses)
    ready: list[str] = []
    skip: list[str] = []
    revive: list[str] = []
    for node in dag.in_order:
        status = present[node.id]
        if status not in (NodeStatus.PENDING, NodeStatus.SKIPPED):
            continue
        above = {present[dependency] for dependency in node.depends_on}
        if above & BLOCKING:
            if status is NodeStatus.PENDING:
                skip.append(node.id)
            present[node.id] = NodeStatus.SKIPPED
            continue
        if status is NodeStatus.SKIPPED:
            revive.append(node.id)
            present[node.id] = NodeStatus.PENDING
        if above <= {NodeStatus.SUCCESS}:
            ready.append(node.id)
    return NextSteps(tuple(ready), tuple(skip), tuple(revive), _outcome(set(present.values())))


def _outcome(statuses: set[NodeStatus]) -> RunStatus | None:
    """A PENDING node can always run in the end: what blocks it would have made it SKIPPED."""
    if statuses & (ACTIVE | {NodeStatus.PENDING}):
        return None
    if NodeStatus.FAILED in statuses:
        return RunStatus.FAILED
    return RunStatus.STOPPED if NodeStatus.STOPPED in statuses else RunStatus.SUCCESS


def stopped_nodes(dag: Dag, statuses: Mapping[str, NodeStatus]) -> tuple[str, ...]:
    """The nodes that a stop ends: those that run, are retried, or could have begun. What is below them is skipped."""
    ready = set(next_steps(dag, statuses).ready)
    return tuple(node.id for node in dag.in_order if statuses[node.id] in ACTIVE or node.id in ready)
