"""One attempt of a node: reads what it needs, evaluates its cfg, executes it, and bounds what it gives back."""

import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Engine, select

from platform_defs.chains.nodes.attempt_log import AttemptLog
from platform_defs.chains.nodes.catalogue import parse_cfg
from platform_defs.chains.nodes.cfg import SpecialFields
from platform_defs.chains.nodes.checkpoints import read_checkpoint, require_current_attempt, save_checkpoint
from platform_defs.chains.nodes.patience import patiently
from platform_defs.chains.nodes.port import (
    AttemptRequest,
    NodeContext,
    NodeFailed,
    NodeResult,
    NodeStopped,
    NodeTypes,
    Outcome,
)
from platform_defs.chains.nodes.printing import printing_into
from platform_defs.chains.nodes.rendering import CfgTemplate, compile_cfg
from platform_defs.chains.nodes.secrets import AttemptSecrets
from platform_defs.chains.states import NodeStatus
from platform_defs.errors import PlatformError, one_line
from platform_defs.store.engine import read
from platform_defs.store.tables.chains import job_run_node

MOST_BYTES = 1024 * 1024
LONGEST_ERROR = 4000


def perform(engine: Engine, types: NodeTypes, request: AttemptRequest) -> Outcome:
    """Executes the attempt; the caller stores the outcome, checkpoint included, if the attempt still counts.

    Raises NodeFailed or NodeStopped and nothing else. No secret that the attempt has read is in what it returns,
    raises, logs or saves.
    """
    secrets = AttemptSecrets(types.secret_names)
    try:
        return _execute(engine, types, request, secrets)
    except NodeStopped:
        raise
    except Exception as error:
        if request.stop.reason is not None:
            raise NodeStopped(request.stop.reason) from None
        may_retry = error.may_retry if isinstance(error, NodeFailed) else True
        # without the original error: its text and its frames may hold a secret
        raise NodeFailed(secrets.mask(_error_text(error))[:LONGEST_ERROR], may_retry=may_retry) from None


def _execute(engine: Engine, types: NodeTypes, request: AttemptRequest, secrets: AttemptSecrets) -> Outcome:
    """Renders the cfg and calls the node type. Raises NodeFailed or NodeStopped, or whatever the node type raises."""
    node = request.node
    if node.type not in types:
        raise NodeFailed(f"the node type {node.type} is not installed where the chain runs", may_retry=False)
    executor = types[node.type]
    compiled, problems = compile_cfg(node.cfg, SpecialFields.of(executor.cfg_model))
    if compiled is None:
        raise NodeFailed("; ".join(problems), may_retry=False)
    artifacts, checkpoint = patiently(
        request.stop, lambda: read(engine, lambda connection: _inputs(connection, request.run_id, node.id, compiled))
    )
    names = {
        "params": request.params,
        "nodes": artifacts,
        "run": {"id": request.run_id},
        "node": {"id": node.id, "attempt": request.attempt},
    }
    cfg = parse_cfg(executor, compiled.render(names, datetime.now(UTC)))
    context = NodeContext(
        run_id=request.run_id,
        node_id=node.id,
        attempt=request.attempt,
        params=request.params,
        checkpoint=checkpoint,
        stop=request.stop,
        log=AttemptLog(request.log, secrets.mask),
        save_checkpoint=lambda value: _save_checkpoint(engine, request, _bounded("checkpoint", value, secrets)),
        depth=request.depth,
        timeout_s=node.timeout_s,
        reveal=secrets.reveal,
        require_current=lambda connection: require_current_attempt(
            connection, request.run_id, node.id, request.attempt, request.drive_no
        ),
    )
    with printing_into(context.log):
        outcome = executor.execute(context, cfg)
    kept = _bounded("checkpoint", outcome.checkpoint, secrets)
    if isinstance(outcome, NodeResult):
        return replace(outcome, artifact=_bounded("artifact", outcome.artifact, secrets), checkpoint=kept)
    return replace(outcome, checkpoint=kept)


def _inputs(connection: Connection, run_id: str, node_id: str, compiled: CfgTemplate) -> tuple[dict[str, Any], Any]:
    return _artifacts(connection, run_id, compiled), read_checkpoint(connection, run_id, node_id)


def _save_checkpoint(engine: Engine, request: AttemptRequest, value: Any) -> None:
    attempt = (request.run_id, request.node.id, request.attempt, request.drive_no)
    patiently(request.stop, lambda: save_checkpoint(engine, *attempt, value))


def _artifacts(connection: Connection, run_id: str, compiled: CfgTemplate) -> dict[str, Any]:
    """The artifacts of the nodes that the cfg refers to; a node that has not succeeded is an error."""
    wanted = sorted(compiled.referenced_nodes)
    if not wanted:
        return {}
    query = select(job_run_node.c.node_id, job_run_node.c.artifact_json).where(
        job_run_node.c.run_id == run_id,
        job_run_node.c.node_id.in_(wanted),
        job_run_node.c.status == NodeStatus.SUCCESS,
    )
    found = {row.node_id: {"artifact": row.artifact_json} for row in connection.execute(query)}
    if missing := _listed(name for name in wanted if name not in found):
        raise NodeFailed(f"cfg refers to {missing}, which has not succeeded in this run", may_retry=False)
    return found


def _bounded(what: str, value: Any, secrets: AttemptSecrets) -> Any:
    """The value as JSON gives it back, without secrets; raises NodeFailed if it is none, or too large."""
    if value is None:
        return None
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        size = len(text.encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise NodeFailed(f"the {what} is no JSON: {one_line(error)}", may_retry=False) from None
    if size > MOST_BYTES:
        raise NodeFailed(f"the {what} has {size} bytes, expected at most {MOST_BYTES}", may_retry=False)
    return secrets.mask_json(json.loads(text))


def _error_text(error: Exception) -> str:
    text = str(error) if isinstance(error, NodeFailed) else one_line(error)
    return text if isinstance(error, NodeFailed) or _says_enough(error, text) else f"{type(error).__name__}: {text}"


def _says_enough(error: Exception, text: str) -> bool:
    """Errors of the platform are sentences; `'x'` of a KeyError is not."""
    return isinstance(error, PlatformError) and bool(text)


def _listed(names: Iterable[str]) -> str:
    found = list(names)
    return f"the node {found[0]}" if len(found) == 1 else f"the nodes {', '.join(found)}" if found else ""
