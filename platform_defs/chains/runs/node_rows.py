"""The rows of a run's nodes: read as a whole, changed one attempt at a time and only if nobody was faster."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, select, update

from platform_defs.chains.states import NodeStatus
from platform_defs.store.tables.chains import job_run_node

_COLUMNS = (
    job_run_node.c.node_id,
    job_run_node.c.status,
    job_run_node.c.attempt,
    job_run_node.c.tries,
    job_run_node.c.deaths,
    job_run_node.c.drive_no,
    job_run_node.c.next_try_at,
    job_run_node.c.waits_for,
    job_run_node.c.started_at,
    job_run_node.c.operations,
)

_COMPARED = frozenset({"status", "attempt", "drive_no", "next_try_at", "started_at", "ended_at"})


@dataclass(frozen=True)
class NodeRow:
    """A node of a run as it was when it was read or last written by this process."""

    node_id: str
    status: NodeStatus
    attempt: int = 0
    tries: int = 0
    deaths: int = 0
    drive_no: int | None = None
    next_try_at: datetime | None = None
    waits_for: Mapping[str, Any] | None = None
    started_at: datetime | None = None
    operations: tuple[Mapping[str, Any], ...] = ()

    @property
    def is_waiting(self) -> bool:
        """Whether the present attempt waits for something outside, without a thread or a process."""
        return self.status is NodeStatus.RUNNING and self.waits_for is not None

    @property
    def is_idle(self) -> bool:
        """Whether the node is active, but no thread executes it."""
        return self.is_waiting or self.status is NodeStatus.RETRYING


def load_nodes(connection: Connection, run_id: str) -> dict[str, NodeRow]:
    query = select(*_COLUMNS).where(job_run_node.c.run_id == run_id)
    return {
        row.node_id: NodeRow(**{**row._mapping, "status": NodeStatus(row.status), "operations": row.operations or ()})
        for row in connection.execute(query)
    }


def change(connection: Connection, run_id: str, row: NodeRow, values: Mapping[str, Any]) -> bool:
    """Changes the node if its status, attempt and drive are still those of `row`. Returns False if they are not."""
    unchanged = (
        (job_run_node.c.run_id == run_id)
        & (job_run_node.c.node_id == row.node_id)
        & (job_run_node.c.status == row.status)
        & (job_run_node.c.attempt == row.attempt)
    )
    if row.status is NodeStatus.RUNNING:
        unchanged &= job_run_node.c.drive_no == row.drive_no
    return connection.execute(update(job_run_node).where(unchanged).values(dict(values))).rowcount == 1


def has_values(connection: Connection, run_id: str, node_id: str, values: Mapping[str, Any]) -> bool:
    """Whether the node is as a drive wrote it before: the answer to a commit was lost, and the transaction is repeated.

    What a drive writes has the time of its step in it, to the microsecond, so that nobody else writes the same.
    """
    table = job_run_node.c
    same = [table[name] == value for name, value in values.items() if name in _COMPARED]
    found = connection.execute(select(table.node_id).where(table.run_id == run_id, table.node_id == node_id, *same))
    return found.first() is not None
