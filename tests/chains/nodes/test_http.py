"""The node type `http` against real servers on loopback: what is sent, what counts, and what is never reached."""

import json
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from ipaddress import ip_network
from typing import Any

import pytest
from sqlalchemy import Engine, select

from platform_defs.chains.nodes.catalogue import cfg_problems
from platform_defs.chains.nodes.environment import NodeEnvironment
from platform_defs.chains.nodes.port import NodeFailed, NodeStopped
from platform_defs.store.tables.rate_gate import rate_gate as gate_rows
from platform_defs.webhooks.addresses import resolve_by_system
from tests.chains.nodes.attempts import Bench, open_bench
from tests.http_door.source import Asked, Reply, Source, answer, serving
from tests.waiting import PATIENCE_S, until

LOOPBACK = (ip_network("127.0.0.1/32"),)
METADATA = "169.254.169.254"

on_sqlite = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
pytestmark = on_sqlite

_watched: list[list[Any]] = []


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "socket.connect" and _watched:
        _watched[-1].append(arguments[1])


sys.addaudithook(_audit)


@pytest.fixture
def connections() -> Iterator[list[Any]]:
    """Every address that this process tries to connect to, as the interpreter itself reports it."""
    _watched.append([])
    yield _watched[-1]
    _watched.pop()


Open = Callable[..., Bench]


@pytest.fixture
def bench(engine: Engine) -> Iterator[Open]:
    opened: list[Bench] = []

    def open_it(resolver: Callable[[str, int], Sequence[str]] = resolve_by_system, **above: Any) -> Bench:
        environment = NodeEnvironment(engine, networks=LOOPBACK, resolver=resolver)
        opened.append(open_bench(engine, environment, above=above))
        return opened[-1]

    yield open_it
    for each in opened:
        each.types.close()


def test_a_request_is_sent_as_it_is_written_and_its_json_answer_is_the_artifact(
    bench: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHAIN_TOKEN", "hunter2hunter2")
    echo = json.dumps({"rows": [1, 2], "you sent": "Bearer hunter2hunter2"}).encode()
    with serving(answer(201, echo, Content_Type="application/json")) as server:
        at_work = bench(a={"id": "x y&z"})
        cfg = {
            "method": "POST",
            "url": server.url("/jobs?v=1"),
            "query": {"id": "${nodes.a.artifact.id}", "tag": ["a", "b"], "key": "env:CHAIN_TOKEN"},
            "headers": {"Authorization": "Bearer env:CHAIN_TOKEN", "X-Day": "${params.day}"},
            "body": {"day": "${params.day}", "secret": ["env:CHAIN_TOKEN"]},
        }
        artifact = at_work.artifact("http", cfg, {"day": 20251219})
        shown = server.url("/jobs")
    (asked,) = server.asked
    assert (asked.method, asked.target) == ("POST", "/jobs?v=1&id=x+y%26z&tag=a&tag=b&key=hunter2hunter2")
    assert asked.headers["authorization"] == "Bearer hunter2hunter2"
    assert asked.headers["x-day"] == "20251219"
    assert asked.headers["content-type"] == "application/json"
    assert json.loads(asked.body) == {"day": 20251219, "secret": ["hunter2hunter2"]}
    assert artifact == {"rows": [1, 2], "you sent": "Bearer ***"}
    assert at_work.lines == [f"POST {shown}", f"status 201, {len(echo)} bytes"]


@pytest.mark.parametrize(("reply", "artifact"), [(answer(200, b"plain"), None), (answer(204, b""), None)])
def test_an_answer_that_is_no_json_is_a_success_without_artifact(bench: Open, reply: Reply, artifact: Any) -> None:
    with serving(reply) as server:
        assert bench().artifact("http", {"url": server.url()}) is artifact


def test_any_other_status_fails_the_attempt_with_the_beginning_of_the_answer(
    bench: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHAIN_URL_KEY", "hunter2hunter2")
    refusal = answer(422, b'{"detail": "no such day, key hunter2hunter2"}')
    with serving(refusal) as server:
        shown = server.url("/x")
        with pytest.raises(NodeFailed) as raised:
            bench().perform("http", {"url": f"{shown}?token=abc", "query": {"k": "env:CHAIN_URL_KEY"}})
    assert f"GET {shown}: status 422" in str(raised.value)
    assert "no such day, key ***" in str(raised.value)
    assert "abc" not in str(raised.value)
    assert raised.value.may_retry
    assert len(server.asked) == 1


def test_a_url_that_is_a_secret_is_never_shown(bench: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(answer(500)) as server:
        monkeypatch.setenv("CHAIN_HOOK", server.url("/services/T0/hunter2?x=1"))
        at_work = bench()
        with pytest.raises(NodeFailed) as raised:
            at_work.perform("http", {"url": "env:CHAIN_HOOK"})
    assert len(server.asked) == 1
    assert "hunter2" not in f"{raised.value} {at_work.lines}"
    assert "GET env:CHAIN_HOOK: status 500" in str(raised.value)


class TestAddresses:
    """An address that is not permitted is refused before any connection is made to it."""

    @pytest.mark.parametrize(
        "url",
        [f"http://{METADATA}/latest", "http://2852039166/", "http://[::ffff:169.254.169.254]/", "http://0xa9fea9fe/"],
    )
    def test_in_the_url_itself(self, bench: Open, connections: list[Any], url: str) -> None:
        at_work = bench()
        assert any("not a public address" in text for text in cfg_problems(at_work.types, "n", "http", {"url": url}))
        for cfg, params in (({"url": url}, {}), ({"url": "${params.url}"}, {"url": url})):
            with pytest.raises(NodeFailed, match="PLATFORM_HTTP_ALLOW") as raised:
                at_work.perform("http", cfg, params)
            assert not raised.value.may_retry
        assert connections == []

    def test_by_a_name(self, bench: Open, connections: list[Any]) -> None:
        asked: list[str] = []

        def resolver(host: str, port: int) -> list[str]:
            asked.append(host)
            return [METADATA]

        with pytest.raises(NodeFailed, match=rf"metadata\.example \({METADATA}\) is not a public address") as raised:
            bench(resolver).perform("http", {"url": "http://metadata.example/latest"})
        assert not raised.value.may_retry
        assert asked == ["metadata.example"]
        assert connections == []

    @pytest.mark.parametrize("target", [f"http://{METADATA}/latest", "http://metadata.example/latest"])
    def test_by_a_redirect(self, bench: Open, connections: list[Any], target: str) -> None:
        def resolver(host: str, port: int) -> Sequence[str]:
            return [METADATA] if host == "metadata.example" else resolve_by_system(host, port)

        with serving(answer(302, b"", Location=target)) as server:
            with pytest.raises(NodeFailed, match="is not a public address"):
                bench(resolver).perform("http", {"url": server.url()})
            port = server.listener.getsockname()[1]
        assert set(connections) == {("127.0.0.1", port)}

    def test_of_several_addresses_only_permitted_ones_are_connected_to(
        self, bench: Open, connections: list[Any]
    ) -> None:
        with serving(answer(200, b"[]")) as server:
            port = server.listener.getsockname()[1]
            both = bench(lambda host, number: [METADATA, "127.0.0.1"])
            assert both.artifact("http", {"url": f"http://mixed.example:{port}/"}) == []
        assert connections == [("127.0.0.1", port)]

    def test_a_secret_of_the_platform(
        self, bench: Open, connections: list[Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PLATFORM_DB_URL", "mysql://u:hunter2@h/d")
        with serving(answer(200)) as server:
            at_work = bench()
            for place in ("headers", "query", "body"):
                cfg: dict[str, Any] = {"method": "POST", "url": server.url(), place: {"X-Leak": "env:PLATFORM_DB_URL"}}
                assert any("env:PLATFORM_DB_URL" in text for text in cfg_problems(at_work.types, "n", "http", cfg))
                with pytest.raises(NodeFailed, match="PLATFORM_CHAIN_ENV") as raised:
                    at_work.perform("http", cfg)
                assert "hunter2" not in str(raised.value)
        assert connections == []
        assert server.asked == []


def test_a_redirect_to_another_origin_is_followed_without_credentials(
    bench: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHAIN_TOKEN", "hunter2hunter2")
    with (
        serving(answer(200, b'{"here": true}')) as there,
        serving(answer(302, b"", Location=there.url("/new"))) as here,
    ):
        cfg = {"url": here.url(), "headers": {"Authorization": "Bearer env:CHAIN_TOKEN"}}
        assert bench().artifact("http", cfg) == {"here": True}
        assert "authorization" in here.asked[0].headers
        assert there.asked[0].target == "/new"
        assert "authorization" not in there.asked[0].headers
        with pytest.raises(NodeFailed, match="status 302"):
            bench().perform("http", {**cfg, "followRedirects": False})


def test_requests_pass_the_rate_gate_under_their_key_or_their_host(bench: Open, engine: Engine) -> None:
    with serving(answer(200)) as server:
        at_work = bench()
        at_work.perform("http", {"url": server.url()})
        at_work.perform("http", {"url": server.url(), "rateKey": "reports", "ratePerSecond": 2.5})
    with engine.connect() as connection:
        keys = set(connection.execute(select(gate_rows.c[0])).scalars())
    assert keys == {"chain:127.0.0.1", "chain:reports"}


def stopping(at_work: Bench) -> Callable[[Asked, socket.socket], None]:
    """A server that never answers; while it does not, the run is stopped."""
    return lambda asked, connection: at_work.stop.set("the run was stopped by ann")


def test_a_stop_ends_a_request_that_is_under_way(bench: Open) -> None:
    at_work = bench()
    with serving(stopping(at_work)) as server, pytest.raises(NodeStopped, match="stopped by ann"):
        at_work.perform("http", {"url": server.url()})


def test_a_stop_ends_a_connection_that_is_not_accepted(bench: Open, connections: list[Any]) -> None:
    """A full backlog: the kernel answers no further connection, as with a host that drops packets."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        waiting = []
        for _ in range(4):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(address)
            waiting.append(filler)
        at_work = bench()
        connections.clear()
        ended: list[BaseException] = []

        def attempt() -> None:
            try:
                at_work.perform("http", {"url": f"http://127.0.0.1:{address[1]}/"})
            except NodeStopped as error:
                ended.append(error)

        thread = threading.Thread(target=attempt)
        thread.start()
        until("the connection attempt", lambda: connections)
        at_work.stop.set("its time is over")
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
        assert [str(error) for error in ended] == ["its time is over"]
        for filler in waiting:
            filler.close()


@pytest.mark.parametrize(
    ("cfg", "problem"),
    [
        ({"url": "ftp://example.org/"}, "cfg.url: expected an absolute http or https URL"),
        ({"url": "http://u:p@example.org/"}, "cfg.url: expected no user or password"),
        ({}, "cfg.url: expected a value, it is missing"),
        ({"url": "http://example.org", "method": "TRACE"}, "cfg.method: "),
        ({"url": "http://example.org", "headers": {"Host": "x"}}, "cfg.headers: expected the name of a header"),
        ({"url": "http://example.org", "headers": {"X": "a\r\nb"}}, "cfg.headers.X: expected printable ASCII"),
        ({"url": "http://example.org", "headers": {"X": "file:/etc/passwd"}}, "cfg.headers.X: expected env:NAME"),
        ({"url": "http://example.org", "body": 1}, "cfg.body: a GET request has no body"),
    ],
)
def test_problems_are_told_when_a_chain_is_saved(bench: Open, cfg: dict[str, Any], problem: str) -> None:
    assert any(problem in text for text in cfg_problems(bench().types, "n", "http", cfg))


def test_used_twice_in_a_row_it_shares_its_connection(bench: Open) -> None:
    at_work = bench()
    with serving(answer(200, b"[1]")) as server:
        source: Source = server
        assert [at_work.artifact("http", {"url": server.url()}) for _ in range(3)] == [[1]] * 3
    assert source.connections == 1


@pytest.mark.parametrize(
    ("written", "value", "target"),
    [
        ("/orders?day=${params.v}", "1&admin=true#x", "/orders?day=1%26admin%3Dtrue%23x"),
        ("/orders/${params.v}/lines", "../../keys", "/orders/..%2F..%2Fkeys/lines"),
        ("/orders/${params.v}?n=${params.n}", "a b", "/orders/a%20b?n=7"),
    ],
)
def test_a_value_within_a_url_is_one_part_of_it(bench: Open, written: str, value: str, target: str) -> None:
    with serving(answer(200)) as server:
        bench().perform("http", {"url": server.url(written)}, {"v": value, "n": 7})
        # before the path a value is the beginning of the URL, which somebody who starts the chain may choose
        bench().perform("http", {"url": "${params.v}/a"}, {"v": server.url("/base")})
        bench().perform("http", {"url": "${params.v}"}, {"v": server.url("/whole?x=1")})
    assert [asked.target for asked in server.asked] == [target, "/base/a", "/whole?x=1"]


def test_a_value_that_is_a_step_of_a_path_or_missing_is_refused(bench: Open, connections: list[Any]) -> None:
    for params, problem in (({"v": ".."}, "no step of a path"), ({}, "params.v is missing"), ({"v": [1]}, "a list")):
        with pytest.raises(NodeFailed, match=r"cfg /url: ") as raised:
            bench().perform("http", {"url": "http://127.0.0.1:1/a/${params.v}/b"}, params)
        assert problem in str(raised.value)
    assert connections == []
