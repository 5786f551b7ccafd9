"""What the paths of job chains share: the caller, errors with their codes, query parameters, how paths are added."""

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, Query, Request
from pydantic import BaseModel

from platform_defs.access.principal import Principal
from platform_defs.api.chains.bodies import HEADER, body_schema
from platform_defs.api.chains.service import ChainService
from platform_defs.api.http.auth import RequiresScope, openapi_security
from platform_defs.api.http.errors import ApiError
from platform_defs.chains.errors import ChainsError, Conflict

T = TypeVar("T")

MAX_SIZE = 200
MAX_PAGE = 1_000_000_000
# A key that may stop and repair runs may also start one; `run:write` alone may only start.
START = ("run:write", "run:control")

PageNumber = Annotated[int, Query(ge=1, le=MAX_PAGE, description="The page, from 1")]
PageSize = Annotated[int, Query(ge=1, le=MAX_SIZE)]
Keyword = Annotated[str | None, Query(description="Part of the name or of the description")]
Enabled = Annotated[str | None, Query(description="true or false: only those; empty: all")]


def service_of(request: Request) -> ChainService:
    service: ChainService = request.app.state.chains
    return service


def caller_of(principal: Principal) -> str:
    """Who asks, for idempotency keys: the same name may belong to a key and to a gateway's assertion."""
    return f"{principal.kind}:{principal.name}"


def answered(work: Callable[[], T]) -> T:
    """Calls `work`; a state that does not allow it is 409, everything else that a chain refuses is 400."""
    try:
        return work()
    except ChainsError as error:
        raise ApiError(409 if isinstance(error, Conflict) else 400, str(error), name=error.code) from None


def parse_enabled(text: str | None) -> bool | None:
    values = {None: None, "": None, "true": True, "1": True, "false": False, "0": False}
    key = text if text is None else text.strip().lower()
    if key not in values:
        raise ApiError(400, f"enabled: expected true or false, got {text!r}")
    return values[key]


def refuse_other_enabled(asked: bool | None, present: bool) -> None:
    if asked is not None and asked != present:
        raise ApiError(400, f"enabled: expected {str(present).lower()} or none at all; :enable and :disable change it")


def add_path(
    router: APIRouter,
    method: str,
    path: str,
    endpoint: Callable[..., Any],
    scopes: tuple[str, ...],
    summary: str,
    *,
    body: type[BaseModel] | None = None,
    body_required: bool = False,
    keyed: bool = False,
    conflict: str | None = None,
) -> None:
    """Adds a path that asks for one of the scopes, with what /docs says about it."""
    extra = openapi_security(*scopes)
    if body is not None:
        extra["requestBody"] = body_schema(body, required=body_required)
    if keyed:
        extra["parameters"] = [
            {
                "name": HEADER,
                "in": "header",
                "schema": {"type": "string", "maxLength": 255},
                "description": "The same key again gives what the first request made; with another body it is 409.",
            }
        ]
    responses: dict[int | str, dict[str, Any]] = {
        400: {"description": "Names what was expected; or there is none such"}
    }
    if conflict is not None:
        responses[409] = {"description": conflict}
    router.add_api_route(
        path,
        endpoint,
        methods=[method],
        summary=summary,
        response_model=None,
        responses=responses,
        dependencies=[Depends(RequiresScope(*scopes))],
        openapi_extra=extra,
    )
