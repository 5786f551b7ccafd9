"""Paths that get hundreds of requests a second are served without the framework's router and dependencies.

These cost more than everything else that such a request needs of the event loop. The path is also declared to the
router, which documents it and answers its other methods.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

Handler = Callable[[Request], Awaitable[Response]]
# by method and path
DirectHandlers = Mapping[tuple[str, str], Handler]


class DirectMiddleware:
    """The innermost middleware: whatever the others do for a request, they do for these too."""

    def __init__(self, app: ASGIApp, handlers: DirectHandlers, routers: Sequence[APIRouter]) -> None:
        self._app = app
        self._handlers = {place: (handler, _route(routers, *place)) for place, handler in handlers.items()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = self._handlers.get((scope.get("method", ""), scope.get("path", "")))
        if found is None:
            await self._app(scope, receive, send)
            return
        handler, scope["route"] = found
        request = Request(scope, receive)
        try:
            response = await handler(request)
        except Exception as error:
            response = await _answer(request, error)
        await response(scope, receive, send)


async def _answer(request: Request, error: Exception) -> Response:
    """What the handlers that the application has for its exceptions answer."""
    handlers: Mapping[Any, Any] = request.app.exception_handlers
    on_error = next((handlers[kind] for kind in type(error).__mro__ if kind in handlers), None)
    if on_error is None:
        raise error
    response: Response = await on_error(request, error)
    return response


def _route(routers: Sequence[APIRouter], method: str, path: str) -> Route:
    routes = (route for router in routers for route in router.routes if isinstance(route, Route))
    return next(route for route in routes if route.path == path and method in (route.methods or ()))
