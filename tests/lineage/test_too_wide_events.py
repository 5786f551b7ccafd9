"""The recovery and events that one transaction cannot write in time: a rebuild writes them in parts."""

from collections.abc import Callable
from typing import Any, cast

import pytest
from sqlalchemy import Engine

from platform_defs.access.tenants import DEMO_TENANT, Tenant, add_tenant
from platform_defs.graph.embedded import EmbeddedGraph
from platform_defs.graph.errors import GraphTooSlow
from platform_defs.graph.model import UpsertNodes
from platform_defs.graph.port import Graph
from platform_defs.lineage.upkeep.recovery import MAX_TOO_WIDE, recover
from tests.lineage.test_rebuild import AT_ONCE, OTHER, applied, database, elsewhere, item, store_raw, tables
from tests.lineage_events import run_event

__all__ = ["database", "elsewhere"]
NODES_IN_TIME = 300


class Slow:
    """A graph, or a tenant's part of it, that ends transactions of many nodes, as Neo4j ends those that take long."""

    def __init__(self, behind: Any) -> None:
        self._behind = behind

    def __getattr__(self, name: str) -> Any:
        return getattr(self._behind, name)

    def for_tenant(self, tenant: int) -> "Slow":
        return Slow(self._behind.for_tenant(tenant))

    def update(self, work: Callable[[Any], Any]) -> Any:
        return self._behind.update(lambda transaction: work(SlowTransaction(transaction)))


class SlowTransaction:
    def __init__(self, behind: Any) -> None:
        self._behind = behind

    def __getattr__(self, name: str) -> Any:
        return getattr(self._behind, name)

    def apply(self, operations: Any) -> Any:
        steps = list(operations)
        if sum(len(step.nodes) for step in steps if isinstance(step, UpsertNodes)) > NODES_IN_TIME:
            raise GraphTooSlow("Neo4j at bolt://there:7687 took too long")
        return self._behind.apply(steps)


def wide_event() -> dict[str, Any]:
    fields = [{"name": f"c{number}", "type": "int"} for number in range(NODES_IN_TIME)]
    output = {"namespace": "hive://lake", "name": "mart.wide", "facets": {"schema": {"fields": fields}}}
    return run_event() | {"outputs": [output]}


def test_an_event_that_no_transaction_can_write_in_time_is_written_in_parts_and_holds_up_nobody(
    database: Engine, elsewhere: EmbeddedGraph
) -> None:
    store_raw(database, item(database, wide_event()), item(database, run_event(), OTHER))
    recovered = recover(database, cast(Graph, Slow(elsewhere)), patience=AT_ONCE)
    assert (recovered.applied, recovered.waiting, recovered.rebuilt) == (1, 0, (DEMO_TENANT.id,))
    assert all(applied(database))
    assert "wide" in tables(elsewhere.for_tenant(DEMO_TENANT.id))


def test_more_such_tenants_than_one_recovery_rebuilds_wait_for_the_next_one(
    database: Engine, elsewhere: EmbeddedGraph
) -> None:
    others = [Tenant(number, f"t{number}", f"Tenant {number}") for number in range(20, 21 + MAX_TOO_WIDE)]
    for tenant in others:
        add_tenant(database, tenant)
    store_raw(database, *(item(database, wide_event(), tenant) for tenant in others))
    graph = cast(Graph, Slow(elsewhere))
    with pytest.raises(GraphTooSlow):
        recover(database, graph, patience=AT_ONCE)
    assert sorted(applied(database)) == [False, *[True] * MAX_TOO_WIDE]
    assert recover(database, graph, patience=AT_ONCE).rebuilt == (others[-1].id,)
    assert all(applied(database))
