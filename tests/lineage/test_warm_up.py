"""A graph store is warmed up by events that are rolled back; before that the process is not ready, or takes none."""

import random
import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest
from prometheus_client import CollectorRegistry
from sqlalchemy import Engine

from platform_defs.access.keys import issue_key
from platform_defs.access.tenants import Tenant, add_tenant
from platform_defs.api.lineage import warmth
from platform_defs.graph.model import Node
from platform_defs.graph.neo4j import Neo4jGraph
from platform_defs.lineage.sink.metrics import SinkMetrics
from platform_defs.lineage.sink.warm_up import warm_up
from tests.api.serving import serve_api
from tests.e2e.cut import cable
from tests.graph.conftest import random_tenant
from tests.lineage_events import run_event
from tests.needs import require
from tests.waiting import until


class Rehearsals(Neo4jGraph):
    """Remembers the tenants whose graphs it wrote and rolled back."""

    tenants: list[int]

    def rehearse(self, tenant: int, work: Any) -> None:
        self.tenants = [*getattr(self, "tenants", []), tenant]
        super().rehearse(tenant, work)


@pytest.mark.needs("neo4j")
def test_a_warm_up_leaves_nothing_behind_and_can_be_stopped() -> None:
    graph = Rehearsals(require("neo4j"))
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


@pytest.mark.needs("neo4j")
def test_a_graph_that_was_gone_is_warmed_up_before_it_gets_events_again(
    migrated: dict[str, Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    rehearsed = threading.Event()
    held = threading.Event()

    def hold(graph: Any, *, stop: Callable[[], bool]) -> bool:
        rehearsed.set()
        assert held.wait(60)
        return warm_up(graph, stop=stop)

    number = random.randrange(10**9, 10**12)
    tenant = Tenant(number, f"t{number}", f"Tenant {number}")
    engine = migrated["sqlite"]
    add_tenant(engine, tenant)
    key = issue_key(engine, f"warm-{number}", {"lineage:write"}, tenant_id=tenant.id)
    place = urlsplit(require("neo4j"))
    with cable(str(place.hostname), place.port or 7687) as line:
        url = f"{place.scheme}://127.0.0.1:{line.port}"
        with serve_api(engine, graph_url=url, lineage_deadline_s=20.0) as api:

            def post() -> int:
                headers = {"Authorization": f"Bearer {key}"}
                return api.client.post("/api/openlineage", json=run_event(), headers=headers).status_code

            def ready() -> bool:
                return api.client.get("/readyz").json().get("error", "") != "lineage: the graph is warming up"

            until("the first warm-up to end", ready)
            assert post() == 201
            monkeypatch.setattr(warmth, "warm_up", hold)
            line.cut()
            assert post() == 503
            line.mend()
            until("the graph to be rehearsed", rehearsed.is_set)
            # the server answers again, but it may be cold
            api.app.state.graph.ping()
            assert post() == 503
            assert not ready()
            held.set()
            until("events to be taken again", lambda: post() == 201)
            until("the process to be ready", ready)
            api.app.state.graph.for_tenant(tenant.id).clear()


@pytest.mark.needs("neo4j")
def test_the_connections_of_neo4js_pool_that_are_in_use_are_measured() -> None:
    registry = CollectorRegistry()
    graph = Neo4jGraph(require("neo4j"), pool_size=7)
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
