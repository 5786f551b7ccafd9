"""One HTTP exchange under one time limit, over a connection to exactly the address that was checked.

A socket and a protocol parser, no client library: those look the name up themselves, follow proxies of the
environment, count a time limit per read instead of for the whole, and log addresses and headers with secrets in them.
"""

import socket
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass

import h11

from platform_defs.webhooks.addresses import Address
from platform_defs.webhooks.message import Outgoing

KEPT_BYTES = 1024


@dataclass(frozen=True)
class Answer:
    """The status decides; of the body at most 1 KiB was read."""

    status: int
    content: bytes
    cut: bool


class Deadline:
    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds

    def left(self) -> float:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left


def post(request: Outgoing, addresses: Sequence[Address], *, tls: ssl.SSLContext, deadline: Deadline) -> Answer:
    """Raises OSError (timeouts and TLS among them) or a protocol error of the receiver's."""
    with _connected(addresses, request.port, deadline) as plain:
        if request.scheme == "http":
            return _exchange(plain, request, deadline)
        plain.settimeout(deadline.left())
        with tls.wrap_socket(plain, server_hostname=request.host) as secure:
            return _exchange(secure, request, deadline)


def _connected(addresses: Sequence[Address], port: int, deadline: Deadline) -> socket.socket:
    """The first of the checked addresses that answers."""
    failure: OSError = OSError("no address")
    for address in addresses:
        try:
            return socket.create_connection((str(address), port), timeout=deadline.left())
        except OSError as error:
            failure = error
    raise failure


def _exchange(connection: socket.socket, request: Outgoing, deadline: Deadline) -> Answer:
    protocol = h11.Connection(our_role=h11.CLIENT)
    _send(connection, _bytes(protocol, request), deadline)
    status, content, complete = 0, b"", False
    try:
        while len(content) <= KEPT_BYTES:
            event = protocol.next_event()
            if event is h11.NEED_DATA:
                connection.settimeout(deadline.left())
                protocol.receive_data(connection.recv(KEPT_BYTES))
            elif isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                content += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
                complete = True
                break
    except (OSError, h11.RemoteProtocolError):
        # once the status is there it decides; the rest of the answer is for the log alone
        if not status:
            raise
    return Answer(status, content[:KEPT_BYTES], cut=len(content) > KEPT_BYTES or not complete)


def _bytes(protocol: h11.Connection, request: Outgoing) -> bytes:
    events: list[h11.Event] = [
        h11.Request(method="POST", target=request.target, headers=list(request.headers)),
        h11.Data(data=request.body),
        h11.EndOfMessage(),
    ]
    return b"".join(protocol.send(event) or b"" for event in events)


def _send(connection: socket.socket, data: bytes, deadline: Deadline) -> None:
    rest = memoryview(data)
    while rest:
        connection.settimeout(deadline.left())
        rest = rest[connection.send(rest) :]
