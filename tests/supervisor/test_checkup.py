"""What a selfcheck says of parts that are busy, and of those that are not there."""

import contextlib
import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import mysql.connector
import pytest
from neo4j import GraphDatabase

from platform_defs.settings import Settings
from platform_defs.supervisor import checkup
from platform_defs.supervisor.ports import find_free_port
from platform_defs.upgrade import upgrade_stores
from tests.waiting import PATIENCE_S


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


@contextmanager
def silent() -> Iterator[tuple[int, list[socket.socket]]]:
    """A server that accepts connections and never says a word: its port, and the connections that it has had."""
    accepted: list[socket.socket] = []

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                accepted.append(listener.accept()[0])

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield listener.getsockname()[1], accepted
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
            for connection in accepted:
                connection.close()


def parts_of(home: Path, api: str, *, timeout_s: float = 3 * PATIENCE_S) -> dict[str, checkup.Part]:
    settings = Settings(home=home)
    upgrade_stores(settings)
    ui = f"http://127.0.0.1:{find_free_port('127.0.0.1')}"
    up = {"api": api, "ui": ui, "demo_key": None, "pids": {"api": os.getpid()}}
    (home / "up.json").write_text(json.dumps(up))
    return {part.name: part for part in checkup.check_platform(settings, timeout_s=timeout_s).parts}


def test_a_part_that_is_not_ready_for_a_moment_is_asked_again(tmp_path: Path) -> None:
    with answering([503, 503, 200]) as api:
        parts = parts_of(tmp_path, api)
    assert parts["api"].ok
    assert (parts["ui"].ok, parts["daemon"].ok) == (False, False), "nobody listens there"


def test_a_part_that_stays_unready_is_said_to_fail(tmp_path: Path) -> None:
    with answering([503]) as api:
        part = parts_of(tmp_path, api, timeout_s=3)["api"]
    assert (part.ok, part.detail) == (False, f"{api}/readyz answers 503")


def test_a_database_that_is_silent_is_asked_once_and_what_is_in_it_is_not_asked(tmp_path: Path) -> None:
    with silent() as (port, accepted):
        url = f"mysql+mysqlconnector://nobody@127.0.0.1:{port}/platform"
        (tmp_path / "up.lock").write_text(str(os.getpid()))
        found = checkup.check_platform(Settings(home=tmp_path, db_url=url), timeout_s=3)
        assert len(accepted) == 1
    parts = {part.name: part for part in found.parts}
    assert parts["database"].detail.startswith("the database does not answer: ")
    assert (parts["graph"].ok, parts["graph"].detail) == (False, "not asked, because it is in the database")
    assert (parts["runner"].ok, parts["runner"].detail) == (False, "not asked, because its queue is in the database")


def test_a_neo4j_that_is_silent_is_asked_once_whatever_becomes_of_the_database(tmp_path: Path) -> None:
    with silent() as (port, accepted):
        settings = Settings(home=tmp_path, graph_url=f"bolt://127.0.0.1:{port}")
        found = checkup.check_platform(settings, timeout_s=3)
        assert len(accepted) == 1
    parts = {part.name: part for part in found.parts}
    assert not parts["database"].ok, "it is not migrated"
    assert f"Neo4j at bolt://127.0.0.1:{port} does not answer" in parts["graph"].detail


def test_the_time_that_each_part_has_reaches_the_drivers_of_both_stores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, dict[str, Any]] = {}

    def connect(*_: object, **options: Any) -> None:
        given["database"] = options
        raise mysql.connector.errors.InterfaceError("away", errno=2003)

    def open_driver(*_: object, **options: Any) -> None:
        given["graph"] = options
        raise ValueError("away")

    monkeypatch.setattr(mysql.connector, "connect", connect)
    monkeypatch.setattr(GraphDatabase, "driver", open_driver)
    settings = Settings(home=tmp_path, db_url="mysql+mysqlconnector://x@127.0.0.1:1/x", graph_url="bolt://127.0.0.1:1")
    checkup.check_platform(settings, timeout_s=36)
    assert {given["database"][name] for name in ("connection_timeout", "read_timeout", "write_timeout")} == {12}
    assert {given["graph"][name] for name in ("connection_timeout", "connection_acquisition_timeout")} == {12.0}
