"""Posts one request over an open connection, and reads as much of the answer as is stored.

A protocol parser and no client library: those log addresses and headers, which may hold secrets.
"""

import socket
from dataclasses import dataclass

import h11

from platform_defs.webhooks.connection import Deadline
from platform_defs.webhooks.request import PostRequest

KEPT_BYTES = 1024


@dataclass(frozen=True)
class Answer:
    """The status and at most 1 KiB of the body; `cut` says that the body was longer or ended early."""

    status: int
    content: bytes
    cut: bool


def post(connection: socket.socket, request: PostRequest, deadline: Deadline) -> Answer:
    """Raises OSError (timeouts included), or h11's error if the receiver does not answer in HTTP."""
    protocol = h11.Connection(our_role=h11.CLIENT)
    _send(connection, _request_bytes(protocol, request), deadline)
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
        # the status alone decides about the delivery; the rest of the answer is only stored for people to read
        if not status:
            raise
    return Answer(status, content[:KEPT_BYTES], cut=len(content) > KEPT_BYTES or not complete)


def _request_bytes(protocol: h11.Connection, request: PostRequest) -> bytes:
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
