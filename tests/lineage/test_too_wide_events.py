"""The recovery and transactions that the graph ends: too wide events, locks, a graph that is slow for everything."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest
from sqlalchemy import Engine

from platform_defs.access.tenants import DEMO_TENANT, Tenant, add_tenant
from platform_defs.graph.embedded import EmbeddedGraph
from platform_defs.graph.errors import GraphInterrupted, GraphTooSlow
from platform_defs.graph.model import Node, UpsertNodes
from platform_defs.graph.port import Graph
from platform_defs.lineage.errors import LineageError
from platform_defs.lineage.sink.pending import PreparedEvent
from platform_defs.lineage.upkeep import groups, rebuild_requests, recovery_failures
from platform_defs.lineage.upkeep.groups import MAX_ENDED
from platform_defs.lineage.upkeep.rebuild import RebuildReport
from platform_defs.lineage.upkeep.recovery import MAX_LEFT, recover
from platform_defs.lineage.upkeep.tenant_rebuild import rebuild_tenant
from tests.lineage.test_rebuild import AT_ONCE, OTHER, applied, database, elsewhere, item, store_raw, tables
from tests.lineage_events import run_event

__all__ = ["database", "elsewhere"]
NODES_IN_TIME = 300
MANY = 50
NODES_OF_ONE = 10

TOO_SLOW = GraphTooSlow("Neo4j at bolt://there:7687 took too long")
LOCKED = GraphInterrupted("Neo4j at bolt://there:7687 ended a transaction")
# by the tenant and the nodes of a transaction, why it is ended
Ending = Callable[[int, Sequence[Node]], Exception | None]


@dataclass
class Slow:
    """A graph, or a tenant's part of it, that ends transactions; `ended` has the tenant of each."""

    behind: Any
    ending: Ending
    tenant: int = 0
    ended: list[int] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.behind, name)

    def for_tenant(self, tenant: int) -> "Slow":
        return replace(self, behind=self.behind.for_tenant(tenant), tenant=tenant)

    def update(self, work: Callable[[Any], Any]) -> Any:
        return self.behind.update(lambda transaction: work(SlowTransaction(transaction, self)))


@dataclass
class SlowTransaction:
    behind: Any
    graph: Slow

    def __getattr__(self, name: str) -> Any:
        return getattr(self.behind, name)

    def apply(self, operations: Any) -> Any:
        steps = list(operations)
        nodes = [node for step in steps if isinstance(step, UpsertNodes) for node in step.nodes]
        if error := self.graph.ending(self.graph.tenant, nodes):
            self.graph.ended.append(self.graph.tenant)
            raise error
        return self.behind.apply(steps)


def slow(graph: EmbeddedGraph, ending: Ending) -> tuple[Graph, list[int]]:
    """The graph, and the tenants of the transactions that it has ended."""
    made = Slow(graph, ending)
    return cast(Graph, made), made.ended


def of_many_nodes(tenant: int, nodes: Sequence[Node]) -> Exception | None:
    return TOO_SLOW if len(nodes) > NODES_IN_TIME else None


def wide_event() -> dict[str, Any]:
    fields = [{"name": f"c{number}", "type": "int"} for number in range(NODES_IN_TIME)]
    output = {"namespace": "hive://lake", "name": "mart.wide", "facets": {"schema": {"fields": fields}}}
    return run_event() | {"outputs": [output]}


def small_event(number: int) -> dict[str, Any]:
    return run_event(job=f"job{number}", writes=(f"mart.t{number}",), sql=None)


def of_table_seven(tenant: int, nodes: Sequence[Node]) -> Exception | None:
    return TOO_SLOW if tenant == DEMO_TENANT.id and any(node.props.get("name") == "t7" for node in nodes) else None


def requested(database: Engine) -> list[int]:
    return [request.tenant_id for request in rebuild_requests.list_open(database)]


def test_an_event_that_no_transaction_can_write_in_time_is_written_in_parts_and_holds_up_nobody(
    database: Engine, elsewhere: EmbeddedGraph
) -> None:
    store_raw(database, item(database, wide_event()), item(database, run_event(), OTHER))
    recovered = recover(database, slow(elsewhere, of_many_nodes)[0], patience=AT_ONCE)
    assert (recovered.applied, recovered.waiting, recovered.rebuilt) == (1, 0, (DEMO_TENANT.id,))
    assert all(applied(database))
    assert "wide" in tables(elsewhere.for_tenant(DEMO_TENANT.id))


def test_one_event_that_is_too_wide_among_many_is_found_at_once(database: Engine, elsewhere: EmbeddedGraph) -> None:
    many = [item(database, small_event(number)) for number in range(MANY)]
    others = [item(database, small_event(number), OTHER) for number in range(MANY)]
    store_raw(database, *many[1:], item(database, wide_event()), *others, many[0])
    graph, ended = slow(elsewhere, of_many_nodes)
    recovered = recover(database, graph, patience=AT_ONCE)
    # all of both tenants, all of this tenant, and the event alone
    assert len(ended) == 3
    assert (recovered.applied, recovered.rebuilt) == (MANY, (DEMO_TENANT.id,))
    assert all(applied(database))
    assert recovery_failures.read_failures(database) is None


def test_an_event_that_takes_too_long_although_it_says_little_is_found_too_and_holds_up_nobody(
    database: Engine, elsewhere: EmbeddedGraph
) -> None:
    many = [item(database, small_event(number)) for number in range(MANY)]
    store_raw(database, *many, item(database, small_event(7), OTHER))
    graph, ended = slow(elsewhere, of_table_seven)
    assert recover(database, graph, patience=AT_ONCE).rebuilt == (DEMO_TENANT.id,)
    assert len(ended) <= MAX_ENDED
    assert all(applied(database))


def rebuild_while_they_come(
    database: Engine, graph: EmbeddedGraph, ending: Ending, events: Sequence[PreparedEvent]
) -> tuple[RebuildReport, list[int]]:
    """Rebuilds the demo tenant's graph while these events are stored; returns also the transactions that were ended."""
    store_raw(database, item(database, small_event(MANY)))

    def store_once(done: int) -> None:
        if not any(one.row["fingerprint"] in stored for one in events):
            stored.update(one.row["fingerprint"] for one in events)
            store_raw(database, *events)

    stored: set[str] = set()
    slow_graph, ended = slow(graph, ending)
    return rebuild_tenant(database, slow_graph, DEMO_TENANT, keep_unexplained=True, progress=store_once), ended


def test_an_event_that_is_too_wide_and_comes_while_the_graph_is_rebuilt_waits_alone_for_the_next_rebuild(
    database: Engine, elsewhere: EmbeddedGraph
) -> None:
    """Else each rebuild of a tenant that keeps sending such events would fail after it has written all the graph."""
    wide, many = item(database, wide_event()), [item(database, small_event(number)) for number in range(MANY)]
    report, ended = rebuild_while_they_come(database, elsewhere, of_many_nodes, [*many, wide])
    # all at once, and the event alone
    assert (len(ended), report.late) == (2, {wide.event_facts.version})
    assert applied(database) == [True] * (1 + MANY) + [False]
    assert requested(database) == [DEMO_TENANT.id]
    assert recover(database, slow(elsewhere, of_many_nodes)[0], patience=AT_ONCE).rebuilt == (DEMO_TENANT.id,)
    assert all(applied(database))


def test_events_that_come_while_the_graph_is_rebuilt_are_written_in_groups_that_it_takes_in_time(
    database: Engine, elsewhere: EmbeddedGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = [item(database, small_event(number)) for number in range(7)]
    monkeypatch.setattr(groups, "GROUP_FACTS", 3 * groups.weight_of_all(many[0].event_facts.facts))
    sizes: list[int] = []

    def count(tenant: int, nodes: Sequence[Node]) -> None:
        tables_of_group = {node.props["name"] for node in nodes if str(node.props.get("name", "")).startswith("t")}
        sizes.append(len(tables_of_group))

    report, _ = rebuild_while_they_come(database, elsewhere, count, many)
    assert (sizes, report.late) == ([3, 3, 1], set())


def test_a_graph_that_is_too_slow_for_all_that_comes_meanwhile_is_not_tried_again_and_again(
    database: Engine, elsewhere: EmbeddedGraph
) -> None:
    many = [item(database, small_event(number)) for number in range(MANY)]
    report, ended = rebuild_while_they_come(database, elsewhere, lambda tenant, nodes: TOO_SLOW, many)
    assert len(ended) == MAX_ENDED
    assert report.late == {one.event_facts.version for one in many}


def test_more_such_tenants_than_one_recovery_rebuilds_wait_for_the_next_one(
    database: Engine, elsewhere: EmbeddedGraph
) -> None:
    others = [Tenant(number, f"t{number}", f"Tenant {number}") for number in range(20, 21 + MAX_LEFT)]
    for tenant in others:
        add_tenant(database, tenant)
    store_raw(database, *(item(database, wide_event(), tenant) for tenant in others))
    graph, _ = slow(elsewhere, of_many_nodes)
    with pytest.raises(GraphTooSlow):
        recover(database, graph, patience=AT_ONCE)
    assert sorted(applied(database)) == [False, *[True] * MAX_LEFT]
    assert recover(database, graph, patience=AT_ONCE).rebuilt == (others[-1].id,)
    assert all(applied(database))


def test_a_tenant_whose_every_transaction_is_too_slow_is_tried_twice_and_holds_up_nobody(
    database: Engine, elsewhere: EmbeddedGraph
) -> None:
    many = [item(database, small_event(number)) for number in range(MANY)]
    store_raw(database, *many, item(database, run_event(), OTHER))
    graph, ended = slow(elsewhere, lambda tenant, nodes: TOO_SLOW if tenant == DEMO_TENANT.id else None)
    with pytest.raises(LineageError, match=r"could not be rebuilt: .*took too long"):
        recover(database, graph, patience=AT_ONCE)
    # with the other tenant's event, without it, one event alone, and the rebuild
    assert ended == [DEMO_TENANT.id] * 4
    assert (applied(database), requested(database)) == ([*[False] * MANY, True], [DEMO_TENANT.id])
    failures = recovery_failures.read_failures(database)
    assert failures is not None
    assert "took too long" in failures.error


def test_a_graph_that_is_too_slow_for_any_group_fails_the_recovery_after_a_few_transactions(
    database: Engine, elsewhere: EmbeddedGraph
) -> None:
    store_raw(database, *(item(database, small_event(number)) for number in range(MANY)))
    graph, ended = slow(elsewhere, lambda tenant, nodes: TOO_SLOW if len(nodes) > NODES_OF_ONE else None)
    with pytest.raises(GraphTooSlow):
        recover(database, graph, patience=AT_ONCE)
    assert len(ended) == MAX_ENDED + 1
    assert any(applied(database))
    assert requested(database) == []
    assert recovery_failures.read_failures(database) is not None
    waiting = applied(database).count(False)
    assert recover(database, elsewhere, patience=AT_ONCE).applied == waiting


def test_a_tenant_whose_graph_is_locked_is_left_to_the_next_recovery_and_holds_up_nobody(
    database: Engine, elsewhere: EmbeddedGraph
) -> None:
    many = [item(database, small_event(number)) for number in range(MANY)]
    store_raw(database, *many, item(database, run_event(), OTHER))
    graph, ended = slow(elsewhere, lambda tenant, nodes: LOCKED if tenant == DEMO_TENANT.id else None)
    with pytest.raises(LineageError, match=rf"^events of the tenants {DEMO_TENANT.id} wait, .* ended a transaction$"):
        recover(database, graph, patience=AT_ONCE)
    assert ended == [DEMO_TENANT.id] * 2
    assert (applied(database), requested(database)) == ([*[False] * MANY, True], [])
    assert recovery_failures.read_failures(database) is not None
    assert recover(database, elsewhere, patience=AT_ONCE).applied == MANY
    assert recovery_failures.read_failures(database) is None
