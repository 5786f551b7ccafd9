"""Around every request: its id, its line in the access log, its metrics, and a 500 when a handler fails."""

import logging
import re
import time
import uuid

from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from platform_defs.api.http.errors import ApiError, ErrorResponses
from platform_defs.api.observe.metrics import ApiMetrics
from platform_defs.logs import request_id

log = logging.getLogger(__name__)
access_log = logging.getLogger("platform_defs.api.access")

CLIENT_WENT_AWAY = 499
# Machines ask these paths every few seconds. Their lines in the access log would drown the others.
QUIET = frozenset({"/healthz", "/readyz", "/metrics"})
_SANE_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")


class RequestMiddleware:
    """Wraps the whole application, so that a request which another middleware refuses is logged and counted too."""

    def __init__(self, app: ASGIApp, metrics: ApiMetrics, errors: ErrorResponses) -> None:
        self._app = app
        self._metrics = metrics
        self._errors = errors

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        identity = _request_id(scope)
        token = request_id.set(identity)
        started = time.perf_counter()
        status = 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message.get("headers", ()), (b"x-request-id", identity.encode())]}
            await send(message)

        self._metrics.in_flight.inc()
        try:
            await self._app(scope, receive, send_with_id)
        except ClientDisconnect:
            status = CLIENT_WENT_AWAY
        except Exception:
            log.exception("a request failed in a way that nobody foresaw")
            if status:
                raise  # part of an answer was sent: only a closed connection tells the client that it failed
            failure = ApiError(500, f"internal error; the log has more under request id {identity}")
            await self._errors.response(scope["path"], failure)(scope, receive, send_with_id)
        finally:
            self._metrics.in_flight.dec()
            self._record(scope, status, time.perf_counter() - started)
            request_id.reset(token)

    def _record(self, scope: Scope, status: int, seconds: float) -> None:
        route: str = getattr(scope.get("route"), "path_format", "unmatched")
        method, path = scope["method"], scope["path"]
        self._metrics.record_request(route, method, status, seconds)
        level = logging.DEBUG if path in QUIET and status < 400 else logging.INFO
        if access_log.isEnabledFor(level):
            state = scope.get("state", {})
            fields = {
                "method": method,
                "path": path,
                "status": status,
                "ms": round(seconds * 1000, 1),
                "principal": state.get("principal"),
            }
            if state.get("held"):
                fields["held"] = True
            access_log.log(level, "%s %s %s", method, path, status, extra=fields)


def note_held(request: Request) -> None:
    """In the access log: the request waits for a store that is away, so its duration says nothing of the platform."""
    request.state.held = True


def _request_id(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _SANE_ID.fullmatch(value.decode("latin-1")):
            return str(value.decode("ascii"))
    return uuid.uuid4().hex
