"""Runs of chains over HTTP, under /api/v1/runs: read them, stop them, retry and complete their nodes."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request

from platform_defs.access.principal import Principal
from platform_defs.api.chains import bodies, routing
from platform_defs.api.chains.answers import node_answer, node_state_answer, run_answer
from platform_defs.api.chains.bodies import OptionalJsonBody, parse_body
from platform_defs.api.chains.routing import answered, service_of
from platform_defs.api.http.auth import RequiresScope
from platform_defs.api.http.errors import ApiError
from platform_defs.api.http.paths import path_id
from platform_defs.chains.json_values import read_json_text
from platform_defs.chains.runs import queries

RUN = f"/runs/{path_id('run_id')}"
NODE = f"{RUN}/nodes/{path_id('node_id')}"
_READ, _CONTROL = ("run:read",), ("run:control",)

Reader = Annotated[Principal, Depends(RequiresScope(*_READ))]
Controller = Annotated[Principal, Depends(RequiresScope(*_CONTROL))]

router = APIRouter(prefix="/api/v1", tags=["chains"])


def get_run(request: Request, caller: Reader, run_id: str) -> dict[str, Any]:
    return run_answer(answered(lambda: queries.get_run(service_of(request).engine, run_id)))


def list_nodes(request: Request, caller: Reader, run_id: str) -> list[dict[str, Any]]:
    return [node_answer(row) for row in answered(lambda: queries.list_nodes(service_of(request).engine, run_id))]


def stop_run(request: Request, caller: Controller, run_id: str, body: OptionalJsonBody) -> dict[str, Any]:
    reason = parse_body(bodies.Stop, body).reason
    status = answered(lambda: service_of(request).stop(run_id, actor=caller.name, reason=reason))
    return {"runId": run_id, "status": status}


def retry_node(
    request: Request, caller: Controller, run_id: str, node_id: str, body: OptionalJsonBody
) -> dict[str, Any]:
    asked, service = parse_body(bodies.NodeRetry, body), service_of(request)
    artifact = _artifact(asked.artifact_json)
    state = answered(
        lambda: service.retry(
            run_id,
            node_id,
            actor=caller.name,
            reason=asked.reason,
            artifact=artifact,
            clear_checkpoint=asked.clear_checkpoint is True,
        )
    )
    return node_state_answer(state)


def complete_node(
    request: Request, caller: Controller, run_id: str, node_id: str, body: OptionalJsonBody
) -> dict[str, Any]:
    asked, service = parse_body(bodies.NodeAction, body), service_of(request)
    artifact = _artifact(asked.artifact_json)
    state = answered(
        lambda: service.complete(run_id, node_id, actor=caller.name, reason=asked.reason, artifact=artifact)
    )
    return node_state_answer(state)


def _artifact(given: Any) -> Any:
    """The artifact of a body: the text of a JSON value, as dagJson is one, or the value itself."""
    if not isinstance(given, str):
        return given
    try:
        return read_json_text(given)
    except ValueError as error:
        raise ApiError(400, f'artifactJson: {error}; a text is written as "\\"text\\""') from None


_add = routing.add_path
_add(router, "GET", RUN, get_run, _READ, "Read a run")
_add(router, "GET", RUN + "/nodes", list_nodes, _READ, "List the nodes of a run")
_add(
    router,
    "POST",
    RUN + ":stop",
    stop_run,
    _CONTROL,
    "Stop a run",
    body=bodies.Stop,
    conflict="The run has ended as SUCCESS or FAILED",
)
_add(
    router,
    "POST",
    NODE + ":retry",
    retry_node,
    _CONTROL,
    "Retry a failed or stopped node, and go on below it",
    body=bodies.NodeRetry,
    conflict="The node is neither FAILED nor STOPPED, or the run is being stopped",
)
_add(
    router,
    "POST",
    NODE + ":complete",
    complete_node,
    _CONTROL,
    "Complete a node by hand, and go on below it",
    body=bodies.NodeAction,
    conflict="The node is PENDING or SKIPPED, or the run is being stopped",
)
