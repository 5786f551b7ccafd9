"""The node type `chain`: starts another chain as a sub-run, and waits for its end without a process."""

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import Field
from sqlalchemy import Connection, select

from platform_defs.chains.dag import parse_snapshot
from platform_defs.chains.errors import ChainsError
from platform_defs.chains.nodes.cfg import NodeCfg
from platform_defs.chains.nodes.environment import NodeEnvironment
from platform_defs.chains.nodes.patience import patiently
from platform_defs.chains.nodes.port import NodeContext, NodeFailed, NodeResult, NodeStopped, Outcome, Waiting
from platform_defs.chains.states import RunStatus
from platform_defs.store.engine import read, transact
from platform_defs.store.tables.chains import job_run, job_run_node

MOST_DEEP = 10
# The end of the sub-run wakes the node; this is for a wake-up that got lost.
LOOK_AGAIN = timedelta(seconds=60)


class ChainCfg(NodeCfg):
    """Starts another chain and waits for its end. The artifact has the artifacts of the sub-run's last nodes.

    Chains may be nested 10 deep. If the run is stopped, the sub-run is stopped too. A retry starts a new sub-run,
    unless the present one still runs or an operator has brought it to SUCCESS meanwhile.
    """

    chain: str = Field(min_length=1, max_length=128, description="The id or the name of the chain.")
    params: dict[str, Any] = Field({}, description="The parameters of the sub-run.")


class ChainExecutor:
    name = "chain"
    cfg_model = ChainCfg

    def __init__(self, environment: NodeEnvironment | None) -> None:
        self._environment = environment

    def execute(self, context: NodeContext, cfg: ChainCfg) -> Outcome:
        environment = self._environment
        if environment is None or environment.start_sub_run is None:
            raise NodeFailed("this process cannot start chains", may_retry=False)
        saved: dict[str, Any] = context.checkpoint or {}
        status = self._status(environment, context, saved["runId"]) if saved else None
        has_failed = status in (RunStatus.FAILED, RunStatus.STOPPED)
        if not saved or (has_failed and saved["attempt"] != context.attempt):
            # saved before the sub-run is started: whoever takes over finds it, or starts it under the same id
            saved = {"runId": str(uuid.uuid4()), "attempt": context.attempt}
            context.save_checkpoint(saved)
            status = None
        if status is None:
            self._start(environment, context, cfg, saved["runId"])
            status = RunStatus.PENDING
        if status is RunStatus.SUCCESS:
            return NodeResult(self._artifact(environment, context, saved["runId"]), checkpoint=saved)
        if status.is_ended:
            raise NodeFailed(f"the run {saved['runId']} of the chain {cfg.chain} ended as {status}")
        waits_for = {"kind": "run", "runId": saved["runId"]}
        return Waiting(waits_for, look_again_at=datetime.now(UTC) + LOOK_AGAIN, checkpoint=saved)

    def _start(self, environment: NodeEnvironment, context: NodeContext, cfg: ChainCfg, run_id: str) -> None:
        if context.depth >= MOST_DEEP:
            raise NodeFailed(
                f"expected chains nested at most {MOST_DEEP} deep; does one start itself?", may_retry=False
            )
        start = environment.start_sub_run
        assert start is not None

        def work(connection: Connection) -> None:
            start(
                connection,
                cfg.chain,
                params=cfg.params,
                actor=f"run {context.run_id}",
                parent_run_id=context.run_id,
                parent_node_id=context.node_id,
                depth=context.depth + 1,
                run_id=run_id,
            )
            context.require_current(connection)

        try:
            patiently(context.stop, lambda: transact(environment.engine, work))
        except ChainsError as error:
            if error.code == "RUN_STOPPING":
                raise NodeStopped(str(error)) from None
            raise NodeFailed(f"the chain {cfg.chain} cannot be started: {error}") from None
        context.log(f"started the chain {cfg.chain} as run {run_id}")
        environment.wake()

    def _status(self, environment: NodeEnvironment, context: NodeContext, run_id: str) -> RunStatus | None:
        """None if the run was never started."""
        query = select(job_run.c.status).where(job_run.c.run_id == run_id)
        status = patiently(
            context.stop,
            lambda: read(environment.engine, lambda connection: connection.execute(query).scalar_one_or_none()),
        )
        return None if status is None else RunStatus(status)

    def _artifact(self, environment: NodeEnvironment, context: NodeContext, run_id: str) -> dict[str, Any]:
        artifacts = patiently(
            context.stop,
            lambda: read(environment.engine, lambda connection: dict(_last_artifacts(connection, run_id))),
        )
        return {"runId": run_id, "artifacts": artifacts}


def _last_artifacts(connection: Connection, run_id: str) -> Iterator[tuple[str, Any]]:
    """The artifacts of the nodes that no other node depends on."""
    query = select(job_run.c.dag_json).where(job_run.c.run_id == run_id)
    dag = parse_snapshot(connection.execute(query).scalar_one())
    last = {node.id for node in dag.nodes} - {above for node in dag.nodes for above in node.depends_on}
    columns = (job_run_node.c.node_id, job_run_node.c.artifact_json)
    for row in connection.execute(select(*columns).where(job_run_node.c.run_id == run_id)):
        if row.node_id in last:
            yield row.node_id, row.artifact_json
