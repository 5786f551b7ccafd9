"""A source on loopback that answers as a script says, down to single bytes."""

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.parser import BytesParser
from typing import IO


@dataclass(frozen=True)
class Asked:
    method: str
    target: str
    headers: dict[str, str]
    body: bytes


# sends the answer over the open connection; what it does not send is never sent
Reply = Callable[[Asked, socket.socket], None]


def answer(status: int, body: bytes = b"{}", **headers: str) -> Reply:
    """A whole answer; underscores in the names of headers stand for hyphens."""
    lines = [f"HTTP/1.1 {status} Scripted", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return raw("\r\n".join(lines).encode() + b"\r\n\r\n" + body)


def raw(content: bytes) -> Reply:
    return lambda asked, connection: connection.sendall(content)


def hang_up(content: bytes = b"") -> Reply:
    """Sends this much and closes the connection."""

    def reply(asked: Asked, connection: socket.socket) -> None:
        connection.sendall(content)
        connection.shutdown(socket.SHUT_RDWR)

    return reply


@dataclass
class Source:
    """`replies` are used up one after the other; the last one serves for ever."""

    replies: list[Reply]
    listener: socket.socket
    tls: ssl.SSLContext | None = None
    asked: list[Asked] = field(default_factory=list)
    connections: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def url(self, path: str = "/works") -> str:
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}{path}"

    def serve(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with self.lock:
                self.connections += 1
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        try:
            if self.tls is not None:
                connection = self.tls.wrap_socket(connection, server_side=True)
            with connection, connection.makefile("rb") as stream:
                while request_line := stream.readline():
                    self._answer(request_line, stream, connection)
        except OSError:
            connection.close()

    def _answer(self, request_line: bytes, stream: IO[bytes], connection: socket.socket) -> None:
        method, target, _ = request_line.decode().split(" ", 2)
        lines = []
        while (line := stream.readline()) not in (b"\r\n", b""):
            lines.append(line)
        parsed = BytesParser().parsebytes(b"".join(lines))
        headers = {name.lower(): str(value) for name, value in parsed.items()}
        asked = Asked(method, target, headers, stream.read(int(headers.get("content-length", "0"))))
        with self.lock:
            self.asked.append(asked)
            reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        reply(asked, connection)


@contextmanager
def serving(*replies: Reply, tls: ssl.SSLContext | None = None) -> Iterator[Source]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        source = Source(list(replies), listener, tls)
        thread = threading.Thread(target=source.serve, daemon=True)
        thread.start()
        try:
            yield source
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
