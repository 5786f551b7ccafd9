"""Checkpoints of nodes: what an attempt has saved for itself and for later attempts of the same node."""

from typing import Any

from sqlalchemy import Connection, Engine, delete, select

from platform_defs.chains.nodes.port import NodeStopped
from platform_defs.chains.states import NodeStatus
from platform_defs.store.engine import transact
from platform_defs.store.tables.chains import job_run_checkpoint, job_run_node
from platform_defs.store.upsert import upsert


def read_checkpoint(connection: Connection, run_id: str, node_id: str) -> Any:
    """None if nothing was saved."""
    query = select(job_run_checkpoint.c.checkpoint_json).where(
        job_run_checkpoint.c.run_id == run_id, job_run_checkpoint.c.node_id == node_id
    )
    return connection.execute(query).scalar_one_or_none()


def write_checkpoint(connection: Connection, run_id: str, node_id: str, value: Any) -> None:
    """Replaces the checkpoint in the caller's transaction, which knows that the attempt still counts."""
    row = {"run_id": run_id, "node_id": node_id, "checkpoint_json": value}
    upsert(connection, job_run_checkpoint, [row], key=["run_id", "node_id"])


def clear_checkpoint(connection: Connection, run_id: str, node_id: str) -> None:
    connection.execute(
        delete(job_run_checkpoint).where(job_run_checkpoint.c.run_id == run_id, job_run_checkpoint.c.node_id == node_id)
    )


def save_checkpoint(engine: Engine, run_id: str, node_id: str, attempt: int, drive_no: int, value: Any) -> None:
    """Saves while the attempt is under way. Raises NodeStopped if it no longer counts: nothing is written then."""

    def save(connection: Connection) -> None:
        require_current_attempt(connection, run_id, node_id, attempt, drive_no)
        if value is None:
            clear_checkpoint(connection, run_id, node_id)
        else:
            write_checkpoint(connection, run_id, node_id, value)

    transact(engine, save)


def require_current_attempt(connection: Connection, run_id: str, node_id: str, attempt: int, drive_no: int) -> None:
    """Locks the node's row. Raises NodeStopped if somebody completed the node or another drive took it over."""
    query = select(job_run_node.c.node_id).where(
        job_run_node.c.run_id == run_id,
        job_run_node.c.node_id == node_id,
        job_run_node.c.status == NodeStatus.RUNNING,
        job_run_node.c.attempt == attempt,
        job_run_node.c.drive_no == drive_no,
    )
    if connection.execute(query.with_for_update()).one_or_none() is None:
        raise NodeStopped(f"attempt {attempt} of node {node_id} no longer counts: it was completed or taken over")
