"""What a system brings to the API: its routers, its service, its metrics and the shape of its errors."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastapi import APIRouter
from prometheus_client import CollectorRegistry
from sqlalchemy import Engine

from platform_defs.api.http.direct import DirectHandlers
from platform_defs.api.http.errors import ErrorShape
from platform_defs.api.observe.bounded_metrics import NamedCollector
from platform_defs.graph.port import Graph
from platform_defs.settings import Settings


@dataclass(frozen=True)
class ApiContext:
    """What the API process lends to the systems. They must not close the engine or the graph."""

    settings: Settings
    engine: Engine
    graph: Graph
    registry: CollectorRegistry


class Service(ABC):
    """The part of a system that lives as long as the API process, such as its threads and connection pools."""

    def warmth(self) -> str:
        """ "ok", or why the process should get no requests yet."""
        return "ok"

    def stop_waiting(self) -> None:
        """Called when the process begins to stop: requests that only wait for another process must be answered now."""
        return

    @abstractmethod
    def close(self) -> None: ...


def no_collectors(context: ApiContext) -> Sequence[NamedCollector]:
    return ()


def no_checks(context: ApiContext) -> Mapping[str, Callable[[], str]]:
    return {}


def no_schemas(context: ApiContext) -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True)
class ApiSystem:
    """One system's registration, which its folder exports as `SYSTEM` and `api/systems.py` lists.

    Requests find the service that `open_service` returns as `request.app.state.<name>`. Errors on a path at or below
    one of the `prefixes` have the shape `error_shape`, also those that no router of the system raised, such as 404.
    The `direct` handlers serve paths of the routers that get very many requests (see http/direct.py).
    Each of the `checks` returns "ok" or what is wrong, in which case /readyz says that the process is degraded.
    """

    name: str
    routers: Sequence[APIRouter]
    prefixes: Sequence[str]
    error_shape: ErrorShape
    open_service: Callable[[ApiContext], Service] | None = None
    direct: DirectHandlers = field(default_factory=dict)
    collectors: Callable[[ApiContext], Sequence[NamedCollector]] = no_collectors
    checks: Callable[[ApiContext], Mapping[str, Callable[[], str]]] = no_checks
    schemas: Callable[[ApiContext], Mapping[str, Any]] = no_schemas
