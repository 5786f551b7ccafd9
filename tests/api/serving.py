"""The API as its clients see it: in a thread of this process, or as a process of its own."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy import Engine
from sqlalchemy.engine import URL

from platform_defs.api.app import close_services, create_app
from platform_defs.api.http import auth
from platform_defs.api.http.drain import Drain
from platform_defs.api.http.server import DrainingServer, bind, listener_url
from platform_defs.api.observe import health
from platform_defs.api.observe.bounded_metrics import BoundedCollector
from platform_defs.graph.open import open_graph
from platform_defs.settings import Settings
from tests import loopback
from tests.graph.conftest import UNHURRIED
from tests.waiting import PATIENCE_S, until

ROOT = Path(__file__).resolve().parents[2]
# the most that PLATFORM_LINEAGE_DEADLINE_S may be
LONGEST_DEADLINE_S = 60.0
CODE = "from platform_defs.cli import main; main()"
# a stop that takes as long as a busy machine needs, after a grace that the test says; and look-ups as `unhurried` has
SERVE = f"""
import sys
from platform_defs.api.http import auth, drain, server
from platform_defs.api.observe import health
server.DrainingServer.__init__.__kwdefaults__["grace"] = float(sys.argv.pop())
drain.ANSWER_TIMEOUT_S = server.LAST_RESORT_S = {PATIENCE_S}
auth.LOOKUP_TIMEOUT_S = health.CHECK_TIMEOUT_S = {PATIENCE_S}
{CODE}
"""


@dataclass(frozen=True)
class Api:
    """A running API, a client for it, and what is behind it."""

    url: str
    client: httpx.Client
    engine: Engine
    app: FastAPI
    server: DrainingServer


@contextmanager
def unhurried() -> Iterator[None]:
    """The limits within which /metrics, /readyz and the look-up of a key answer are as long as a test waits."""
    with pytest.MonkeyPatch.context() as limits:
        limits.setitem(BoundedCollector.__init__.__kwdefaults__, "seconds", PATIENCE_S)
        limits.setattr(health, "CHECK_TIMEOUT_S", PATIENCE_S)
        limits.setattr(auth, "LOOKUP_TIMEOUT_S", PATIENCE_S)
        yield


@contextmanager
def serve_api(
    engine: Engine, *, grace: float = 5.0, lineage_deadline_s: float = LONGEST_DEADLINE_S, **settings: Any
) -> Iterator[Api]:
    """On a busy machine, limits as short as in production would often be missed: what is about one sets it itself."""
    found = Settings(lineage_deadline_s=lineage_deadline_s, **settings)
    with unhurried(), _served(engine, grace, found) as running:
        yield running


@contextmanager
def _served(engine: Engine, grace: float, settings: Settings) -> Iterator[Api]:
    graph = open_graph(settings, engine, timeouts=UNHURRIED)
    drain = Drain()
    app = create_app(settings, engine, graph, drain)
    server = DrainingServer(app, drain, grace=grace)
    with bind("127.0.0.1", 0) as listener:
        url = listener_url(listener)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            with loopback.client(base_url=url) as client:
                yield Api(url, client, engine, app, server)
        finally:
            server.should_exit = True
            thread.join()
            close_services(app)
            graph.close()


def logged_requests(caplog: pytest.LogCaptureFixture, count: int) -> list[dict[str, Any]]:
    """The access log, once so many requests are in it: an answer may be read before its line is written."""

    def look() -> list[dict[str, Any]]:
        return [vars(record) for record in caplog.records if record.name == "platform_defs.api.access"]

    until(f"{count} lines of the access log", lambda: len(look()) >= count)
    return look()


def environment(database_url: URL, home: Path, **settings: str) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PLATFORM_")}
    return {
        **clean,
        "PLATFORM_HOME": str(home),
        "PLATFORM_DB_URL": database_url.render_as_string(hide_password=False),
        **{f"PLATFORM_{name.upper()}": value for name, value in settings.items()},
    }


def platform(*arguments: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """`platform …` in a process of its own, to its end."""
    return subprocess.run(
        [sys.executable, "-c", CODE, *arguments], cwd=ROOT, env=env, capture_output=True, text=True, timeout=PATIENCE_S
    )


class Process:
    """`platform serve` on a free port; `lines` are its log as far as it was read."""

    def __init__(self, env: dict[str, str], grace: float) -> None:
        command = [sys.executable, "-c", SERVE, "serve", "--port", "0", str(grace)]
        self.process = subprocess.Popen(command, cwd=ROOT, env=env, stderr=subprocess.PIPE, text=True)
        self.lines: list[dict[str, Any]] = []
        try:
            self.url: str = self.wait_for("listening")["url"]
        except BaseException:
            self.stop()
            raise

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])

    def wait_for(self, message: str) -> dict[str, Any]:
        for line in self._read():
            if line["message"].startswith(message):
                return line
        raise AssertionError(f"the process ended before it said {message!r}: {self.lines}")

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        """Reads the log to its end and returns the exit code."""
        try:
            for _ in self._read():
                pass
            return self.process.wait(timeout=PATIENCE_S)
        finally:
            assert self.process.stderr is not None
            self.process.stderr.close()

    def stop(self) -> int:
        if self.process.poll() is None:
            self.terminate()
        assert self.process.stderr is not None
        return self.process.wait(timeout=PATIENCE_S) if self.process.stderr.closed else self.wait()

    def _read(self) -> Iterator[dict[str, Any]]:
        assert self.process.stderr is not None
        for text in self.process.stderr:
            # a process that fails to start says so in plain text
            line: dict[str, Any] = json.loads(text) if text.startswith("{") else {"message": text, "logger": ""}
            self.lines.append(line)
            yield line

    def peak_memory(self) -> int:
        """Bytes of resident memory at its highest."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))


@contextmanager
def serve_process(env: dict[str, str], *, grace: float = PATIENCE_S) -> Iterator[Process]:
    running = Process(env, grace)
    try:
        yield running
    finally:
        running.stop()
