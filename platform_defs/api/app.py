"""Composes the API from the registered systems, authentication, health, metrics and documentation."""

from contextlib import ExitStack
from importlib.metadata import version
from typing import Any

from fastapi import APIRouter, FastAPI
from sqlalchemy import Engine

from platform_defs.access.assertions import load_gateway
from platform_defs.access.authenticator import Authenticator
from platform_defs.api.http import docs
from platform_defs.api.http.auth import SECURITY_SCHEMES, RequestAuthentication
from platform_defs.api.http.curl import add_curl_samples
from platform_defs.api.http.direct import DirectMiddleware
from platform_defs.api.http.drain import Drain, DrainMiddleware
from platform_defs.api.http.error_handlers import add_error_handlers
from platform_defs.api.http.errors import ErrorResponses
from platform_defs.api.http.request_middleware import RequestMiddleware
from platform_defs.api.observe import health, metrics
from platform_defs.api.observe.bounded_metrics import BoundedCollector, NamedCollector
from platform_defs.api.observe.metrics import ApiMetrics
from platform_defs.api.observe.runner_metrics import RunnerCollector
from platform_defs.api.system import ApiContext
from platform_defs.api.systems import SYSTEMS
from platform_defs.graph.port import Graph
from platform_defs.settings import Settings
from platform_defs.stuck import describe, find_stuck

ROUTERS: tuple[APIRouter, ...] = (
    *(router for system in SYSTEMS for router in system.routers),
    health.router,
    metrics.router,
    docs.router,
)


class PlatformApi(FastAPI):
    """FastAPI whose OpenAPI document has the ways to authenticate, 400 for validation errors, and our own schemas."""

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            schema = super().openapi()
            schema.setdefault("components", {})["securitySchemes"] = dict(SECURITY_SCHEMES)
            for operations in schema["paths"].values():
                for operation in operations.values():
                    if operation["responses"].pop("422", None):
                        operation["responses"]["400"] = {"description": "Names the field and what was expected"}
            schemas = schema["components"].setdefault("schemas", {})
            for name in ("HTTPValidationError", "ValidationError"):
                schemas.pop(name, None)
            for system in SYSTEMS:
                schemas |= system.schemas(self.state.context)
            add_curl_samples(schema)
        return self.openapi_schema or {}


def create_app(settings: Settings, engine: Engine, graph: Graph, drain: Drain | None = None) -> FastAPI:
    """The application. Its user calls `close_services` at the end; engine and graph stay open.

    `drain` is shared with the server that runs the application.
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
    app.state.metrics = ApiMetrics()
    app.state.authentication = RequestAuthentication(
        Authenticator(engine, load_gateway(settings)) if settings.auth == "keys" else None
    )
    context = ApiContext(settings, engine, graph, app.state.metrics.registry)
    app.state.context = context
    _open_services(app, context, drain)
    checks = {"work": lambda: describe(find_stuck(engine, settings, attempts=1))}
    checks |= {name: check for system in SYSTEMS for name, check in system.checks(context).items()}
    app.state.readiness = health.Readiness(engine, graph, checks)
    context.registry.register(_database_metrics(context))
    for router in ROUTERS:
        app.include_router(router)
    errors = ErrorResponses({prefix: system.error_shape for system in SYSTEMS for prefix in system.prefixes})
    add_error_handlers(app, ROUTERS, errors)
    direct = {place: handler for system in SYSTEMS for place, handler in system.direct.items()}
    app.add_middleware(DirectMiddleware, handlers=direct, routers=ROUTERS)
    # The middleware added last is the outermost: a request refused while draining is logged and gets a request id too.
    app.add_middleware(DrainMiddleware, drain=drain, errors=errors)
    app.add_middleware(RequestMiddleware, metrics=app.state.metrics, errors=errors)
    return app


def close_services(app: FastAPI) -> None:
    """Closes what the systems opened for this application, such as threads and connection pools."""
    services: ExitStack = app.state.services
    services.close()


def _open_services(app: FastAPI, context: ApiContext, drain: Drain) -> None:
    """Opens every system's service; if one cannot be opened, those before it are closed again."""
    app.state.open_services = {}
    with ExitStack() as opened:
        for system in SYSTEMS:
            if system.open_service is not None:
                service = system.open_service(context)
                opened.callback(service.close)
                drain.callbacks.append(service.stop_waiting)
                setattr(app.state, system.name, service)
                app.state.open_services[system.name] = service
        app.state.services = opened.pop_all()


def _database_metrics(context: ApiContext) -> BoundedCollector:
    collectors = [NamedCollector("runner", RunnerCollector(context.engine, context.settings))]
    for system in SYSTEMS:
        collectors += system.collectors(context)
    return BoundedCollector(*collectors)
