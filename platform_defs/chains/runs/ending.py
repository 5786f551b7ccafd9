"""The end of a run. Every function is called in a transaction that has locked the run."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from sqlalchemy import Connection, select, update

from platform_defs.chains.dag import Dag
from platform_defs.chains.runs import node_rows, waking
from platform_defs.chains.runs.node_rows import NodeRow
from platform_defs.chains.states import ENDED_RUNS, NodeStatus, RunStatus, next_steps, stopped_nodes
from platform_defs.store.tables.chains import job_run

_OPEN = job_run.c.status.not_in(sorted(ENDED_RUNS))


def end_run(connection: Connection, run_id: str, status: RunStatus, now: datetime, error: str | None = None) -> None:
    """Writes how the run ended, and wakes the node of another run that waits for it."""
    values = {"status": status, "ended_at": now, "error": error}
    connection.execute(update(job_run).where(job_run.c.run_id == run_id, _OPEN).values(values))
    waking.wake_waiting(connection, waking.RUN, run_id)


def end_stopped(
    connection: Connection, run_id: str, dag: Dag, nodes: Mapping[str, NodeRow], now: datetime, reason: str
) -> dict[str, NodeRow]:
    """Ends a run that was stopped: what ran or could have begun is STOPPED, what is below is SKIPPED.

    Returns the nodes that changed, as they are now.
    """
    changed = _end_nodes(connection, run_id, dag, nodes, NodeStatus.STOPPED, now, reason)
    end_run(connection, run_id, RunStatus.STOPPED, now)
    stop_sub_runs(connection, run_id, None, reason)
    return changed


def end_failed(
    connection: Connection, run_id: str, dag: Dag, nodes: Mapping[str, NodeRow], now: datetime, error: str
) -> None:
    """Ends a run that no process can execute. Its next nodes are FAILED, so that they can be retried."""
    _end_nodes(connection, run_id, dag, nodes, NodeStatus.FAILED, now, error)
    end_run(connection, run_id, RunStatus.FAILED, now, error)
    stop_sub_runs(connection, run_id, None, error)


def stop_sub_runs(connection: Connection, run_id: str, node_id: str | None, reason: str) -> None:
    """Stops the runs that this run, or one node of it, started as sub-chains and that have not ended."""
    mine = job_run.c.parent_run_id == run_id
    if node_id is not None:
        mine &= job_run.c.parent_node_id == node_id
    open_runs = select(job_run.c.run_id).where(mine, job_run.c.status.in_([RunStatus.PENDING, RunStatus.RUNNING]))
    for sub_run in connection.execute(open_runs).scalars().all():
        stopping = {"status": RunStatus.STOPPING, "stop_requested_by": f"run {run_id}: {reason}"[:255]}
        connection.execute(update(job_run).where(job_run.c.run_id == sub_run, _OPEN).values(stopping))
        waking.wake_drive(connection, sub_run)


def _end_nodes(
    connection: Connection,
    run_id: str,
    dag: Dag,
    nodes: Mapping[str, NodeRow],
    status: NodeStatus,
    now: datetime,
    error: str,
) -> dict[str, NodeRow]:
    changed: dict[str, NodeRow] = {}
    for node_id in stopped_nodes(dag, {name: row.status for name, row in nodes.items()}):
        row = nodes[node_id]
        values = {"status": status, "ended_at": now, "last_error": error, "waits_for": None, "next_try_at": None}
        if node_rows.change(connection, run_id, row, values):
            changed[node_id] = replace(row, status=status, waits_for=None, next_try_at=None)
    below = next_steps(dag, {name: row.status for name, row in {**nodes, **changed}.items()}).skip
    node_rows.move(connection, run_id, below, NodeStatus.PENDING, NodeStatus.SKIPPED)
    for node_id in below:
        changed[node_id] = replace(nodes[node_id], status=NodeStatus.SKIPPED)
    return changed
