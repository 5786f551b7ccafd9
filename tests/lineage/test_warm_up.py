"""A graph store is warmed up by events that are rolled back; before that the process is not ready, or takes none."""

import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import pytest
from prometheus_client import CollectorRegistry
from sqlalchemy import Engine

from platform_defs.access.keys import issue_key
from platform_defs.access.principal import Principal
from platform_defs.access.tenants import Tenant, add_tenant
from platform_defs.api.lineage import warmth
from platform_defs.graph import cypher
from platform_defs.graph.embedded import EmbeddedGraph
from platform_defs.graph.errors import GraphLost
from platform_defs.graph.model import Node
from platform_defs.graph.neo4j import Neo4jGraph
from platform_defs.graph.neo4j_store import Neo4jStore
from platform_defs.graph.port import Graph
from platform_defs.lineage.sink import commit, pending
from platform_defs.lineage.sink.commit import ParallelCommitter
from platform_defs.lineage.sink.metrics import SinkMetrics
from platform_defs.lineage.sink.warm_up import ROUNDS, is_warm, warm_up
from platform_defs.store.chunks import chunks
from platform_defs.store.errors import StoreUnavailable
from tests.api.serving import Api, serve_api
from tests.e2e.cut import Cable, cable
from tests.graph.conftest import UNHURRIED, random_tenant
from tests.lineage.deliveries import Arrival, Deliveries
from tests.lineage.test_corpus_parsing import corpus, real_events
from tests.lineage_events import run_event
from tests.needs import require
from tests.waiting import PATIENCE_S, until


class Rehearsals(Neo4jGraph):
    """Remembers the tenants whose graphs it wrote and rolled back."""

    tenants: list[int]

    def rehearse(self, tenant: int, work: Any) -> None:
        self.tenants = [*getattr(self, "tenants", []), tenant]
        super().rehearse(tenant, work)


@pytest.mark.needs("neo4j")
def test_a_warm_up_leaves_nothing_behind_and_can_be_stopped() -> None:
    graph = Rehearsals(require("neo4j"), timeouts=UNHURRIED)
    try:
        graph.ensure_schema()
        assert warm_up(graph)
        (tenant,) = set(graph.tenants)
        assert [node for node in graph.for_tenant(tenant).stream() if isinstance(node, Node)] == []
        stopped = threading.Event()
        stopped.set()
        assert not warm_up(graph, stop=stopped.is_set)
        assert graph.connections_in_use == 0
    finally:
        graph.close()


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> dict[str, set[int]]:
    """The texts that Neo4j gets while the test is executed, and with how many digits the length of their lists."""
    found: dict[str, set[int]] = {}
    execute = Neo4jStore._execute

    def note(store: Neo4jStore, tx: Any, template: str, names: Any, **parameters: Any) -> Any:
        rows = parameters.get("rows", parameters.get("ids", ()))
        found.setdefault(template.format(**names), set()).add(len(str(len(rows))))
        return execute(store, tx, template, names, **parameters)

    monkeypatch.setattr(Neo4jStore, "_execute", note)
    return found


@pytest.fixture
def graph() -> Iterator[Neo4jGraph]:
    opened = Neo4jGraph(require("neo4j"), timeouts=UNHURRIED)
    opened.ensure_schema()
    yield opened
    opened.close()


@pytest.mark.needs("neo4j")
def test_a_warm_up_plans_every_statement_for_short_and_for_long_lists(
    graph: Neo4jGraph, sizes: dict[str, set[int]]
) -> None:
    """Neo4j plans a statement anew for lists of another order of magnitude."""
    assert warm_up(graph)
    assets = {"label": "Knowledge"}
    ends = {"from_label": "Knowledge", "to_label": "Knowledge"}
    # added by one run, removed by another
    added = ("HAS_COLUMN", "INPUT_OF", "OUTPUT_TO", "DERIVES_FROM")
    for text in (
        cypher.UPSERT_NODES.format(**assets),
        cypher.NODES.format(**assets),
        cypher.PATCH_NODES.format(**assets),
        *(
            cypher.UPSERT_EDGES.format(type=type, **ends)
            for type in (*added, "HAS_SCHEMA", "HAS_TABLE", "GONE_HAS_COLUMN")
        ),
        cypher.UPSERT_EDGES.format(type="OWNS_CATALOG", from_label="Tenant", to_label="Knowledge"),
        *(cypher.DELETE_EDGES.format(type=type, **ends) for type in added),
    ):
        assert sizes[text] >= {1, 2, 3}, text
    # each text that is new to Neo4j costs a cold server: nodes of all kinds have one, beside that of the Tenant
    assert sum("MERGE (n:" in text and "$rows" in text for text in sizes) == 2
    assert len(sizes) <= 24


@pytest.mark.needs("neo4j", "data")
@pytest.mark.parametrize("at_once", [1, 300])
def test_real_events_send_no_statement_that_the_warm_up_has_not_sent(
    at_once: int, graph: Neo4jGraph, sizes: dict[str, set[int]], migrated: dict[str, Engine]
) -> None:
    """So the first group of real events after a start waits for no plan, whatever the clock of the machine says.

    The events come as they were recorded, and as runs that nobody has seen before, in another order.
    """
    assert warm_up(graph)
    warmed = set(sizes)
    recorded = [event for row, event in corpus() if row["lenient_ok"] == "1"]
    for events in (recorded, real_events(300)):
        deliveries = Deliveries(migrated["sqlite"], graph)
        anybody = Principal("key", "test", frozenset(), None, deliveries.tenant)
        try:
            sizes.clear()
            for some in chunks([Arrival(event, datetime.now(UTC)) for event in events], at_once):
                result = deliveries.committer.commit([deliveries.prepare(one, anybody) for one in some])
                assert not result.rebuild
            assert sizes.keys() - warmed == set()
            assert len(sizes) > 10
        finally:
            deliveries.close()


@pytest.mark.parametrize(
    ("took", "warm"),
    [
        ([], False),
        ([0.4], False),
        ([9.0, 0.4, 0.6], False),
        ([9.0, 0.4, 0.4], True),
        ([9.0, 5.0, 4.0, 2.0], False),
        ([9.0, 8.9, 8.8, 9.1], True),
        ([9.0, 3.0, 2.9, 3.5, 2.6], True),
    ],
)
def test_a_store_is_warm_when_it_is_fast_or_does_not_become_faster(took: list[float], warm: bool) -> None:
    assert is_warm(took) is warm
    assert len(took) < ROUNDS


class HeldWarmUp:
    """A warm-up that begins, but does not end before it may."""

    def __init__(self) -> None:
        self.begun, self.may_end = threading.Event(), threading.Event()

    def __call__(self, graph: Graph, *, stop: Callable[[], bool]) -> bool:
        self.begun.set()
        assert self.may_end.wait(PATIENCE_S)
        return warm_up(graph, stop=stop)


@pytest.mark.needs("neo4j")
def test_a_process_is_not_ready_before_its_first_warm_up_has_ended(
    migrated: dict[str, Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    # as in a process that has warmed up no graph so far
    monkeypatch.setattr(warmth, "_WARM", set())
    held = HeldWarmUp()
    monkeypatch.setattr(warmth, "warm_up", held)
    with serve_api(migrated["sqlite"], graph_url=require("neo4j")) as api:
        try:
            until("the warm-up to begin", held.begun.is_set)

            def is_warming_up() -> bool:
                answer = api.client.get("/readyz")
                assert answer.status_code == 503
                # a check that the machine keeps waiting has another error
                return bool(answer.json()["error"] == "lineage: the graph is warming up")

            until("the process to say why it is not ready", is_warming_up)
        finally:
            held.may_end.set()
        until("the process to be ready", lambda: api.client.get("/readyz").status_code == 200)


@dataclass
class Lost:
    """An API whose connection to Neo4j can be cut, and whose next warm-up begins but does not end before it may."""

    api: Api
    line: Cable
    key: str
    warm_up: HeldWarmUp

    def post(self) -> int:
        headers = {"Authorization": f"Bearer {self.key}"}
        return self.api.client.post("/api/openlineage", json=run_event(), headers=headers).status_code

    def is_warm(self) -> bool:
        return bool(self.api.client.get("/readyz").json().get("error", "") != "lineage: the graph is warming up")

    def check_that_events_wait_for_a_warm_graph(self) -> None:
        """Once it is connected again."""
        until("the graph to be rehearsed", self.warm_up.begun.is_set)
        # the server answers again, but it may be cold
        self.api.app.state.graph.ping()
        assert self.post() == 503
        assert not self.is_warm()
        self.warm_up.may_end.set()
        until("events to be taken again", lambda: self.post() == 201)
        until("the process to be ready", self.is_warm)


@pytest.fixture
def lost(migrated: dict[str, Engine], monkeypatch: pytest.MonkeyPatch) -> Iterator[Lost]:
    number = random.randrange(10**9, 10**12)
    tenant = Tenant(number, f"t{number}", f"Tenant {number}")
    engine = migrated["sqlite"]
    add_tenant(engine, tenant)
    key = issue_key(engine, f"warm-{number}", {"lineage:write"}, tenant_id=tenant.id)
    place = urlsplit(require("neo4j"))
    with cable(str(place.hostname), place.port or 7687) as line:
        url = f"{place.scheme}://127.0.0.1:{line.port}"
        with serve_api(engine, graph_url=url, lineage_deadline_s=20.0) as api:
            found = Lost(api, line, key, HeldWarmUp())
            until("the first warm-up to end", found.is_warm)
            # 503 is how a machine that is too busy for the deadline asks to send again
            until("an event to be taken", lambda: found.post() == 201)
            monkeypatch.setattr(warmth, "warm_up", found.warm_up)
            yield found
            api.app.state.graph.for_tenant(tenant.id).clear()


@pytest.mark.needs("neo4j")
def test_a_graph_that_was_gone_is_warmed_up_before_it_gets_events_again(lost: Lost) -> None:
    lost.line.cut()
    assert lost.post() == 503
    lost.line.mend()
    lost.check_that_events_wait_for_a_warm_graph()


@pytest.mark.needs("neo4j")
def test_a_graph_that_was_gone_while_the_database_was_away_is_warmed_up_too(
    lost: Lost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then no event gets as far as the graph, and only a ping finds that it is gone."""

    def away(*arguments: Any, **options: Any) -> Any:
        raise StoreUnavailable("the database does not answer")

    lost.line.cut()
    with monkeypatch.context() as outage:
        outage.setattr(commit, "transact", away)
        assert lost.post() == 503
        until("the graph to be missed", lambda: lost.api.app.state.lineage.warmth() != "ok")
    lost.line.mend()
    lost.check_that_events_wait_for_a_warm_graph()


@pytest.mark.needs("neo4j")
def test_a_graph_that_was_gone_while_nobody_wrote_is_warmed_up_too(lost: Lost) -> None:
    """The first write after its return would find it there: the driver connects again without a word."""
    lost.line.cut()
    until("the graph to be missed", lambda: lost.api.app.state.lineage.warmth() != "ok")
    lost.line.mend()
    lost.check_that_events_wait_for_a_warm_graph()


def test_a_graph_that_is_gone_when_names_are_looked_up_in_it_is_lost_too(
    migrated: dict[str, Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*arguments: Any) -> Any:
        raise GraphLost("Neo4j does not answer")

    losses: list[str] = []
    engine = migrated["sqlite"]
    graph = EmbeddedGraph.on(engine)
    committer = ParallelCommitter(engine, graph, SinkMetrics(CollectorRegistry()), lambda: losses.append("lost"))
    monkeypatch.setattr(pending, "tables_of_names", gone)
    try:
        with pytest.raises(GraphLost):
            committer.commit([])
    finally:
        committer.close()
    assert losses == ["lost"]


class AwayAtFirst:
    """Stands for a server that does not answer the first attempts."""

    def __init__(self, failures: int) -> None:
        self.left = failures

    def rehearse(self, tenant: int, work: Any) -> None:
        self.left -= 1
        if self.left >= 0:
            raise GraphLost("Neo4j does not answer")


def test_an_outage_is_one_line_of_the_log_however_long_it_lasts_and_its_end_is_another(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(warmth, "AGAIN_S", 0.001)
    caplog.set_level("INFO", warmth.__name__)
    monkeypatch.setattr(warmth, "LOGGED_EVERY_S", 3600.0)
    graph: Any = AwayAtFirst(5)
    waiting = warmth.Warmth(graph, "bolt://away", needed=True)
    try:
        until("the graph to be warm", lambda: waiting.is_warm)
    finally:
        waiting.close()
    mine = [record for record in caplog.records if record.name == warmth.__name__]
    assert [(record.levelname, record.exc_info or None) for record in mine] == [("WARNING", None), ("INFO", None)]
    assert "Neo4j does not answer" in mine[0].getMessage()


@pytest.mark.needs("neo4j")
def test_the_connections_of_neo4js_pool_that_are_in_use_are_measured() -> None:
    registry = CollectorRegistry()
    graph = Neo4jGraph(require("neo4j"), pool_size=7, timeouts=UNHURRIED)
    SinkMetrics(registry).watch_graph_pool(graph)

    def in_use() -> float | None:
        return registry.get_sample_value("platform_lineage_graph_pool_connections")

    store = graph.for_tenant(random_tenant())
    try:
        assert registry.get_sample_value("platform_lineage_graph_pool_connections_max") == 7
        assert in_use() == 0
        assert store.update(lambda transaction: in_use()) == 1
        assert in_use() == 0
    finally:
        store.clear()
        graph.close()
