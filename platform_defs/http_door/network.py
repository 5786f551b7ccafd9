"""Sockets under one time limit for the whole exchange, which also hear that the caller has given up.

The usual client libraries count their time limit anew for every read: a server that sends one byte a second then holds
a request for hours. Here every read, write and handshake gets what is left of the request's own time.
"""

import errno
import os
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import httpcore

# which addresses of a host may be connected to; whoever refuses some or all of them raises or leaves them out
Resolver = Callable[[str, int], Sequence[str]]

# how long a step goes on before it looks whether the caller has given up
_HEAR_S = 0.25


class CancelHeard(Exception):
    """The caller gave up while the request was under way."""


@dataclass(frozen=True)
class Budget:
    """What one exchange may take; `until` by the monotonic clock of the machine."""

    until: float
    cancel: threading.Event | None = None

    def left(self, limit: float | None, timeout: type[httpcore.TimeoutException]) -> float:
        """Seconds that the next step may take, at most `limit`."""
        if self.cancel is not None and self.cancel.is_set():
            raise CancelHeard
        left = self.until - time.monotonic()
        if left <= 0:
            raise timeout("the time for the whole request is over")
        return left if limit is None else min(left, limit)

    def slice(self, left: float) -> float:
        """How long to block before the next look at `cancel`."""
        return left if self.cancel is None else min(left, _HEAR_S)


class BudgetedBackend(httpcore.NetworkBackend):
    """Opens sockets for the thread's current request; connections are pooled, so a later request may use them."""

    def __init__(self, resolver: Resolver | None = None) -> None:
        self._resolver = resolver or resolve_by_system
        self._current = threading.local()

    def begin(self, budget: Budget) -> None:
        """From now on this thread's network steps count against this budget."""
        self._current.budget = budget

    @property
    def budget(self) -> Budget:
        budget: Budget = self._current.budget
        return budget

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        failure: Exception = httpcore.ConnectError("the host has no address")
        for address in self._addresses(host, port, timeout):
            left = self.budget.left(timeout, httpcore.ConnectTimeout)
            try:
                return _Stream(_connect(address, port, self.budget, left), self)
            except TimeoutError:
                failure = httpcore.ConnectTimeout(f"no connection within {left:.1f} s")
            except OSError as error:
                failure = httpcore.ConnectError(str(error))
        raise failure

    def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[Any] | None = None
    ) -> httpcore.NetworkStream:
        raise httpcore.UnsupportedProtocol("expected a host, got a Unix socket")

    def sleep(self, seconds: float) -> None:
        raise httpcore.UnsupportedProtocol("retries are the door's, not the connection pool's")

    def _addresses(self, host: str, port: int, timeout: float | None) -> Sequence[str]:
        """The system's resolver has no time limit of its own: it is asked in a thread that may be left behind."""
        answers: list[Sequence[str]] = []
        failures: list[Exception] = []

        def ask() -> None:
            try:
                answers.append(self._resolver(host, port))
            except Exception as error:
                failures.append(error)

        thread = threading.Thread(target=ask, daemon=True, name="http-door-resolver")
        thread.start()
        until = time.monotonic() + self.budget.left(timeout, httpcore.ConnectTimeout)
        while thread.is_alive() and (left := until - time.monotonic()) > 0:
            thread.join(self.budget.slice(self.budget.left(left, httpcore.ConnectTimeout)))
        if failures and isinstance(failures[0], OSError | UnicodeError):
            raise httpcore.ConnectError(f"{host} cannot be resolved: {failures[0]}")
        if failures:
            raise failures[0]
        if not answers:
            raise httpcore.ConnectTimeout(f"{host} was not resolved in time")
        return answers[0]


def resolve_by_system(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(answer[4][0]) for answer in found))


def _connect(address: str, port: int, budget: Budget, left: float) -> socket.socket:
    """A connected socket. Raises TimeoutError, another OSError, or CancelHeard."""
    until = time.monotonic() + left
    connection = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        state = connection.connect_ex((address, port))
        if state == errno.EINPROGRESS:
            _wait_for(connection, select.POLLOUT, budget, until)
            state = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if state:
            raise OSError(state, os.strerror(state))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except BaseException:
        connection.close()
        raise
    return connection


def _shake_hands(connection: ssl.SSLSocket, budget: Budget, left: float) -> None:
    """One limit for the whole handshake, however many reads it takes."""
    until = time.monotonic() + left
    connection.setblocking(False)
    while True:
        try:
            connection.do_handshake()
            return
        except ssl.SSLWantReadError:
            _wait_for(connection, select.POLLIN, budget, until)
        except ssl.SSLWantWriteError:
            _wait_for(connection, select.POLLOUT, budget, until)


def _wait_for(connection: socket.socket, event: int, budget: Budget, until: float) -> None:
    poll = select.poll()
    poll.register(connection, event)
    while True:
        left = budget.left(until - time.monotonic(), httpcore.ConnectTimeout)
        if left <= 0:
            raise TimeoutError
        if poll.poll(1000 * budget.slice(left)):
            return


class _Stream(httpcore.NetworkStream):
    def __init__(self, connection: socket.socket, backend: BudgetedBackend) -> None:
        self._socket = connection
        self._backend = backend

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        budget = self._backend.budget
        quiet_until = time.monotonic() + (float("inf") if timeout is None else timeout)
        while True:
            left = budget.left(quiet_until - time.monotonic(), httpcore.ReadTimeout)
            if left <= 0:
                raise httpcore.ReadTimeout(f"no byte within {timeout:.1f} s")
            self._socket.settimeout(budget.slice(left))
            try:
                return self._socket.recv(max_bytes)
            except TimeoutError:
                continue
            except OSError as error:
                raise httpcore.ReadError(str(error)) from error

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        rest, budget = memoryview(buffer), self._backend.budget
        limit = float("inf") if timeout is None else timeout
        stuck_at = time.monotonic() + limit
        while rest:
            left = budget.left(stuck_at - time.monotonic(), httpcore.WriteTimeout)
            if left <= 0:
                raise httpcore.WriteTimeout("the source takes no more bytes")
            self._socket.settimeout(budget.slice(left))
            try:
                rest = rest[self._socket.send(rest) :]
            except TimeoutError:
                continue
            except OSError as error:
                raise httpcore.WriteError(str(error)) from error
            stuck_at = time.monotonic() + limit

    def close(self) -> None:
        self._socket.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        budget = self._backend.budget
        try:
            left = budget.left(timeout, httpcore.ConnectTimeout)
            secure = ssl_context.wrap_socket(
                self._socket, server_hostname=server_hostname, do_handshake_on_connect=False
            )
            # the plain socket has given its descriptor away: from here on the secure one is to be closed
            self._socket = secure
            _shake_hands(secure, budget, left)
        except TimeoutError:
            self.close()
            raise httpcore.ConnectTimeout("no TLS handshake in time") from None
        except OSError as error:
            self.close()
            raise httpcore.ConnectError(str(error)) from error
        except BaseException:
            self.close()
            raise
        return _Stream(secure, self._backend)

    def get_extra_info(self, info: str) -> Any:
        match info:
            case "ssl_object":
                return self._socket if isinstance(self._socket, ssl.SSLSocket) else None
            case "socket":
                return self._socket
            case "is_readable":
                return _is_readable(self._socket)
        return None


def _is_readable(connection: socket.socket) -> bool:
    """Whether an idle connection has something to say, which is that it was closed."""
    if connection.fileno() < 0:
        return True
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(0))
