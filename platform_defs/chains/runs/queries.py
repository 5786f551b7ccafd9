"""Reads runs and their nodes for people: one run, its nodes, its Dagster runs, and the newest runs."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Engine, Row, select

from platform_defs.chains.runs.operations import unknown_run
from platform_defs.chains.states import NodeStatus
from platform_defs.store.engine import read
from platform_defs.store.tables.chains import job_run, job_run_drive, job_run_node

PAGE = 20
MAX_PAGE = 1000


def get_run(engine: Engine, run_id: str) -> Row[Any]:
    found = read(engine, lambda connection: connection.execute(_run(run_id)).one_or_none())
    if found is None:
        raise unknown_run(run_id)
    return found


def list_nodes(engine: Engine, run_id: str) -> Sequence[Row[Any]]:
    """All nodes of a run by their ids."""
    query = select(job_run_node).where(job_run_node.c.run_id == run_id).order_by(job_run_node.c.node_id)

    def look(connection: Connection) -> Sequence[Row[Any]]:
        if connection.execute(select(job_run.c.run_id).where(job_run.c.run_id == run_id)).first() is None:
            raise unknown_run(run_id)
        return connection.execute(query).all()

    return read(engine, look)


def list_drives(engine: Engine, run_id: str) -> Sequence[Row[Any]]:
    """The drives of a run, each with its Dagster run, the oldest first."""
    query = select(job_run_drive).where(job_run_drive.c.run_id == run_id).order_by(job_run_drive.c.drive_no)
    return read(engine, lambda connection: connection.execute(query).all())


def list_runs(
    engine: Engine, *, chain_id: str | None = None, status: str | None = None, limit: int = PAGE
) -> Sequence[Row[Any]]:
    """The newest runs, without their snapshots."""
    columns = [column for column in job_run.columns if column.name != "dag_json"]
    query = select(*columns).order_by(job_run.c.created_at.desc(), job_run.c.run_id).limit(limit)
    if chain_id is not None:
        query = query.where(job_run.c.chain_id == chain_id)
    if status is not None:
        query = query.where(job_run.c.status == status)
    return read(engine, lambda connection: connection.execute(query).all())


def errors_of_nodes(engine: Engine, run_ids: Sequence[str]) -> dict[str, dict[str, str]]:
    """By run, the errors of its failed nodes by their ids."""
    node = job_run_node.c
    query = (
        select(node.run_id, node.node_id, node.last_error)
        .where(node.run_id.in_(run_ids), node.status == NodeStatus.FAILED)
        .order_by(node.node_id)
    )
    found: dict[str, dict[str, str]] = {run_id: {} for run_id in run_ids}
    for run_id, node_id, error in read(engine, lambda connection: connection.execute(query).all()):
        found[run_id][node_id] = error or "failed"
    return found


def _run(run_id: str) -> Any:
    return select(job_run).where(job_run.c.run_id == run_id)
