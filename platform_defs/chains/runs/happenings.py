"""What a drive reports while it executes a run, in the order in which it happened. Dagster's view is made from it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

from platform_defs.chains.states import NodeStatus, RunStatus


@dataclass(frozen=True)
class AttemptStarted:
    node_id: str
    attempt: int


@dataclass(frozen=True)
class LineLogged:
    """A line that a node wrote into its log."""

    node_id: str
    text: str


@dataclass(frozen=True)
class NodeWaits:
    """The attempt goes on, without a thread or a process, when what it waits for has happened."""

    node_id: str
    waits_for: Mapping[str, Any]
    look_again_at: datetime


@dataclass(frozen=True)
class AttemptFailed:
    """An attempt failed, and another one follows by itself."""

    node_id: str
    attempt: int
    error: str
    next_try_at: datetime


@dataclass(frozen=True)
class NodeEnded:
    """A node is SUCCESS, FAILED or STOPPED. `by_hand` holds what an operator did, if that is what ended it."""

    node_id: str
    status: NodeStatus
    attempt: int
    error: str | None = None
    artifact: Any = None
    by_hand: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class NodeRetried:
    """An operator asked for another attempt of a node that had ended."""

    node_id: str
    attempt: int
    by_hand: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class NodesSkipped:
    node_ids: tuple[str, ...]


@dataclass(frozen=True)
class NodesRevived:
    """Nodes that were SKIPPED can run again, because the node that blocked them was retried or completed."""

    node_ids: tuple[str, ...]


@dataclass(frozen=True)
class DatabaseAway:
    """The database does not answer. Attempts go on, and their results are written when it is back."""

    error: str


@dataclass(frozen=True)
class RunEnded:
    """The last of a drive: the run is over."""

    status: RunStatus


@dataclass(frozen=True)
class Parked:
    """The last of a drive for now: every active node waits. The same drive goes on at `until`, or when woken."""

    until: datetime
    waits_for: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class Interrupted:
    """The last of a drive: its process was told to end, which says nothing about the run. Another drive goes on."""


@dataclass(frozen=True)
class Superseded:
    """The last of a drive: the run is over already, or another drive executes it."""


DriveEnd: TypeAlias = RunEnded | Parked | Interrupted | Superseded
Happening: TypeAlias = (
    AttemptStarted
    | LineLogged
    | NodeWaits
    | AttemptFailed
    | NodeEnded
    | NodeRetried
    | NodesSkipped
    | NodesRevived
    | DatabaseAway
    | DriveEnd
)
