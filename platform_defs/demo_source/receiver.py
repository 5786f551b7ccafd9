"""A receiver of webhooks that can be looked at: it accepts whatever is posted, and lists what came, newest first."""

import threading
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import orjson

PATH = "/webhook"
KEPT = 200
LARGEST_BODY = 1024 * 1024


@dataclass
class Received:
    """The newest messages, in memory: the platform keeps its own record of every delivery."""

    _messages: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=KEPT))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, webhook_id: str | None, body: bytes) -> None:
        try:
            content = orjson.loads(body)
        except orjson.JSONDecodeError:
            content = body.decode(errors="replace")
        at = datetime.now(UTC).isoformat(timespec="seconds")
        with self._lock:
            self._messages.appendleft({"receivedAt": at, "webhookId": webhook_id, "message": content})

    def newest_first(self) -> list[dict[str, Any]]:
        with self._lock:
            return list(self._messages)


def open_receiver(host: str, port: int) -> ThreadingHTTPServer:
    """A server that is bound but not yet serving."""
    received = Received()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer(200 if self.path == PATH else 404, received.newest_first() if self.path == PATH else [])

        def do_POST(self) -> None:
            body = self.rfile.read(min(int(self.headers.get("Content-Length", 0)), LARGEST_BODY))
            if self.path != PATH:
                return self._answer(404, {"error": f"expected {PATH}"})
            received.add(self.headers.get("webhook-id"), body)
            self._answer(200, {"received": True})

        def _answer(self, status: int, content: Any) -> None:
            body = orjson.dumps(content, option=orjson.OPT_INDENT_2) + b"\n"
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """What came is listed at PATH."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

    return Server((host, port), Handler)
