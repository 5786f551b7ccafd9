"""Wakes nodes that wait for something outside, and with them the drive that gave its runner slot back meanwhile."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, null, select, update

from platform_defs.chains.states import ENDED_RUNS, NodeStatus, RunStatus
from platform_defs.store.tables.chains import job_run, job_run_drive, job_run_node
from platform_defs.work import rows

# What a node may wait for: the end of a run that it started as its sub-chain. Its key is the id of that run.
RUN = "run"
_WAITS = (job_run_node.c.status == NodeStatus.RUNNING) & job_run_node.c.waits_for.is_not(null())


def wake_waiting(connection: Connection, kind: str, key: str) -> int:
    """Wakes the nodes that wait for this, in the transaction that makes it happen; returns how many.

    The caller wakes the runner after the commit. The key of the end of a run is its run id; anything else is compared
    with the `key` of what nodes wait for.
    """
    if kind == RUN:
        sub_run = select(job_run.c.parent_run_id, job_run.c.parent_node_id).where(job_run.c.run_id == key)
        nodes = [(row.parent_run_id, row.parent_node_id) for row in connection.execute(sub_run) if row.parent_run_id]
    else:
        nodes = [
            (run_id, node_id)
            for run_id, node_id, waits_for in waiting_nodes(connection, kind)
            if waits_for.get("key") == key
        ]
    return wake_nodes(connection, nodes)


def waiting_nodes(connection: Connection, kind: str) -> list[tuple[str, str, Mapping[str, Any]]]:
    """Run, node and what it waits for, of every node that waits for something of this kind."""
    query = (
        select(job_run_node.c.run_id, job_run_node.c.node_id, job_run_node.c.waits_for)
        .join(job_run, job_run.c.run_id == job_run_node.c.run_id)
        .where(job_run.c.status == RunStatus.RUNNING, _WAITS)
    )
    return [(run, node, waits) for run, node, waits in connection.execute(query) if waits.get("kind") == kind]


def wake_nodes(connection: Connection, nodes: Sequence[tuple[str, str]]) -> int:
    """Makes nodes due that wait, given as run and node. Nodes that do not wait stay as they are."""
    woken = 0
    for run_id, node_id in nodes:
        waits = (job_run_node.c.run_id == run_id) & (job_run_node.c.node_id == node_id) & _WAITS
        changed = connection.execute(update(job_run_node).where(waits).values(next_try_at=datetime.now(UTC))).rowcount
        if changed:
            woken += changed
            wake_drive(connection, run_id)
    return woken


def wake_drive(connection: Connection, run_id: str) -> None:
    """Has the drive of this run look at its nodes again: at once if it is at work, else as soon as it has a slot."""
    raised = {"operation_no": job_run.c.operation_no + 1}
    connection.execute(update(job_run).where(job_run.c.run_id == run_id).values(raised))
    drives = select(job_run_drive.c.work_id).where(job_run_drive.c.run_id == run_id)
    rows.hurry(connection, list(connection.execute(drives).scalars()))


def is_over(connection: Connection, waits_for: Mapping[str, Any]) -> bool:
    """Whether what a node is about to wait for has happened already.

    Locks the run that is waited for: its end, which wakes the waiting node, either comes later or is seen here.
    """
    if waits_for.get("kind") != RUN:
        return False
    query = select(job_run.c.status).where(job_run.c.run_id == waits_for.get("runId")).with_for_update()
    status = connection.execute(query).scalar_one_or_none()
    return status is None or RunStatus(status) in ENDED_RUNS
