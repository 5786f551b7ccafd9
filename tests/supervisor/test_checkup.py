"""What a selfcheck says of parts that are busy, of those that are not there, and of those of another platform."""

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import mysql.connector
import pytest
from dagster import DagsterInstance
from neo4j import GraphDatabase
from sqlalchemy.engine import make_url

from platform_defs import dagster_instance
from platform_defs.dagster_instance import LOCATION
from platform_defs.selfcheck import database_digest
from platform_defs.settings import Settings
from platform_defs.store.engine import open_engine
from platform_defs.supervisor import checkup
from platform_defs.supervisor.ports import find_free_port
from platform_defs.upgrade import upgrade_stores
from platform_defs.work.wake import open_listener
from tests.api.serving import serve_api
from tests.waiting import PATIENCE_S


class Quiet(BaseHTTPRequestHandler):
    def answer(self, code: int, body: bytes = b"") -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(Handler: type[Quiet]) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def answering(codes: list[int]) -> AbstractContextManager[str]:
    """An API that answers with these codes, one after the other, and then with the last of them."""

    class Handler(Quiet):
        def do_GET(self) -> None:
            self.answer(codes.pop(0) if len(codes) > 1 else codes[0])

    return serving(Handler)


@contextmanager
def showing(info: str) -> Iterator[str]:
    """A UI of a Dagster instance with this configuration, in which all is well."""
    location = {"name": LOCATION, "loadStatus": "LOADED", "locationOrLoadError": {"__typename": "RepositoryLocation"}}
    data = {
        "instance": {"info": info, "daemonHealth": {"allDaemonStatuses": []}},
        "workspaceOrError": {"__typename": "Workspace", "locationEntries": [location]},
    }

    class Handler(Quiet):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.answer(200, json.dumps({"data": data}).encode())

    with serving(Handler) as url:
        yield url


@contextmanager
def silent() -> Iterator[tuple[int, Callable[[], int]]]:
    """A server that accepts connections and never says a word: its port, and how many connections it has had."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def count() -> int:
            # the kernel accepts them, so nothing depends on when this process looks
            found = 0
            listener.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while True:
                    listener.accept()[0].close()
                    found += 1
            return found

        yield listener.getsockname()[1], count


def parts_of(home: Path, api: str) -> dict[str, checkup.Part]:
    settings = Settings(home=home)
    upgrade_stores(settings)
    ui = f"http://127.0.0.1:{find_free_port('127.0.0.1')}"
    up = {"api": api, "ui": ui, "demo_key": None, "pids": {"api": os.getpid()}}
    (home / "up.json").write_text(json.dumps(up))
    return {part.name: part for part in check(settings).parts}


def check(settings: Settings) -> checkup.Checkup:
    return checkup.check_platform(settings, timeout_s=3 * PATIENCE_S)


def at(home: Path, *, api: str | None = None, ui: str | None = None) -> Settings:
    """The settings of a home whose API and UI are said to listen there; where nobody listens, if it is not said."""
    ports = {
        name: urlsplit(url).port if url else find_free_port("127.0.0.1") for name, url in (("api", api), ("ui", ui))
    }
    return Settings(home=home, api_port=ports["api"], ui_port=ports["ui"])


def test_a_part_that_is_not_ready_for_a_moment_is_asked_again(tmp_path: Path) -> None:
    with answering([503, 503, 200]) as api:
        parts = parts_of(tmp_path, api)
    assert parts["api"].ok
    assert (parts["ui"].ok, parts["daemon"].ok) == (False, False), "nobody listens there"


def test_a_part_that_stays_unready_is_said_to_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # a moment later its time is over, so that only the time for an answer depends on the machine
    waited: list[float] = []
    clock = SimpleNamespace(
        perf_counter=time.perf_counter,
        time=time.time,
        monotonic=lambda: sum(waited),
        sleep=lambda _: waited.append(2 * PATIENCE_S),
    )
    monkeypatch.setattr(checkup, "time", clock)
    with answering([503]) as api:
        part = parts_of(tmp_path, api)["api"]
    assert waited, "it was asked again"
    assert (part.ok, part.detail) == (False, f"{api}/readyz answers 503")


def test_a_database_that_is_silent_is_asked_once_and_what_is_in_it_is_not_asked(tmp_path: Path) -> None:
    with silent() as (port, count_connections):
        url = f"mysql+mysqlconnector://nobody@127.0.0.1:{port}/platform"
        (tmp_path / "up.lock").write_text(str(os.getpid()))
        found = checkup.check_platform(Settings(home=tmp_path, db_url=url), timeout_s=3)
        assert count_connections() == 1
    parts = {part.name: part for part in found.parts}
    assert parts["database"].detail.startswith("the database does not answer: ")
    assert (parts["graph"].ok, parts["graph"].detail) == (False, "not asked, because it is in the database")
    assert (parts["runner"].ok, parts["runner"].detail) == (False, "not asked, because its queue is in the database")


def test_a_neo4j_that_is_silent_is_asked_once_whatever_becomes_of_the_database(tmp_path: Path) -> None:
    with silent() as (port, count_connections):
        settings = at(tmp_path).model_copy(update={"graph_url": f"bolt://127.0.0.1:{port}"})
        found = checkup.check_platform(settings, timeout_s=3)
        assert count_connections() == 1
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
    stores = {"db_url": "mysql+mysqlconnector://x@127.0.0.1:1/x", "graph_url": "bolt://127.0.0.1:1"}
    settings = at(tmp_path).model_copy(update=stores)
    checkup.check_platform(settings, timeout_s=36)
    assert {given["database"][name] for name in ("connection_timeout", "read_timeout", "write_timeout")} == {12}
    assert {given["graph"][name] for name in ("connection_timeout", "connection_acquisition_timeout")} == {12.0}


@contextmanager
def api_of(home: Path) -> Iterator[str]:
    """The API that `platform serve` runs, on a home of its own."""
    settings = Settings(home=home)
    upgrade_stores(settings)
    engine = open_engine(settings.database_url)
    try:
        with serve_api(engine, home=home) as api:
            yield api.url
    finally:
        engine.dispose()


def instance_info(home: Path) -> str:
    """What the UI of a home tells of its instance."""
    settings = Settings(home=home)
    dagster_instance.prepare(settings)
    with DagsterInstance.from_config(str(settings.dagster_home)) as instance:
        return instance.info_str()


def state(found: checkup.Checkup) -> dict[str, bool]:
    return {part.name: part.ok for part in found.parts}


STORES = {"database": True, "graph": True}


def test_an_api_without_platform_up_is_asked_where_the_settings_say_and_is_running(tmp_path: Path) -> None:
    with api_of(tmp_path) as api:
        found = check(at(tmp_path, api=api))
    assert found.running
    assert not found.ok
    assert state(found) == {**STORES, "api": True, "ui": False, "daemon": False, "runner": False}


def test_an_api_that_is_dead_beside_a_runner_fails(tmp_path: Path) -> None:
    upgrade_stores(Settings(home=tmp_path))
    settings = at(tmp_path)
    with open_listener(tmp_path):
        found = check(settings)
    assert found.running
    assert state(found) == {**STORES, **dict.fromkeys(("api", "ui", "daemon", "runner"), False)}
    details = {part.name: part.detail for part in found.parts}
    assert details["api"] == f"http://127.0.0.1:{settings.api_port}/healthz does not answer yet"
    assert details["ui"] == details["daemon"] == f"http://127.0.0.1:{settings.ui_port}/graphql does not answer yet"


def test_what_another_platform_runs_at_these_addresses_is_not_of_this_home(tmp_path: Path) -> None:
    home, other = tmp_path / "home", tmp_path / "other"
    upgrade_stores(Settings(home=home))
    with api_of(other) as api, showing(instance_info(other)) as ui:
        settings = at(home, api=api, ui=ui)
        assert (check(settings).running, state(check(settings))) == (False, STORES)
        with open_listener(home):
            found = check(settings)
    assert state(found) == {**STORES, **dict.fromkeys(("api", "ui", "daemon", "runner"), False)}
    details = {part.name: part.detail for part in found.parts}
    assert details["api"] == f"what answers at {api} is not the API of this database"
    assert details["ui"] == details["daemon"] == f"what answers at {ui} is not the Dagster UI of {home}"


def test_a_ui_of_the_home_is_running_and_tells_of_the_daemon(tmp_path: Path) -> None:
    upgrade_stores(Settings(home=tmp_path))
    with showing(instance_info(tmp_path)) as ui:
        found = check(at(tmp_path, ui=ui))
    assert found.running
    assert state(found) == {**STORES, "api": False, "ui": True, "daemon": True, "runner": False}


@pytest.mark.parametrize("answer", [b"", b"<html>", b"[]", b"{}", b'{"status": "ok"}', b'{"data": {"instance": {}}}'])
def test_any_other_server_at_these_addresses_is_nothing_of_the_platform(tmp_path: Path, answer: bytes) -> None:
    class Handler(Quiet):
        def do_GET(self) -> None:
            self.answer(200, answer)

        do_POST = do_GET

    upgrade_stores(Settings(home=tmp_path))
    with serving(Handler) as other:
        found = check(at(tmp_path, api=other, ui=other))
    assert (found.running, state(found)) == (False, STORES)


def test_what_speaks_no_http_there_does_not_answer(tmp_path: Path) -> None:
    upgrade_stores(Settings(home=tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet() -> None:
            for _ in range(2):
                connection = listener.accept()[0]
                connection.recv(65536)
                connection.sendall(b"220 mail.example\r\n")
                connection.close()

        thread = threading.Thread(target=greet, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        found = check(at(tmp_path, api=url, ui=url))
        thread.join()
    assert (found.running, state(found)) == (False, STORES)


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("mysql://a:b@db/platform", "mysql://c:d@db:3306/platform?ssl_disabled=true", True),
        ("mysql://a@db/platform", "mysql://a@db/other", False),
        ("mysql://a@db/platform", "mysql://a@db:3307/platform", False),
        ("mysql://a@/platform?unix_socket=/run/a.sock", "mysql://a@/platform?unix_socket=/run/b.sock", False),
        ("sqlite:////tmp/a/../b.db", "sqlite:////tmp/b.db", True),
        ("sqlite:////tmp/a.db", "sqlite:////tmp/b.db", False),
    ],
)
def test_a_database_is_the_same_whoever_connects_and_however(one: str, other: str, is_same: bool) -> None:
    assert (database_digest(make_url(one)) == database_digest(make_url(other))) is is_same
