"""A graph store is warmed up by events that are rolled back, and the process is ready only afterwards."""

import threading
from typing import Any

import pytest

from platform_defs.graph.model import Node
from platform_defs.graph.neo4j import Neo4jGraph
from platform_defs.lineage.sink.warm_up import warm_up
from tests.needs import require


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
