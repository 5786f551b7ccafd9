"""The paths of job chains under /api/v1: definitions, runs, and how an operator stops and repairs runs."""

from collections.abc import Callable
from typing import Any, NoReturn

from fastapi import APIRouter, Depends

from platform_defs.api.http.auth import RequiresScope, openapi_security
from platform_defs.api.http.errors import ApiError
from platform_defs.api.http.paths import path_id

CHAIN = f"/chains/{path_id('chain_id')}"
RUN = f"/runs/{path_id('run_id')}"
NODE = f"{RUN}/nodes/{path_id('node_id')}"

router = APIRouter(prefix="/api/v1", tags=["chains"])


def _not_here_yet() -> NoReturn:
    raise ApiError(501, "job chains are not part of this version yet; nothing was changed")


async def chains() -> NoReturn:
    _not_here_yet()


async def chain(chain_id: str) -> NoReturn:
    _not_here_yet()


async def run(run_id: str) -> NoReturn:
    _not_here_yet()


async def node(run_id: str, node_id: str) -> NoReturn:
    _not_here_yet()


# A key that may stop and repair runs may also start one; `run:write` alone may only start.
START = ("run:write", "run:control")
_PATHS: list[tuple[str, str, Callable[..., Any], tuple[str, ...], str]] = [
    ("POST", "/chains", chains, ("chain:write",), "Create a chain"),
    ("GET", "/chains", chains, ("chain:read",), "List chains, page by page"),
    ("GET", CHAIN, chain, ("chain:read",), "Read a chain"),
    ("PUT", CHAIN, chain, ("chain:write",), "Change a chain, by its version"),
    ("POST", CHAIN + ":enable", chain, ("chain:write",), "Enable a chain"),
    ("POST", CHAIN + ":disable", chain, ("chain:write",), "Disable a chain"),
    ("POST", CHAIN + ":start", chain, START, "Start a run of a chain"),
    ("GET", RUN, run, ("run:read",), "Read a run"),
    ("GET", RUN + "/nodes", run, ("run:read",), "List the nodes of a run"),
    ("POST", RUN + ":stop", run, ("run:control",), "Stop a run"),
    ("POST", NODE + ":retry", node, ("run:control",), "Retry a failed or stopped node"),
    ("POST", NODE + ":complete", node, ("run:control",), "Complete a node by hand"),
]
for _method, _path, _endpoint, _scopes, _summary in _PATHS:
    router.add_api_route(
        _path,
        _endpoint,
        methods=[_method],
        summary=_summary,
        response_model=None,
        dependencies=[Depends(RequiresScope(*_scopes))],
        openapi_extra=openapi_security(*_scopes),
    )
