"""Writes of a run as a whole: nodes that are skipped, revived or stopped, and the run's end. The caller locks the run.

Used by the operations of people and by the process that drives a run, so that both leave the same rows behind.
"""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, select, update

from platform_defs.chains.dag import Dag
from platform_defs.chains.runs import waking
from platform_defs.chains.states import NextSteps, NodeStatus, RunStatus, next_steps, stopped_nodes
from platform_defs.store.chunks import chunks
from platform_defs.store.tables.chains import job_run, job_run_node

_NODES_PER_STATEMENT = 500


def node_statuses(connection: Connection, run_id: str) -> dict[str, NodeStatus]:
    query = select(job_run_node.c.node_id, job_run_node.c.status).where(job_run_node.c.run_id == run_id)
    return {node_id: NodeStatus(status) for node_id, status in connection.execute(query)}


def skip_and_revive(
    connection: Connection, run_id: str, dag: Dag, statuses: Mapping[str, NodeStatus]
) -> tuple[NextSteps, dict[str, NodeStatus]]:
    """Writes which nodes are skipped and which come back; returns what can run then, and the statuses afterwards."""
    steps = next_steps(dag, statuses)
    set_statuses(connection, run_id, steps.skip, NodeStatus.PENDING, NodeStatus.SKIPPED)
    set_statuses(connection, run_id, steps.revive, NodeStatus.SKIPPED, NodeStatus.PENDING)
    after = {**statuses, **dict.fromkeys(steps.skip, NodeStatus.SKIPPED)}
    return steps, {**after, **dict.fromkeys(steps.revive, NodeStatus.PENDING)}


def stop_nodes(
    connection: Connection,
    run_id: str,
    dag: Dag,
    statuses: Mapping[str, NodeStatus],
    *,
    reason: str,
    at: datetime,
    becomes: NodeStatus = NodeStatus.STOPPED,
) -> None:
    """Ends what runs, is retried or could have begun as STOPPED, or as FAILED, and skips what is below."""
    stopped = stopped_nodes(dag, statuses)
    values = {"status": becomes, "last_error": reason, "ended_at": at, "waits_for": None}
    active = [NodeStatus.PENDING, NodeStatus.RUNNING, NodeStatus.RETRYING]
    for some in chunks(stopped, _NODES_PER_STATEMENT):
        _update_nodes(connection, run_id, some, active, {**values, "next_try_at": None})
    skip_and_revive(connection, run_id, dag, {**statuses, **dict.fromkeys(stopped, becomes)})


def end_run(connection: Connection, run_id: str, outcome: RunStatus, *, at: datetime, error: str | None = None) -> None:
    """Writes the end of a run, and wakes the node of another run that waits for it."""
    values = {"status": outcome, "ended_at": at, "error": error}
    connection.execute(update(job_run).where(job_run.c.run_id == run_id).values(values))
    waking.wake_waiting(connection, waking.RUN, run_id)


def set_statuses(
    connection: Connection, run_id: str, node_ids: Collection[str], present: NodeStatus, new: NodeStatus
) -> None:
    """Gives the nodes that still have the present status the new one."""
    for some in chunks(node_ids, _NODES_PER_STATEMENT):
        _update_nodes(connection, run_id, some, [present], {"status": new})


def _update_nodes(
    connection: Connection,
    run_id: str,
    node_ids: Collection[str],
    present: Collection[NodeStatus],
    values: Mapping[str, Any],
) -> None:
    wanted = (
        (job_run_node.c.run_id == run_id) & job_run_node.c.node_id.in_(node_ids) & job_run_node.c.status.in_(present)
    )
    connection.execute(update(job_run_node).where(wanted).values(values))
