"""What a selfcheck says of parts that are busy, and of those that are not there."""

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from platform_defs.settings import Settings
from platform_defs.supervisor import checkup
from platform_defs.supervisor.ports import find_free_port
from platform_defs.upgrade import upgrade_stores


@contextmanager
def answering(codes: list[int]) -> Iterator[str]:
    """An API that answers with these codes, one after the other, and then with the last of them."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(codes.pop(0) if len(codes) > 1 else codes[0])
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def parts_of(home: Path, api: str) -> dict[str, checkup.Part]:
    settings = Settings(home=home)
    upgrade_stores(settings)
    ui = f"http://127.0.0.1:{find_free_port('127.0.0.1')}"
    up = {"api": api, "ui": ui, "demo_key": None, "pids": {"api": os.getpid()}}
    (home / "up.json").write_text(json.dumps(up))
    return {part.name: part for part in checkup.check_platform(settings, timeout_s=1).parts}


def test_a_part_that_is_not_ready_for_a_moment_is_asked_again(tmp_path: Path) -> None:
    with answering([503, 503, 200]) as api:
        parts = parts_of(tmp_path, api)
    assert parts["api"].ok
    assert (parts["ui"].ok, parts["daemon"].ok) == (False, False), "nobody listens there"


def test_a_part_that_stays_unready_is_said_to_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkup, "ANSWER_S", 1.0)
    with answering([503]) as api:
        part = parts_of(tmp_path, api)["api"]
    assert (part.ok, part.detail) == (False, f"{api}/readyz answers 503")
