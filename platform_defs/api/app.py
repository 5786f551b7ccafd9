"""Composes the API: routers of the four systems, the door, health, metrics, and errors in the right shape."""

import logging
from importlib.metadata import version
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from platform_defs.access.assertions import gateway_from
from platform_defs.access.authenticator import Authenticator
from platform_defs.api.arrivals import router as arrivals
from platform_defs.api.arrivals import webhooks
from platform_defs.api.arrivals.metrics import REST, ArrivalsCollector
from platform_defs.api.arrivals.service import ArrivalService
from platform_defs.api.chains import router as chains
from platform_defs.api.http import docs
from platform_defs.api.http.auth import SECURITY_SCHEMES, Door
from platform_defs.api.http.drain import Drain, DrainMiddleware
from platform_defs.api.http.errors import ApiError, error_response
from platform_defs.api.http.front import Front
from platform_defs.api.lineage import router as lineage
from platform_defs.api.lineage.metrics import LineageCollector
from platform_defs.api.lineage.service import LineageService
from platform_defs.api.observe import health, metrics
from platform_defs.api.observe.bounded_metrics import BoundedCollector, NamedCollector
from platform_defs.api.observe.metrics import Metrics
from platform_defs.api.observe.runner_metrics import RunnerCollector
from platform_defs.graph.errors import GraphUnavailable
from platform_defs.graph.port import Graph
from platform_defs.settings import Settings
from platform_defs.store.engine import is_transient
from platform_defs.store.errors import StoreUnavailable

log = logging.getLogger(__name__)

ROUTERS: tuple[APIRouter, ...] = (
    lineage.router,
    arrivals.router,
    webhooks.router,
    chains.router,
    health.router,
    metrics.router,
    docs.router,
)


class PlatformApi(FastAPI):
    """FastAPI whose OpenAPI document says how to authenticate and that a validation error is 400."""

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            schema = super().openapi()
            schema.setdefault("components", {})["securitySchemes"] = dict(SECURITY_SCHEMES)
            for operations in schema["paths"].values():
                for operation in operations.values():
                    if operation["responses"].pop("422", None):
                        operation["responses"]["400"] = {"description": "Names the field and what was expected"}
            for name in ("HTTPValidationError", "ValidationError"):
                schema["components"].get("schemas", {}).pop(name, None)
        return self.openapi_schema or {}


def create_app(settings: Settings, engine: Engine, graph: Graph, drain: Drain | None = None) -> FastAPI:
    """The application; it owns neither engine nor graph, but services with threads and pools: `close(app)` at the end.

    `drain` is shared with the server that runs it.
    """
    drain = drain or Drain()
    app = PlatformApi(
        title="Platform API",
        version=version("platform-defs"),
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
        redirect_slashes=False,
    )
    app.state.settings = settings
    app.state.engine = engine
    app.state.graph = graph
    app.state.metrics = Metrics()
    app.state.lineage = LineageService(settings, engine, graph, app.state.metrics.registry)
    app.state.arrivals = ArrivalService(settings, engine, app.state.metrics.registry)
    app.state.metrics.registry.register(
        BoundedCollector(
            NamedCollector("runner", RunnerCollector(engine)),
            NamedCollector("lineage", LineageCollector(engine)),
            NamedCollector("arrivals", ArrivalsCollector(engine, settings), rest=REST),
        )
    )
    drain.callbacks.append(app.state.arrivals.stop_waiting)
    app.state.readiness = health.Readiness(engine, graph)
    app.state.door = Door(Authenticator(engine, gateway_from(settings)) if settings.auth == "keys" else None)
    for router in ROUTERS:
        app.include_router(router)
    app.add_exception_handler(ApiError, _on_api_error)
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(RequestValidationError, _on_validation_error)
    for unavailable in (StoreUnavailable, GraphUnavailable, DBAPIError):
        app.add_exception_handler(unavailable, _on_store_unavailable)
    # the last one added is the outermost: refusals while draining are logged and carry a request id too
    app.add_middleware(DrainMiddleware, drain=drain)
    app.add_middleware(Front, metrics=app.state.metrics)
    return app


def close(app: FastAPI) -> None:
    app.state.arrivals.close()
    app.state.lineage.close()


def field_of(location: tuple[int | str, ...]) -> str:
    """`body.nodes.0.id` -> `nodes[0].id`: how a caller would name the field."""
    parts = location[1:] if location and location[0] in ("body", "query", "path", "header") else location
    name = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)
    return name.removeprefix(".") or "body"


async def _on_api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return error_response(request.url.path, error)


async def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path, headers = request.url.path, dict(error.headers or {})
    message = str(error.detail)
    if error.status_code == 404:
        message = f"no such path: {path}; /docs lists what there is"
    elif error.status_code == 405:
        allowed = _allowed_methods(path)
        headers["Allow"] = ", ".join(allowed) or headers.get("allow", "GET")
        message = f"{request.method} is not possible here; expected {' or '.join(allowed) or 'another method'}"
    return error_response(path, ApiError(error.status_code, message, headers=headers))


async def _on_validation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    problems = [f"{field_of(tuple(problem['loc']))}: {problem['msg']}" for problem in error.errors()]
    return error_response(request.url.path, ApiError(400, "; ".join(problems)))


async def _on_store_unavailable(request: Request, error: Exception) -> Response:
    if isinstance(error, DBAPIError) and not is_transient(error):
        raise error  # a mistake in a statement, which waiting does not mend
    log.warning("a store does not answer", exc_info=error)
    failure = ApiError(503, "a store does not answer; try again", headers={"Retry-After": "1"})
    return error_response(request.url.path, failure)


def _allowed_methods(path: str) -> list[str]:
    """Every method of a path: the framework names only those of the first route that matches."""
    routes = [route for router in ROUTERS for route in router.routes if isinstance(route, Route)]
    return sorted({method for route in routes if route.path_regex.match(path) for method in route.methods or ()})
