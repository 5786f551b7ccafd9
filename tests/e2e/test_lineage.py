"""The running sink: stock clients, the corpus of real events, and what crashes and absent servers leave behind."""

import asyncio
import csv
import json
import random
import sys
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import sql_job
from openlineage.client.transport.async_http import AsyncHttpConfig, AsyncHttpTransport
from openlineage.client.transport.http import HttpConfig, HttpTransport
from prometheus_client import CollectorRegistry
from sqlalchemy import Engine, func, select
from sqlalchemy.engine import URL

from platform_defs.access.keys import issue_key
from platform_defs.access.principal import Principal, SourceType
from platform_defs.access.tenants import Tenant, add_tenant, find_tenant
from platform_defs.cli import main
from platform_defs.graph.neo4j import Timeouts
from platform_defs.graph.open import open_graph
from platform_defs.graph.text import graph_lines
from platform_defs.lineage.intake.intake import Intake
from platform_defs.lineage.intake.known_tenants import KnownTenants
from platform_defs.lineage.sink.commit import EmbeddedCommitter
from platform_defs.lineage.sink.metrics import SinkMetrics
from platform_defs.lineage.upkeep.recovery import recover
from platform_defs.settings import Settings
from platform_defs.store import migrate
from platform_defs.store.engine import open_engine
from platform_defs.store.tables.lineage import lineage_dead_letter, lineage_events
from platform_defs.upgrade import upgrade_stores
from tests import loopback
from tests.api.serving import environment, platform
from tests.conftest import dropped_databases, new_database
from tests.e2e.conftest import UNHURRIED
from tests.e2e.cut import Cable, cable
from tests.e2e.serving import Serving
from tests.graph.conftest import UNHURRIED as UNHURRIED_GRAPH
from tests.lineage_events import run_event
from tests.needs import require
from tests.waiting import PATIENCE_S, until

PATH = "/api/openlineage"
Command = Callable[..., tuple[int, str]]
BACKENDS = (
    pytest.param("embedded"),
    pytest.param("servers", marks=pytest.mark.needs("mysql", "neo4j")),
)
EVENTS = 500
CLIENTS = 48


@dataclass
class Host:
    """A database and a graph, and the API process that is running on them."""

    environment: dict[str, str]
    engine: Engine
    graph_url: str
    process: Serving


@dataclass(frozen=True)
class Place:
    """One tenant on a host, and its key: a host serves many tests, each as a tenant of its own."""

    host: Host
    tenant: Tenant
    key: str

    @property
    def environment(self) -> dict[str, str]:
        return self.host.environment

    @property
    def engine(self) -> Engine:
        return self.host.engine

    @property
    def url(self) -> str:
        return self.host.process.url

    @contextmanager
    def graph(self) -> Iterator[Any]:
        opened = open_graph(Settings(graph_url=self.host.graph_url), self.engine, timeouts=UNHURRIED_GRAPH)
        try:
            yield opened
        finally:
            opened.close()

    def lines(self) -> list[str]:
        with self.graph() as graph:
            return list(graph_lines(graph.for_tenant(self.tenant.id)))

    def rows(self) -> int:
        mine = select(func.count()).select_from(lineage_events).where(lineage_events.c.tenant_id == self.tenant.id)
        with self.engine.connect() as connection:
            return int(connection.execute(mine).scalar_one())

    def recover(self) -> None:
        with self.graph() as graph:
            recover(self.engine, graph, patience=timedelta(seconds=-60))


@contextmanager
def host(url: URL, home: Path, graph_url: str = "embedded", *, seen_as: dict[str, str] | None = None) -> Iterator[Host]:
    """`seen_as`: settings by which the API alone sees the stores."""
    env = environment(url, home, graph_url=graph_url)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Timeouts.__init__, "__defaults__", astuple(UNHURRIED_GRAPH))
        upgrade_stores(Settings(home=home, db_url=url.render_as_string(hide_password=False), graph_url=graph_url))
    engine = open_engine(url)
    try:
        found = Host(env, engine, graph_url, Serving(env | (seen_as or {}), home))
        try:
            yield found
        finally:
            found.process.stop()
    finally:
        engine.dispose()


@contextmanager
def place(host: Host) -> Iterator[Place]:
    number = random.SystemRandom().randrange(10**6, 10**12)
    tenant = Tenant(number, f"t{number}", f"Tenant {number}")
    add_tenant(host.engine, tenant)
    key = issue_key(host.engine, "spark", {"lineage:write"}, source_type=SourceType.COMPUTE, tenant_id=tenant.id)
    found = Place(host, tenant, key)
    try:
        yield found
    finally:
        with found.graph() as graph:
            graph.for_tenant(tenant.id).clear()
        with host.engine.begin() as connection:
            connection.execute(lineage_dead_letter.delete())


@pytest.fixture(scope="module", params=BACKENDS)
def shared_host(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    home = tmp_path_factory.mktemp("sink")
    store = "sqlite" if request.param == "embedded" else "mysql"
    url, names = new_database(store, home)
    graph_url = "embedded" if request.param == "embedded" else require("neo4j")
    try:
        with host(url, home, graph_url, seen_as=UNHURRIED) as found:
            yield found
    finally:
        dropped_databases(store, names)


@pytest.fixture
def sink(shared_host: Host) -> Iterator[Place]:
    with place(shared_host) as found:
        yield found


# -- stock clients --------------------------------------------------------------------------------------------------


def stock_events() -> list[RunEvent]:
    run, time = Run(str(uuid.uuid4())), datetime.now(UTC)
    job = Job("spark", "daily", {"sql": sql_job.SQLJobFacet(query="insert into b.t select id from a.t")})
    return [
        RunEvent(
            eventType=kind,
            eventTime=(time + timedelta(seconds=offset)).isoformat(),
            run=run,
            job=job,
            producer="https://example.com",
            inputs=[InputDataset("hive://warehouse", "a.t")],
            outputs=[OutputDataset("hive://warehouse", "b.t")],
        )
        for offset, kind in enumerate((RunState.START, RunState.COMPLETE))
    ]


def options(sink: Place, compression: str | None) -> dict[str, Any]:
    found: dict[str, Any] = {
        "url": sink.url,
        "endpoint": "api/openlineage",
        "auth": {"type": "api_key", "apiKey": sink.key},
        "timeout": PATIENCE_S,
    }
    return found if compression is None else found | {"compression": compression}


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_the_stock_python_client_delivers_synchronously(sink: Place, compression: str | None) -> None:
    transport = HttpTransport(HttpConfig.from_dict(options(sink, compression)))
    try:
        client = OpenLineageClient(transport=transport)
        for event in stock_events():
            client.emit(event)
    finally:
        transport.close()
    assert sink.rows() == 2
    assert any("OUTPUT_TO" in line for line in sink.lines())


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_the_stock_python_client_delivers_asynchronously(sink: Place, compression: str | None) -> None:
    transport = AsyncHttpTransport(AsyncHttpConfig.from_dict(options(sink, compression)))
    try:
        client = OpenLineageClient(transport=transport)
        for _ in range(10):
            for event in stock_events():
                client.emit(event)
        assert transport.wait_for_completion(PATIENCE_S)
        assert transport.get_stats()["failed"] == 0
    finally:
        transport.close(5)
    assert sink.rows() == 20
    node = next(json.loads(line) for line in sink.lines() if '"SQL"' in line)
    assert node["props"]["executionCount"] == 10


# -- the corpus -----------------------------------------------------------------------------------------------------


def corpus() -> Iterator[tuple[str, bool, Any]]:
    """Name, whether the index calls it acceptable to a lenient reader, and content."""
    folder = Path(require("data")) / "openlineage"
    with (folder / "INDEX.tsv").open(encoding="utf-8", newline="") as index:
        for row in csv.DictReader(index, delimiter="\t"):
            yield row["file"], row["lenient_ok"] == "1", json.loads((folder / row["file"]).read_text(encoding="utf-8"))


@pytest.mark.needs("data")
def test_the_corpus_of_real_events_lands_once_however_often_it_is_sent(sink: Place) -> None:
    events = list(corpus())
    assert len(events) == 327

    def send() -> dict[str, httpx.Response]:
        headers = {"Authorization": f"Bearer {sink.key}"}
        with (
            loopback.client(base_url=sink.url, headers=headers) as client,
            ThreadPoolExecutor(8) as pool,
        ):
            answers = pool.map(lambda event: client.post(PATH, json=event), [event for _, _, event in events])
            return dict(zip([name for name, _, _ in events], answers, strict=True))

    answers = send()
    failed = {name: answer.text for name, answer in answers.items() if answer.status_code >= 500}
    assert failed == {}
    for name, lenient, event in events:
        answer = answers[name]
        if lenient:
            assert answer.status_code == 201, (name, answer.text)
        elif answer.status_code != 201:
            assert answer.status_code == 400, (name, answer.text)
            lacking = answer.json()["message"].split(":")[0]
            assert lacking in ("eventTime", "run.runId", "run"), (name, answer.text)
            assert not (isinstance(event, dict) and event.get("eventTime") and (event.get("run") or {}).get("runId"))
    rows, lines = sink.rows(), sink.lines()
    assert rows
    assert lines
    again = send()
    assert {name: answer.status_code for name, answer in again.items()} == {
        name: answer.status_code for name, answer in answers.items()
    }
    assert sink.rows() == rows
    assert sink.lines() == lines
    rebuilt = platform("lineage", "rebuild", "--tenant", str(sink.tenant.id), env=sink.environment)
    assert rebuilt.returncode == 0, rebuilt.stderr
    assert sink.lines() == lines


# -- faults ---------------------------------------------------------------------------------------------------------


def load() -> list[dict[str, Any]]:
    chance = random.Random(7)
    start = datetime(2026, 3, 1, tzinfo=UTC)
    return [
        run_event(
            run=str(uuid.UUID(int=chance.getrandbits(128))),
            time=(start + timedelta(seconds=index)).isoformat(),
            job=f"job{chance.randrange(40)}",
            reads=(f"raw.t{chance.randrange(30)}",),
            writes=(f"mart.t{chance.randrange(30)}",),
            sql=None if index % 2 else f"select * from raw.t{chance.randrange(30)}",  # noqa: S608
        )
        for index in range(EVENTS)
    ]


@dataclass
class Sent:
    accepted: int = 0
    refused: int = 0


def send_all(
    url: Callable[[], str],
    key: str,
    events: list[dict[str, Any]],
    at: dict[int, Callable[[Sent], None]],
    *,
    clients: int = CLIENTS,
    pauses: bool = True,
    patience_s: float = 4 * PATIENCE_S,
) -> Sent:
    """Every event until it is answered 201, as a client that retries does; `at` acts after so many were accepted.

    pauses: clients wait as they are told before they send again.
    """
    sent = Sent()
    waiting = list(reversed(events))
    actions = dict(at)

    async def client(http: httpx.AsyncClient) -> None:
        while waiting:
            event = waiting.pop()
            while (pause := await attempt(http, event)) is not None:
                await asyncio.sleep(pause)

    async def attempt(http: httpx.AsyncClient, event: dict[str, Any]) -> float | None:
        """After how many seconds the client tries again; None once the event is accepted."""
        try:
            answer = await http.post(url() + PATH, json=event, headers={"Authorization": f"Bearer {key}"})
        except (httpx.NetworkError, httpx.ProtocolError):
            return 0.1  # the process is gone: nothing was answered
        assert answer.status_code in (201, 503), answer.text
        if answer.status_code == 503:
            sent.refused += 1
            return float(answer.headers["Retry-After"]) if pauses else 0.0
        sent.accepted += 1
        if action := actions.pop(sent.accepted, None):
            await asyncio.to_thread(action, sent)
        return None

    async def main() -> None:
        unlimited = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE_S, limits=unlimited) as http:
            async with asyncio.timeout(patience_s):
                await asyncio.gather(*(client(http) for _ in range(clients)))

    asyncio.run(main())
    return sent


def clean_run(tmp_path: Path, tenant: Tenant, events: list[dict[str, Any]]) -> list[str]:
    """The graph that the events give on a store where nothing goes wrong."""
    engine = open_engine(f"sqlite:///{tmp_path}/clean.db")
    try:
        migrate.upgrade(engine)
        add_tenant(engine, tenant)
        source = Principal("key", "clean", frozenset(), SourceType.COMPUTE, tenant)
        intake = Intake(KnownTenants(engine))
        committer = EmbeddedCommitter(engine, SinkMetrics(CollectorRegistry()))
        for start in range(0, len(events), 500):
            committer.commit([intake.prepare(source, event).prepared for event in events[start : start + 500]])
        graph = open_graph(Settings(), engine)
        return list(graph_lines(graph.for_tenant(tenant.id)))
    finally:
        engine.dispose()


@pytest.mark.needs("time")
def test_an_api_that_is_killed_mid_load_loses_nothing_it_acknowledged(sink: Place, tmp_path: Path) -> None:
    events = load()

    def kill_and_restart(sent: Sent) -> None:
        sink.host.process.kill()
        sink.host.process = Serving(sink.environment | UNHURRIED, tmp_path)

    sent = send_all(
        lambda: sink.url, sink.key, events, {EVENTS // 4: kill_and_restart, EVENTS * 3 // 5: kill_and_restart}
    )
    assert sent.accepted == EVENTS
    assert sink.rows() == EVENTS
    sink.recover()
    assert sink.lines() == clean_run(tmp_path, sink.tenant, events)


def test_two_processes_that_get_the_same_events_store_and_count_each_once(sink: Place, tmp_path: Path) -> None:
    events = load()[:300]
    second = Serving(sink.environment | UNHURRIED, tmp_path)
    try:
        with ThreadPoolExecutor(2) as pool:
            sent = list(pool.map(lambda api: send_all(lambda: api.url, sink.key, events, {}), (sink, second)))
    finally:
        second.stop()
    assert [one.accepted for one in sent] == [300, 300]
    assert sink.rows() == 300
    assert sink.lines() == clean_run(tmp_path, sink.tenant, events)


@pytest.mark.needs("mysql", "neo4j")
@pytest.mark.parametrize("lost", ["graph", "database"])
def test_a_server_that_goes_away_mid_load_and_comes_back_leaves_both_stores_whole(lost: str, tmp_path: Path) -> None:
    url, names = new_database("mysql", tmp_path)
    graph = urlsplit(require("neo4j"))
    assert url.host
    assert graph.hostname
    try:
        with (
            cable(url.host, url.port or 3306) as database_cable,
            cable(graph.hostname, graph.port or 7687) as graph_cable,
        ):
            seen_as = {
                "PLATFORM_DB_URL": url.set(host="127.0.0.1", port=database_cable.port).render_as_string(False),
                "PLATFORM_GRAPH_URL": f"bolt://127.0.0.1:{graph_cable.port}",
                # longer than an event takes on a busy machine, and short enough for clients to be refused meanwhile
                "PLATFORM_LINEAGE_DEADLINE_S": "20",
            }
            with host(url, tmp_path, require("neo4j"), seen_as=seen_as) as own, place(own) as sink:
                _lose_and_find(sink, graph_cable if lost == "graph" else database_cable, tmp_path)
    finally:
        dropped_databases("mysql", names)


def _lose_and_find(sink: Place, wire: Cable, tmp_path: Path) -> None:
    events = load()

    def away(sent: Sent) -> None:
        wire.cut()
        # long enough for every client to be refused several times
        until("clients to be refused", lambda: sent.refused >= 5 * CLIENTS)
        wire.mend()

    sent = send_all(lambda: sink.url, sink.key, events, {EVENTS * 2 // 5: away})
    assert sent.accepted == EVENTS
    assert sent.refused > 0
    assert sink.rows() == EVENTS
    sink.recover()
    assert sink.lines() == clean_run(tmp_path, sink.tenant, events)


@pytest.fixture
def command(sink: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """`platform …` on the sink's stores, in this process: its exit code and what it printed."""
    monkeypatch.setattr(Timeouts.__init__, "__defaults__", astuple(UNHURRIED_GRAPH))

    def run(*arguments: str) -> tuple[int, str]:
        for name, value in sink.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys, "argv", ["platform", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), capsys.readouterr().out

    return run


def test_a_refused_event_can_be_listed_and_tried_again(sink: Place, command: Command) -> None:
    new = Tenant(sink.tenant.id + 1, f"n{sink.tenant.id}", "New")
    _, key = command("keys", "issue", "gravitino", "--scopes", "lineage:write", "--source-type", "gravitino")
    event = {
        "eventTime": "2026-03-01T10:00:00Z",
        "eventType": "COMPLETE",
        "producer": "gravitino",
        "run": {"runId": str(uuid.uuid4())},
        "job": {"namespace": f"gravitino://tenant/{new.id}", "name": "gravitino.create_schema"},
        "outputs": [{"namespace": f"gravitino://tenant/{new.id}/lake/hive", "name": "sales"}],
    }
    headers = {"Authorization": f"Bearer {key.strip()}"}
    answer = loopback.post(sink.url + PATH, json=event, headers=headers)
    assert answer.status_code == 400, answer.text
    _, listed = command("lineage", "dead-letters", "list", "--json")
    (letter,) = [json.loads(line) for line in listed.splitlines()]
    assert f"{new.id}" in letter["reason"]
    assert command("lineage", "dead-letters", "retry", str(letter["id"]))[0] == 1
    command("tenants", "add", str(new.id), new.code, new.name)
    assert find_tenant(sink.engine, new.id) == new
    assert command("lineage", "dead-letters", "retry", "--all")[0] == 0
    assert command("lineage", "dead-letters", "list") == (0, "")
    assert '"Schema"' in command("lineage", "graph", "--tenant", str(new.id))[1]
    with sink.graph() as graph:
        graph.for_tenant(new.id).clear()
