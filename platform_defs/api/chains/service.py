"""Job chains in the API process: the node types that chains are checked against, and the way to the runner."""

import logging
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Engine

from platform_defs.api.system import Service
from platform_defs.chain_nodes.catalogue import all_node_types
from platform_defs.chains.nodes.port import NodeTypes
from platform_defs.chains.request_keys import RequestKey
from platform_defs.chains.runs import operations, starting
from platform_defs.chains.runs.operations import NodeState
from platform_defs.chains.states import RunStatus
from platform_defs.settings import Settings
from platform_defs.work.wake import wake

log = logging.getLogger(__name__)


class ChainService(Service):
    def __init__(self, settings: Settings, engine: Engine) -> None:
        self.engine = engine
        self.types: NodeTypes = all_node_types(engine, settings)
        self._home = settings.home

    def start(
        self, what: str, object_id: str, params: Mapping[str, Any] | None, actor: str, key: RequestKey | None
    ) -> str:
        """Starts a run of a chain or of a job, and returns its id."""
        start = starting.start_chain if what == "chain" else starting.start_job
        started = start(self.engine, object_id, params=params, actor=actor, trigger="api", request_key=key)
        if started.drive is not None:
            wake(self._home)
            log.info("run started", extra={"run_id": started.run_id, f"{what}_id": object_id, "actor": actor})
        return started.run_id

    def stop(self, run_id: str, *, actor: str, reason: str | None) -> RunStatus:
        status = operations.stop_run(self.engine, run_id, actor=actor, reason=reason)
        wake(self._home)
        log.info("run stopped", extra={"run_id": run_id, "actor": actor})
        return status

    def retry(
        self, run_id: str, node_id: str, *, actor: str, reason: str | None, artifact: Any, clear_checkpoint: bool
    ) -> NodeState:
        state = operations.retry_node(
            self.engine,
            run_id,
            node_id,
            actor=actor,
            reason=reason,
            artifact=artifact,
            clear_checkpoint=clear_checkpoint,
        )
        self._tell("node retried", state, actor)
        return state

    def complete(self, run_id: str, node_id: str, *, actor: str, reason: str | None, artifact: Any) -> NodeState:
        state = operations.complete_node(self.engine, run_id, node_id, actor=actor, reason=reason, artifact=artifact)
        self._tell("node completed by hand", state, actor)
        return state

    def close(self) -> None:
        self.types.close()

    def _tell(self, what: str, state: NodeState, actor: str) -> None:
        if not state.changed:
            return
        wake(self._home)
        names = {"run_id": state.run_id, "node_id": state.node_id, "attempt": state.attempt, "actor": actor}
        log.info(what, extra=names)
