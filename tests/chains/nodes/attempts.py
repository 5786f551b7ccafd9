"""Attempts of single nodes: a run with its nodes is written, and `perform` is called as a drive does."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, Engine, insert, update

from platform_defs.chains.dag import Node
from platform_defs.chains.nodes.catalogue import node_types
from platform_defs.chains.nodes.checkpoints import write_checkpoint
from platform_defs.chains.nodes.environment import NodeEnvironment
from platform_defs.chains.nodes.execution import perform
from platform_defs.chains.nodes.port import AttemptRequest, NodeExecutor, NodeTypes, Outcome, StopSignal, Waiting
from platform_defs.chains.states import NodeStatus
from platform_defs.store.engine import transact
from platform_defs.store.tables.chains import job_run, job_run_node


@dataclass
class Bench:
    """A run with a node `n` under way; `above` are nodes that have succeeded, with their artifacts."""

    engine: Engine
    types: NodeTypes
    run_id: str = field(default_factory=lambda: uuid4().hex)
    lines: list[str] = field(default_factory=list)
    stop: StopSignal = field(default_factory=StopSignal)
    attempt: int = 1
    log: Callable[[str], None] | None = None

    def begin(self, above: Mapping[str, Any] | None = None, depth: int = 0) -> None:
        def write(connection: Connection) -> None:
            connection.execute(
                insert(job_run).values(run_id=self.run_id, job_name="t", status="RUNNING", dag_json={}, depth=depth)
            )
            rows = [{"node_id": "n", "status": NodeStatus.RUNNING, "attempt": 1, "artifact_json": None}]
            rows += [
                {"node_id": name, "status": NodeStatus.SUCCESS, "attempt": 1, "artifact_json": artifact}
                for name, artifact in (above or {}).items()
            ]
            connection.execute(insert(job_run_node), [{"run_id": self.run_id, "drive_no": 1, **row} for row in rows])

        transact(self.engine, write)

    def next_attempt(self) -> None:
        self.attempt += 1
        self.set_node(attempt=self.attempt)

    def set_node(self, **values: Any) -> None:
        node = (job_run_node.c.run_id == self.run_id) & (job_run_node.c.node_id == "n")
        transact(self.engine, lambda connection: connection.execute(update(job_run_node).where(node).values(**values)))

    def perform(
        self,
        type_name: str,
        cfg: Mapping[str, Any],
        params: Mapping[str, Any] | None = None,
        *,
        depth: int = 0,
        timeout_s: float | None = None,
    ) -> Outcome:
        request = AttemptRequest(
            run_id=self.run_id,
            node=Node("n", type_name, cfg=cfg, timeout_s=timeout_s),
            attempt=self.attempt,
            drive_no=1,
            params=params or {},
            depth=depth,
            stop=self.stop,
            log=self.log or self.lines.append,
        )
        outcome = perform(self.engine, self.types, request)
        if outcome.checkpoint is not None:
            transact(self.engine, lambda connection: write_checkpoint(connection, self.run_id, "n", outcome.checkpoint))
        return outcome

    def artifact(self, type_name: str, cfg: Mapping[str, Any], params: Mapping[str, Any] | None = None) -> Any:
        outcome = self.perform(type_name, cfg, params)
        assert not isinstance(outcome, Waiting)
        return outcome.artifact


def open_bench(
    engine: Engine,
    environment: NodeEnvironment | None = None,
    *extra: NodeExecutor,
    above: Mapping[str, Any] | None = None,
) -> Bench:
    types = node_types(
        {executor.name: executor for executor in extra}, environment=environment or NodeEnvironment(engine)
    )
    bench = Bench(engine, types)
    bench.begin(above)
    return bench
