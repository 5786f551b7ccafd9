"""The lineage endpoint on each pair of stores, and a client of it with keys of its own."""

import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import randint
from typing import Any

import httpx
import pytest
from sqlalchemy import Engine, select

from platform_defs.access.keys import issue_key
from platform_defs.access.principal import SourceType
from platform_defs.access.tenants import Tenant, add_tenant
from platform_defs.graph.neo4j import Neo4jGraph
from platform_defs.graph.open import open_graph
from platform_defs.graph.text import graph_lines
from platform_defs.lineage.events import parse_event
from platform_defs.lineage.extract.facts_of import facts_of
from platform_defs.lineage.sink import commit
from platform_defs.lineage.sink.apply import EventFacts, apply_events
from platform_defs.lineage.version import version_of
from platform_defs.settings import Settings
from platform_defs.store.tables import metadata
from platform_defs.store.tables.lineage import lineage_events
from tests.api.serving import Api, serve_api
from tests.conftest import needs
from tests.graph.conftest import UNHURRIED
from tests.lineage_events import run_event
from tests.needs import require

PATH = "/api/openlineage"
BACKENDS = (
    pytest.param(("sqlite", "embedded")),
    pytest.param(("mysql", "embedded"), marks=needs("mysql")),
    pytest.param(("mysql", "neo4j"), marks=needs("mysql", "neo4j")),
)


@dataclass(frozen=True)
class Backend:
    engine: Engine
    settings: dict[str, Any]
    tenant: Tenant
    other: Tenant

    @contextmanager
    def api(self, **settings: Any) -> Iterator["Client"]:
        with serve_api(self.engine, **self.settings, **settings) as running:
            yield Client(running, self)


class Client:
    def __init__(self, running: Api, backend: Backend) -> None:
        self.running = running
        self.backend = backend
        self.engine = backend.engine
        self._keys: dict[Any, str] = {}

    def key(self, source: SourceType | None, tenant: Tenant | None) -> str:
        if (source, tenant) not in self._keys:
            self._keys[source, tenant] = issue_key(
                self.engine, uuid.uuid4().hex, {"lineage:write"}, source_type=source, tenant_id=tenant and tenant.id
            )
        return self._keys[source, tenant]

    def post(
        self, content: Any, *, source: SourceType | None = SourceType.COMPUTE, tenant: Tenant | str | None = "mine"
    ) -> httpx.Response:
        owner = self.backend.tenant if tenant == "mine" else tenant
        assert not isinstance(owner, str)
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        headers = {"Authorization": f"Bearer {self.key(source, owner)}", "Content-Type": "application/json"}
        return self.running.client.post(PATH, content=body, headers=headers)

    def metrics(self) -> str:
        return self.running.client.get("/metrics").text

    def rows(self, table: Any = lineage_events) -> list[Any]:
        with self.engine.connect() as connection:
            return list(connection.execute(select(table)).all())

    def graph(self, tenant: Tenant | None = None) -> list[str]:
        return list(graph_lines(self.running.app.state.graph.for_tenant((tenant or self.backend.tenant).id)))


@pytest.fixture(scope="session")
def planned() -> None:
    """Makes Neo4j plan every statement before a test waits: on a busy machine that takes longer than clients wait."""
    graph = Neo4jGraph(require("neo4j"), timeouts=UNHURRIED)
    graph.ensure_schema()
    tenant = Tenant(randint(10**9, 10**12), uuid.uuid4().hex, "Warm-up")
    event = parse_event(run_event())
    facts = facts_of(event, SourceType.COMPUTE).facts
    for mark in ("0" * 64, "1" * 64):
        apply_events(graph.for_tenant(tenant.id), tenant, [EventFacts(version_of(event.event_time, mark), facts)])
    graph.for_tenant(tenant.id).clear()
    graph.close()


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, migrated: dict[str, Engine]) -> Iterator[Backend]:
    store, graph = request.param
    if graph == "neo4j":
        request.getfixturevalue("planned")
    engine = migrated[store]
    number = randint(10**9, 10**12)  # all tests share one Neo4j, so each test uses tenants of its own
    tenant, other = (Tenant(id, f"t{id}", f"Tenant {id}") for id in (number, number + 1))
    for one in (tenant, other):
        add_tenant(engine, one)
    settings = {} if graph == "embedded" else {"graph_url": require("neo4j")}
    yield Backend(engine, settings, tenant, other)
    opened = open_graph(Settings(**settings), engine, timeouts=UNHURRIED)
    for one in (tenant, other, Tenant(number + 2, "", "")):
        opened.for_tenant(one.id).clear()
    opened.close()
    with engine.begin() as connection:
        for table in reversed(metadata.sorted_tables):
            connection.execute(table.delete())


@pytest.fixture
def client(backend: Backend) -> Iterator[Client]:
    with backend.api() as running:
        yield running


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., Any]], None]:
    """Makes the graph write fail. The stores themselves are shared with other tests and stay up."""

    def install(fault: Callable[..., Any]) -> None:
        merge = commit.apply_events
        monkeypatch.setattr(commit, "apply_events", lambda *arguments: fault(merge, *arguments))

    return install
