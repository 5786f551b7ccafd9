"""Draining at the end of a process: running requests may finish, later and too slow ones get 503, none is dropped."""

import asyncio
import contextlib
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from platform_defs.api.http.errors import ApiError, ErrorResponses

ANSWER_TIMEOUT_S = 1.0


class Drain:
    """Shared between the server, which decides when to drain, and the middleware, which knows the requests."""

    def __init__(self) -> None:
        self.draining = False
        # Called when draining begins, so that requests that only wait for other processes are answered at once.
        self.callbacks: list[Callable[[], None]] = []
        self.running: set[RequestInFlight] = set()

    def begin(self) -> None:
        self.draining = True
        for callback in self.callbacks:
            callback()

    async def answer_remaining(self) -> None:
        """Answers 503 to every request that still runs, even if its work cannot be interrupted."""
        answers = [request.give_up() for request in list(self.running)]
        with contextlib.suppress(TimeoutError):  # a client that does not read cannot get the answer
            await asyncio.wait_for(asyncio.gather(*answers, return_exceptions=True), ANSWER_TIMEOUT_S)


class RequestInFlight:
    """One running request; knows whether its answer has begun."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, errors: ErrorResponses) -> None:
        self._scope, self._receive, self._send = scope, receive, send
        self._errors = errors
        self._task = asyncio.current_task()
        self._started = False
        self.given_up = False

    async def send(self, message: Message) -> None:
        if not self.given_up:
            self._started = True
            await self._send(message)

    async def give_up(self) -> None:
        self.given_up = True
        # Answered by the caller's task: the request's own task may wait for a thread and then cannot be cancelled.
        try:
            if not self._started:
                await _answer_503(self._errors, self._scope, self._receive, self._send)
        finally:
            if self._task is not None:
                self._task.cancel()


class DrainMiddleware:
    """Registers every request with the drain, and refuses requests that come while draining."""

    def __init__(self, app: ASGIApp, drain: Drain, errors: ErrorResponses) -> None:
        self._app = app
        self._drain = drain
        self._errors = errors

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if self._drain.draining:
            await _answer_503(self._errors, scope, receive, send)
            return
        request = RequestInFlight(scope, receive, send, self._errors)
        self._drain.running.add(request)
        try:
            await self._app(scope, receive, request.send)
        except asyncio.CancelledError:
            if not request.given_up:
                raise
        finally:
            self._drain.running.discard(request)


async def _answer_503(errors: ErrorResponses, scope: Scope, receive: Receive, send: Send) -> None:
    error = ApiError(
        503, "this process is stopping; send the request again", headers={"Connection": "close", "Retry-After": "1"}
    )
    await errors.response(scope["path"], error)(scope, receive, send)
