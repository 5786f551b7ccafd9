"""The API as a process: how it starts, refuses to start, behaves under attack, and stops."""

import contextlib
import gzip
import http.client
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy.engine import URL

from platform_defs.access.keys import issue_key
from platform_defs.api.http.auth import is_loopback
from platform_defs.api.http.server import GRACE_S
from platform_defs.store import migrate
from platform_defs.store.engine import open_engine
from tests import loopback
from tests.access.gateways import AUDIENCE, ISSUER, SigningKey
from tests.api.serving import ROOT, environment, platform, serve_api, serve_process
from tests.conftest import STORES
from tests.waiting import PATIENCE_S, until

PATH = "/api/openlineage"


@pytest.fixture
def env(database_url: URL, tmp_path: Path) -> dict[str, str]:
    engine = open_engine(database_url)
    migrate.upgrade(engine)
    engine.dispose()
    return environment(database_url, tmp_path)


@pytest.fixture
def key(env: dict[str, str]) -> str:
    engine = open_engine(env["PLATFORM_DB_URL"])
    try:
        return issue_key(engine, "test", ["lineage:write"])
    finally:
        engine.dispose()


def connection_to(port: int) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)


class Upload:
    """A request that is in progress until its body is finished; closed with the stack, whatever becomes of it."""

    def __init__(self, port: int, key: str, stack: contextlib.ExitStack) -> None:
        self.connection = stack.enter_context(contextlib.closing(connection_to(port)))
        self.connection.putrequest("POST", PATH)
        self.connection.putheader("Authorization", f"Bearer {key}")
        self.connection.putheader("Content-Length", "4")
        # the server asks for the body only once the request is in its hands
        self.connection.putheader("Expect", "100-continue")
        self.connection.endheaders()
        assert self.connection.sock.recv(100).startswith(b"HTTP/1.1 100")
        self.connection.send(b"{ ")

    def finish(self) -> None:
        self.connection.send(b" }")

    def answer(self) -> tuple[int, dict[str, str], str | None]:
        response = self.connection.getresponse()
        body = json.loads(response.read())
        return response.status, body, response.headers["connection"]


def wait_until_refused(port: int) -> None:
    def refused() -> bool:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S).close()
        except ConnectionRefusedError:
            return True
        except ConnectionResetError:
            return False  # accepted by the kernel in the moment in which the listener closed
        return False

    until("the process to refuse connections", refused)


def test_the_api_starts_without_dagster() -> None:
    code = "import sys, platform_defs.api.app, platform_defs.commands.serve; print('dagster' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr


def test_a_database_that_is_behind_is_refused_in_one_line(database_url: URL, tmp_path: Path) -> None:
    done = platform("serve", "--port", "0", env=environment(database_url, tmp_path))
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "platform db upgrade" in done.stderr


def test_a_taken_port_is_one_line_that_names_it(env: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = platform("serve", "--port", str(port), env=env)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        f"platform: port {port} on 127.0.0.1 is already taken; choose another with --port"
    ]


def test_an_open_door_refuses_any_bind_but_loopback(env: dict[str, str]) -> None:
    done = platform("serve", "--host", "0.0.0.0", "--port", "0", env={**env, "PLATFORM_AUTH": "open"})
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "platform: PLATFORM_AUTH=open is only allowed on a loopback address, not on 0.0.0.0"
    ]


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True),
        ("127.1.2.3", True),
        ("::1", True),
        ("localhost", True),
        ("::", False),
        ("10.0.0.1", False),
        ("example.org", False),
        ("localhost.example.org", False),
        ("", False),
    ],
)
def test_only_names_that_can_mean_nothing_but_this_machine_are_loopback(host: str, local: bool) -> None:
    assert is_loopback(host) is local


def test_a_small_gzip_bomb_is_413_without_memory_growth(env: dict[str, str], key: str) -> None:
    bomb = gzip.compress(b"[" + b" " * (20 << 20) + b"]", 9)
    assert len(bomb) < 21 << 10
    headers = {"Authorization": key}
    with serve_process({**env, "PLATFORM_BODY_LIMIT": str(1 << 20)}) as api:
        with loopback.client(base_url=api.url) as client:
            assert client.post(PATH, content=b"{}", headers=headers).status_code == 400
            before = api.peak_memory()
            for _ in range(10):
                answer = client.post(PATH, content=bomb, headers=headers)
                assert answer.status_code == 413
                assert "expected a body of at most 1048576 bytes after decompression" in answer.json()["message"]
        assert api.peak_memory() - before < 6 << 20
    with serve_process(env) as api:
        answer = loopback.post(api.url + PATH, content=bomb, headers=headers)
        assert answer.status_code == 413


# how MariaDB refuses a second row is tested on its own; what two processes add to it is the same as on MySQL
@pytest.mark.parametrize("database_url", STORES[:2], indirect=True)
def test_of_two_processes_that_get_one_assertion_exactly_one_accepts_it(env: dict[str, str], tmp_path: Path) -> None:
    signing = SigningKey("2026-11", tmp_path)
    env |= {
        "PLATFORM_GATEWAY_KEYS": signing.setting,
        "PLATFORM_GATEWAY_ISSUER": ISSUER,
        "PLATFORM_GATEWAY_AUDIENCE": AUDIENCE,
    }
    with serve_process(env) as first, serve_process(env) as second, ThreadPoolExecutor(2) as pool:
        for _ in range(10):
            headers = {"X-Gateway-Assertion": signing.sign()}
            send = partial(loopback.post, json={}, headers=headers)
            answers = pool.map(send, (first.url + PATH, second.url + PATH))
            assert sorted(answer.status_code for answer in answers) == [400, 401]


def test_no_secret_appears_in_the_logs(env: dict[str, str], key: str, tmp_path: Path) -> None:
    signing = SigningKey("2026-11", tmp_path)
    token = signing.sign()
    env |= {
        "PLATFORM_GATEWAY_KEYS": signing.setting,
        "PLATFORM_GATEWAY_ISSUER": ISSUER,
        "PLATFORM_GATEWAY_AUDIENCE": AUDIENCE,
        "PLATFORM_LOG_LEVEL": "DEBUG",
    }
    with serve_process(env) as api:
        with loopback.client(base_url=api.url) as client:
            for headers in ({"Authorization": key}, {"X-API-Key": key}, {"X-Gateway-Assertion": token}):
                sent = {**headers, "X-Request-Id": "trace-7"}
                assert client.post(PATH, params={"api_key": key}, json={}, headers=sent).status_code == 400
            client.get(f"/{key}/{token}")
        assert api.stop() == 0
        text = json.dumps(api.lines)
    assert key.split("_")[2] not in text
    assert token.split(".")[2] not in text
    requests = [line for line in api.lines if line["logger"] == "platform_defs.api.access"]
    assert [line["status"] for line in requests] == [400, 400, 400, 404]
    assert [line["requestId"] for line in requests[:3]] == ["trace-7"] * 3
    assert requests[0]["principal"] == "test"
    assert requests[0]["ms"] > 0


def test_sigterm_finishes_what_runs_refuses_what_comes_and_exits_0(env: dict[str, str], key: str) -> None:
    with serve_process(env) as api, contextlib.ExitStack() as stack:
        kept_alive = stack.enter_context(contextlib.closing(connection_to(api.port)))
        kept_alive.request("GET", "/healthz")
        kept_alive.getresponse().read()
        upload = Upload(api.port, key, stack)
        api.terminate()
        wait_until_refused(api.port)
        kept_alive.request("POST", PATH, body="{}", headers={"Authorization": key})
        late = kept_alive.getresponse()
        assert late.status == 503
        assert late.headers["connection"] == "close"
        assert json.loads(late.read())["status"] == "unavailable"
        upload.finish()
        assert upload.answer()[0] == 400
        assert api.wait() == 0
        assert not any("outlast the grace" in line["message"] for line in api.lines)


def test_sigterm_answers_503_to_what_outlasts_the_grace_and_exits_0(env: dict[str, str], key: str) -> None:
    with serve_process(env, grace=GRACE_S) as api, contextlib.ExitStack() as stack:
        uploads = [Upload(api.port, key, stack) for _ in range(3)]
        api.terminate()
        for upload in uploads:
            status, body, connection = upload.answer()
            assert (status, body["status"], connection) == (503, "unavailable", "close")
        assert api.wait() == 0
        refused = [line for line in api.lines if line["logger"] == "platform_defs.api.access"]
        assert [line["status"] for line in refused] == [503] * 3
        assert [line["message"] for line in api.lines if "outlast" in line["message"]] == [
            "3 requests outlast the grace of 5 s and are answered 503"
        ]


def test_an_idle_process_with_open_connections_stops_at_once(env: dict[str, str]) -> None:
    with serve_process(env) as api, contextlib.ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(socket.create_connection(("127.0.0.1", api.port)))
        api.terminate()
        assert api.wait() == 0
        assert not any("outlast the grace" in line["message"] for line in api.lines)


@pytest.fixture
def blocked() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def test_a_request_stuck_in_a_thread_is_answered_503_all_the_same(database_url: URL, blocked: threading.Event) -> None:
    engine = open_engine(database_url)
    entered = threading.Event()
    with serve_api(engine, grace=0.2) as api, ThreadPoolExecutor(1) as pool:

        @api.app.get("/api/v1/stuck")
        def stuck() -> str:
            entered.set()
            blocked.wait(PATIENCE_S)
            return "too late"

        answer = pool.submit(api.client.get, "/api/v1/stuck")
        assert entered.wait(PATIENCE_S)
        api.server.should_exit = True
        assert answer.result(PATIENCE_S).status_code == 503
        assert not blocked.is_set()
        blocked.set()
    engine.dispose()


def test_a_process_refuses_a_broken_gateway_key_in_one_line(env: dict[str, str]) -> None:
    done = platform("serve", "--port", "0", env={**env, "PLATFORM_GATEWAY_KEYS": "nonsense"})
    assert done.returncode == 1
    assert "PLATFORM_GATEWAY_ISSUER" in done.stderr
    assert "Traceback" not in done.stderr
