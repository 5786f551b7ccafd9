"""Turns the exceptions that handlers and the framework raise into answers in the shape of the path's system."""

import logging
import math
import time
from collections.abc import Sequence

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import DBAPIError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from platform_defs.api.http.browser_page import page_without_key
from platform_defs.api.http.errors import ApiError, ErrorResponses, store_down
from platform_defs.errors import one_line
from platform_defs.graph.errors import GraphUnavailable
from platform_defs.store.engine import is_refusal, is_unavailable
from platform_defs.store.errors import StoreUnavailable

log = logging.getLogger(__name__)

# While a store is away every request fails: one line in so many seconds says so, and how many requests it stands for.
LOGGED_EVERY_S = 10.0


class OutageLog:
    """Requests that failed because a store does not answer or refuses, as few lines of the log."""

    def __init__(self) -> None:
        self._failed = 0
        self._logged_at = -math.inf

    def add(self, error: Exception) -> None:
        self._failed += 1
        if time.monotonic() - self._logged_at >= LOGGED_EVERY_S:
            message = "a store does not answer or refuses; requests refused with 503: %d: %s"
            log.warning(message, self._failed, one_line(error))
            self._failed, self._logged_at = 0, time.monotonic()


def add_error_handlers(app: FastAPI, routers: Sequence[APIRouter], errors: ErrorResponses) -> None:
    """`routers` are all routers of the app: a 405 names every method that one of them allows on the path."""
    outage = OutageLog()

    async def on_api_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, ApiError)
        return page_without_key(request, error) or errors.response(request.url.path, error)

    async def on_http_exception(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        path, headers = request.url.path, dict(error.headers or {})
        message = str(error.detail)
        if error.status_code == 404:
            message = f"no such path: {path}; /docs lists what there is"
        elif error.status_code == 405:
            allowed = _allowed_methods(routers, path)
            headers["Allow"] = ", ".join(allowed) or headers.get("allow", "GET")
            message = f"{request.method} is not possible here; expected {' or '.join(allowed) or 'another method'}"
        return errors.response(path, ApiError(error.status_code, message, headers=headers))

    async def on_validation_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        problems = [f"{_field_name(tuple(problem['loc']))}: {problem['msg']}" for problem in error.errors()]
        return errors.response(request.url.path, ApiError(400, "; ".join(problems)))

    async def on_store_unavailable(request: Request, error: Exception) -> Response:
        if isinstance(error, DBAPIError) and not is_unavailable(error):
            raise error  # a mistake in a statement: sending the request again would not help
        outage.add(error)
        store = "graph" if isinstance(error, GraphUnavailable) else "database"
        return errors.response(request.url.path, store_down(store, refuses=is_refusal(error)))

    app.add_exception_handler(ApiError, on_api_error)
    app.add_exception_handler(HTTPException, on_http_exception)
    app.add_exception_handler(RequestValidationError, on_validation_error)
    for unavailable in (StoreUnavailable, GraphUnavailable, DBAPIError):
        app.add_exception_handler(unavailable, on_store_unavailable)


def _field_name(location: tuple[int | str, ...]) -> str:
    """The field as a caller would write it: `body.nodes.0.id` becomes `nodes[0].id`."""
    parts = location[1:] if location and location[0] in ("body", "query", "path", "header") else location
    name = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)
    return name.removeprefix(".") or "body"


def _allowed_methods(routers: Sequence[APIRouter], path: str) -> list[str]:
    """All methods of a path; the framework's own Allow header names only those of the first route that matches."""
    routes = [route for router in routers for route in router.routes if isinstance(route, Route)]
    return sorted({method for route in routes if route.path_regex.match(path) for method in route.methods or ()})
