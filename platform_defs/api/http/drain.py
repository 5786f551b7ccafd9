"""The end of a process: what runs may finish, what comes later or takes too long gets a 503, nothing is dropped."""

import asyncio
import contextlib
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from platform_defs.api.http.errors import ApiError, ErrorResponses

ANSWER_TIMEOUT_S = 1.0


class Drain:
    """Shared between the server, which drains, and the middleware, which knows the requests."""

    def __init__(self) -> None:
        self.draining = False
        # called when draining begins: what only waits for others can be answered at once
        self.callbacks: list[Callable[[], None]] = []
        self.running: set[Exchange] = set()

    def begin(self) -> None:
        self.draining = True
        for callback in self.callbacks:
            callback()

    async def answer_the_rest(self) -> None:
        """Answers 503 to everything that still runs, also where the work itself cannot be interrupted."""
        answers = [exchange.give_up() for exchange in list(self.running)]
        with contextlib.suppress(TimeoutError):  # a client that does not read cannot be told
            await asyncio.wait_for(asyncio.gather(*answers, return_exceptions=True), ANSWER_TIMEOUT_S)


class Exchange:
    """One request and whether its answer has begun."""

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
        # answered from here, not from the request's own task: a task that waits for a thread cannot be cancelled
        try:
            if not self._started:
                await _answer_503(self._errors, self._scope, self._receive, self._send)
        finally:
            if self._task is not None:
                self._task.cancel()


class DrainMiddleware:
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
        exchange = Exchange(scope, receive, send, self._errors)
        self._drain.running.add(exchange)
        try:
            await self._app(scope, receive, exchange.send)
        except asyncio.CancelledError:
            if not exchange.given_up:
                raise
        finally:
            self._drain.running.discard(exchange)


async def _answer_503(errors: ErrorResponses, scope: Scope, receive: Receive, send: Send) -> None:
    error = ApiError(
        503, "this process is stopping; send the request again", headers={"Connection": "close", "Retry-After": "1"}
    )
    await errors.response(scope["path"], error)(scope, receive, send)
