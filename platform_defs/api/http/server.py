"""Runs the app under uvicorn. A stop lets requests finish within the grace, answers 503 to others, and exits 0."""

import asyncio
import errno
import logging
import os
import signal
import socket
import threading
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from platform_defs.api.http.auth import is_loopback
from platform_defs.api.http.drain import Drain
from platform_defs.errors import PlatformError, SettingsError
from platform_defs.stopping import API_LEAVES_AFTER_S, CONNECTIONS_S, REQUESTS_S

log = logging.getLogger(__name__)

GRACE_S = REQUESTS_S
LAST_RESORT_S = API_LEAVES_AFTER_S
BACKLOG = 2048


class DrainingServer(uvicorn.Server):
    """Answers 503 where uvicorn would just close the connection: to requests that outlast the grace, and to requests
    that come on idle connections while the server stops.
    """

    def __init__(self, app: ASGIApp, drain: Drain, *, grace: float = GRACE_S) -> None:
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="off",
            ws="none",
            timeout_graceful_shutdown=CONNECTIONS_S,
            backlog=BACKLOG,
        )
        super().__init__(config)
        self._drain = drain
        self._grace = grace

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        # Logged only now: a reader of this line may connect and may send signals.
        for listener in sockets or []:
            log.info("listening", extra={"url": listener_url(listener)})

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # Not passed on to uvicorn, which would raise the signal again at the end: a clean stop must exit 0.
        if self.should_exit and sig == signal.SIGINT:
            self.force_exit = True
        elif not self.should_exit:
            self.should_exit = True
            last_resort = threading.Timer(LAST_RESORT_S, _exit_now)
            last_resort.daemon = True
            last_resort.start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        log.info("stopping: %d requests in progress", len(self._drain.running))
        self._drain.begin()
        for server in self.servers:
            server.close()
        for listener in sockets or []:
            listener.close()
        try:
            async with asyncio.timeout(self._grace):
                while self._drain.running and not self.force_exit:
                    await asyncio.sleep(0.02)
        except TimeoutError:
            late = len(self._drain.running)
            log.warning("%d requests outlast the grace of %g s and are answered 503", late, self._grace)
            await self._drain.answer_remaining()
        await super().shutdown(sockets)


def refuse_open_auth(auth: str, host: str) -> None:
    """Without keys only this machine may be able to connect."""
    if auth == "open" and not is_loopback(host):
        raise SettingsError(f"PLATFORM_AUTH=open is only allowed on a loopback address, not on {host}")


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; raises one line that names the port if it is taken."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except socket.gaierror as error:
        raise PlatformError(f"cannot listen on {host}: {error.strerror}") from None
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise PlatformError(f"port {port} on {host} is already taken; choose another with --port") from None
        raise PlatformError(f"cannot listen on port {port} of {host}: {error.strerror}") from None
    return listener


def listener_url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _exit_now() -> None:
    log.error("leaving after %g s although threads still work: a query or call may hang", LAST_RESORT_S)
    os._exit(0)
