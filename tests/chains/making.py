"""Chains, jobs and runs as tests make them, and a look at their rows."""

from typing import Any

from sqlalchemy import Engine, select, update

from platform_defs.chains.definitions import Chain, create_chain
from platform_defs.chains.nodes.port import NodeTypes
from platform_defs.chains.runs.starting import start_chain
from platform_defs.chains.states import NodeStatus, RunStatus
from platform_defs.store.tables.chains import job_audit, job_run, job_run_node

ACTOR = "tester"


def node(node_id: str, *above: str, **fields: Any) -> dict[str, Any]:
    return {"id": node_id, "type": "print", "dependsOn": list(above), "cfg": {"message": node_id}, **fields}


def dag(*nodes: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"nodes": list(nodes), **fields}


LINE = dag(node("a"), node("b", "a"), node("c", "b"))
DIAMOND = dag(node("a"), node("b", "a"), node("c", "a"), node("d", "b", "c"))


def make_chain(engine: Engine, types: NodeTypes, content: Any = LINE, name: str = "nightly", **fields: Any) -> Chain:
    return create_chain(engine, types, name=name, description=None, dag_json=content, actor=ACTOR, **fields)


def start(engine: Engine, chain: Chain, **fields: Any) -> str:
    return start_chain(engine, chain.chain_id, actor=ACTOR, trigger="test", **fields).run_id


def run_row(engine: Engine, run_id: str) -> Any:
    with engine.connect() as connection:
        return connection.execute(select(job_run).where(job_run.c.run_id == run_id)).one()


def node_rows(engine: Engine, run_id: str) -> dict[str, Any]:
    with engine.connect() as connection:
        found = connection.execute(select(job_run_node).where(job_run_node.c.run_id == run_id))
        return {row.node_id: row for row in found}


def statuses(engine: Engine, run_id: str) -> dict[str, str]:
    return {node_id: row.status for node_id, row in node_rows(engine, run_id).items()}


def audit_rows(engine: Engine) -> list[Any]:
    with engine.connect() as connection:
        return list(connection.execute(select(job_audit).order_by(job_audit.c.id)))


def put(engine: Engine, run_id: str, status: RunStatus | None = None, **nodes: NodeStatus) -> None:
    """Sets rows as a drive would have left them, for tests of what people then do to them."""
    with engine.begin() as connection:
        if status is not None:
            connection.execute(update(job_run).where(job_run.c.run_id == run_id).values(status=status))
        for node_id, node_status in nodes.items():
            of_node = (job_run_node.c.run_id == run_id) & (job_run_node.c.node_id == node_id)
            connection.execute(update(job_run_node).where(of_node).values(status=node_status, attempt=1, tries=1))
