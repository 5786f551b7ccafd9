"""A server that http nodes of chains ask: a test decides how it answers, and sees who waits for an answer."""

import json
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.waiting import PATIENCE_S


class NodeServer:
    """`GET /NAME` is answered 200, 500 while the name is in `failing`, and not before its release if it is held."""

    def __init__(self) -> None:
        self.failing: set[str] = set()
        self.asked: dict[str, int] = defaultdict(int)
        self._held: dict[str, threading.Event] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def hold(self, name: str) -> None:
        self._held[name] = threading.Event()

    def release(self, name: str) -> None:
        self._held.pop(name).set()

    def node(self, node_id: str, *above: str, name: str | None = None, **fields: Any) -> dict[str, Any]:
        cfg = {"url": f"{self.url}/{name or node_id}", "ratePerSecond": 1000}
        return {"id": node_id, "type": "http", "dependsOn": list(above), "cfg": cfg, **fields}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                name = self.path.strip("/")
                server.asked[name] += 1
                if name in server._held:
                    server._held[name].wait(PATIENCE_S)
                body = json.dumps({"name": name}).encode()
                try:
                    self.send_response(500 if name in server.failing else 200)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)
                except OSError:
                    pass  # the node was stopped or completed meanwhile

            def log_message(self, *arguments: Any) -> None:
                pass

        return Handler


@contextmanager
def serving_nodes() -> Iterator[NodeServer]:
    nodes = NodeServer()
    thread = threading.Thread(target=nodes._server.serve_forever, daemon=True)
    thread.start()
    try:
        yield nodes
    finally:
        for name in list(nodes._held):
            nodes.release(name)
        nodes._server.shutdown()
        nodes._server.server_close()
        thread.join(PATIENCE_S)
