"""The merge on the real stores: the same graph in any order, after a rebuild, and from two writers at once."""

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine

from platform_defs.access.tenants import Tenant
from platform_defs.graph.embedded import EmbeddedGraph
from platform_defs.graph.model import DeleteEdges, DeleteNodes, Edge, Node, Patch, PatchNodes, UpsertEdges, UpsertNodes
from platform_defs.graph.neo4j import Neo4jGraph
from platform_defs.graph.port import Graph, GraphStore
from platform_defs.graph.text import graph_lines
from platform_defs.lineage.facts import ColumnSet, Dropped, Exists, Fact, Linked, Ref, Renamed, Unlinked
from platform_defs.lineage.sink.apply import EventFacts, apply_events, prune_graph
from platform_defs.lineage.upkeep.rebuild import rebuild
from platform_defs.lineage.version import version_of
from tests.graph.conftest import GRAPHS, UNHURRIED, random_tenant
from tests.lineage.merging import (
    SCHEMAS,
    TABLES,
    arrive,
    column,
    derived,
    entry_events,
    histories,
    loaded,
    moving_wholes,
    plain_events,
    ran,
    renames,
    tagged,
    underived,
)
from tests.lineage.reference import Reference
from tests.needs import require

History = tuple[list[EventFacts], list[list[EventFacts]]]
START = datetime(2026, 1, 1, tzinfo=UTC)
EXAMPLES = {"sqlite": 60, "mysql": 8, "mariadb": 8, "neo4j": 8}
A, B, C, _ = TABLES
SQL, TAG = Ref("sql", ("q",)), Ref("tag", ("t",))


@pytest.fixture(scope="module")
def open_graphs(migrated: dict[str, Engine]) -> Iterator[Callable[[str], Graph]]:
    opened: dict[str, Neo4jGraph] = {}

    def get(name: str) -> Graph:
        if name != "neo4j":
            return EmbeddedGraph.on(migrated[name])
        if name not in opened:
            opened[name] = Neo4jGraph(require("neo4j"), timeouts=UNHURRIED)
            opened[name].ensure_schema()
        return opened[name]

    yield get
    for graph in opened.values():
        graph.close()


@pytest.fixture(params=GRAPHS)
def place(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def graph(place: str, open_graphs: Callable[[str], Graph]) -> Graph:
    return open_graphs(place)


@pytest.fixture
def tenant(graph: Graph) -> Iterator[Tenant]:
    made = new_tenant()
    yield made
    graph.for_tenant(made.id).clear()


@pytest.fixture
def store(graph: Graph, tenant: Tenant) -> GraphStore:
    return graph.for_tenant(tenant.id)


def new_tenant() -> Tenant:
    id = random_tenant()
    return Tenant(id, f"code{id}", "Somebody")


def event(minute: float, *facts: Fact) -> EventFacts:
    return EventFacts(version_of(START + timedelta(minutes=minute), f"{int(minute * 100):064x}"), facts)


def lines(store: GraphStore) -> list[str]:
    return list(graph_lines(store))


def rebuilt(graph: Graph, tenant: Tenant, events: list[EventFacts], engine: Engine, *, keep: bool = False) -> int:
    in_order = sorted(events, key=lambda event: event.version)
    report = rebuild(
        engine,
        graph,
        tenant,
        read_events=lambda: iter(in_order),
        keep_unexplained=keep,
        progress=lambda done: None,
    )
    assert report.events == len(in_order)
    assert report.first == in_order[0].version
    return report.removed


def test_any_order_ends_in_the_reference_and_a_rebuild_changes_nothing(
    place: str, graph: Graph, migrated: dict[str, Engine]
) -> None:
    @settings(max_examples=EXAMPLES[place], deadline=None, suppress_health_check=list(HealthCheck))
    @given(
        histories(st.one_of(plain_events, plain_events, renames)) | histories(st.one_of(moving_wholes, entry_events))
    )
    def same(history: History) -> None:
        in_order, groups = history
        tenant = new_tenant()
        store = graph.for_tenant(tenant.id)
        try:
            arrive(store, tenant, groups)
            expected = Reference(tenant, in_order).lines()
            assert lines(store) == expected
            rebuilt(graph, tenant, in_order, migrated["sqlite"])
            assert lines(store) == expected
            rebuilt(graph, tenant, in_order[len(in_order) // 2 :], migrated["sqlite"], keep=True)
            assert lines(store) == expected
        finally:
            store.clear()

    same()


def test_a_repeated_event_writes_nothing(store: GraphStore, tenant: Tenant) -> None:
    events = [event(1, *loaded(A, {"producer": "p"}, {"x": {}, "y": {}})), event(2, *tagged(A, [TAG])), event(3, *RUN)]
    assert apply_events(store, tenant, events).writes > 0
    before = list(store.stream())
    assert apply_events(store, tenant, events).writes == 0
    assert list(store.stream()) == before


RUN = ran(SQL, A, B, ("x", "y"), "DIRECT", True)


def test_the_same_columns_said_again_cost_one_write(store: GraphStore, tenant: Tenant) -> None:
    wide = {f"c{at}": {"dataType": "int"} for at in range(50)}
    apply_events(store, tenant, [event(1, *loaded(A, {}, wide))])
    # written: the table, its schema and its catalog, which were stated again; none of the columns
    assert apply_events(store, tenant, [event(2, *loaded(A, {}, wide)), event(3, *loaded(A, {}, wide))]).writes == 3
    late = event(2.5, Exists(column(A, "c1"), "Column", {"dataType": "text"}))
    before = lines(store)
    apply_events(store, tenant, [late])
    assert lines(store) == before


def test_a_table_renamed_keeps_its_edges_tags_and_history(store: GraphStore, tenant: Tenant) -> None:
    apply_events(store, tenant, [event(1, *loaded(A, {"producer": "p"}, {"x": {}})), event(2, *RUN)])
    apply_events(store, tenant, [event(3, Exists(TAG, "Tag"), Linked("HAS_TAG", A, TAG))])
    store.apply([PatchNodes([Patch(A.id, {"summary": "by another system"})])])
    assert not apply_events(store, tenant, [event(5, Renamed(A, C))]).needs_rebuild
    assert not apply_events(store, tenant, [event(4, Exists(A, "Table", {"description": "late"}))]).needs_rebuild
    nodes = store.nodes([A.id, C.id, column(C, "x").id])
    assert {id for id, node in nodes.items() if "Tombstone" not in node.labels} == {C.id, column(C, "x").id}
    shown = {name: value for name, value in nodes[C.id].props.items() if not name.startswith("_")}
    names = {"name": "c", "namespace": "m", "qualifiedName": "c.s.c"}
    assert shown == names | {"producer": "DIRECT", "description": "late", "summary": "by another system"}
    keys = {(edge.type, edge.from_id, edge.to_id) for edge in store.edges([C.id])}
    assert {("INPUT_OF", C.id, SQL.id), ("HAS_TAG", C.id, TAG.id), ("HAS_TABLE", SCHEMAS[0].id, C.id)} <= keys
    assert A.id not in "".join(lines(store))


def test_what_the_memory_cannot_decide_asks_for_a_rebuild_and_writes_nothing(
    graph: Graph, store: GraphStore, tenant: Tenant, migrated: dict[str, Engine]
) -> None:
    events = [event(1, Exists(A, "Table", {"producer": "old"})), event(3, Exists(A, "Table", {"producer": "new"}))]
    apply_events(store, tenant, events)
    before = list(store.stream())
    late = event(2, Renamed(A, B))
    outcome = apply_events(store, tenant, [late])
    assert (outcome.needs_rebuild, outcome.writes) == (True, 0)
    assert list(store.stream()) == before
    rebuilt(graph, tenant, [*events, late], migrated["sqlite"])
    assert lines(store) == Reference(tenant, [*events, late]).lines()
    assert store.nodes([B.id])[B.id].props["producer"] == "old"


def test_a_rebuild_removes_what_no_event_explains_and_keeps_what_others_wrote(
    graph: Graph, store: GraphStore, tenant: Tenant, migrated: dict[str, Engine]
) -> None:
    events = [event(1, *loaded(A, {"producer": "p"}, {"x": {}})), event(2, *RUN)]
    apply_events(store, tenant, events, {SQL.id: 3})
    expected = lines(store)
    store.apply([UpsertNodes([Node("table:stray", {"Table"})])])
    store.apply([UpsertEdges([Edge("INPUT_OF", B.id, SQL.id), Edge("HAS_TAG", A.id, "table:stray")])])
    store.apply([PatchNodes([Patch(A.id, {"producer": "forged"})])])
    store.apply([DeleteEdges([next(edge.key for edge in store.edges([A.id]) if edge.type == "INPUT_OF")])])
    store.apply([DeleteNodes([column(B, "y").id])])
    assert rebuilt(graph, tenant, events, migrated["sqlite"]) == 3
    assert lines(store) == expected
    assert store.nodes([SQL.id])[SQL.id].props["executionCount"] == 3


def test_a_rebuild_keeps_what_others_wrote_on_the_node_of_the_tenant(
    graph: Graph, store: GraphStore, tenant: Tenant, migrated: dict[str, Engine]
) -> None:
    events = [event(1, *RUN)]
    apply_events(store, tenant, events)
    store.apply([PatchNodes([Patch(str(tenant.id), {"owner": "sales"})])])
    rebuilt(graph, tenant, events, migrated["sqlite"])
    assert store.nodes([str(tenant.id)])[str(tenant.id)].props["owner"] == "sales"


def test_an_event_that_arrives_during_a_rebuild_is_not_lost(
    graph: Graph, store: GraphStore, tenant: Tenant, migrated: dict[str, Engine]
) -> None:
    stored = [event(1, *loaded(A, {}, {"x": {}}))]
    apply_events(store, tenant, stored)
    meanwhile = event(2, Exists(B, "Table"))

    def read_events() -> Iterator[EventFacts]:
        yield from list(stored)
        if meanwhile not in stored:
            apply_events(store, tenant, [meanwhile])
            stored.append(meanwhile)

    rebuild(migrated["sqlite"], graph, tenant, read_events=read_events, progress=lambda done: None)
    assert lines(store) == Reference(tenant, stored).lines()


def test_counts_only_grow(store: GraphStore, tenant: Tenant) -> None:
    apply_events(store, tenant, [event(1, *RUN)], {SQL.id: 2})
    apply_events(store, tenant, [], {SQL.id: 5})
    apply_events(store, tenant, [event(2, *RUN)], {SQL.id: 4})
    assert store.nodes([SQL.id])[SQL.id].props["executionCount"] == 5


def test_two_writers_at_once_end_in_the_same_graph(graph: Graph, store: GraphStore, tenant: Tenant) -> None:
    events = [event(at, *loaded(A, {f"properties.k{at}": at}, {"x": {}, f"y{at % 3}": {}})) for at in range(1, 25)]
    failures: list[BaseException] = []

    def write(mine: list[EventFacts]) -> None:
        try:
            for one in mine:
                assert not apply_events(graph.for_tenant(tenant.id), tenant, [one]).needs_rebuild
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(events[at::3],)) for at in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert lines(store) == Reference(tenant, events).lines()


def test_old_tombstones_are_pruned_and_the_graph_stays_as_it_is(store: GraphStore, tenant: Tenant) -> None:
    history = [
        event(1, *loaded(A, {"producer": "p"}, {"x": {}, "y": {}})),
        event(2, *RUN),
        event(3, Exists(TAG, "Tag"), Linked("HAS_TAG", B, TAG), Dropped(column(A, "y"))),
        event(4, Renamed(A, C), Unlinked("HAS_TAG", B, TAG)),
        event(5, Dropped(B)),
        event(60, Exists(B, "Table"), Dropped(TAG)),
    ]
    apply_events(store, tenant, history)
    before = lines(store)
    assert any("Tombstone" in item.labels for item in store.stream() if isinstance(item, Node))
    assert prune_graph(store, START + timedelta(minutes=30)) > 0
    assert lines(store) == before
    hidden = {item.id for item in store.stream() if isinstance(item, Node) and "Tombstone" in item.labels}
    assert hidden == {TAG.id}
    apply_events(store, tenant, [event(4.5, Exists(TAG, "Tag", {}))])
    assert lines(store) == before, "a drop that is not old yet still counts"
    assert prune_graph(store, START + timedelta(minutes=90)) > 0
    assert lines(store) == before
    assert prune_graph(store, START + timedelta(minutes=90)) == 0
    apply_events(store, tenant, [event(70, ColumnSet(C, (Exists(column(C, "x"), "Column"),)))])
    assert lines(store) == before


def test_that_column_lineage_was_taken_back_is_forgotten_with_the_drop_of_its_table(
    store: GraphStore, tenant: Tenant
) -> None:
    late = event(0, *derived(column(A, "x"), column(B, "y"), "p"))
    apply_events(store, tenant, [event(1, Exists(SCHEMAS[0], "Schema")), event(2, *underived(A))])
    assert prune_graph(store, START + timedelta(minutes=1.5)) == 0
    apply_events(store, tenant, [late])
    assert "DERIVES_FROM" not in "".join(lines(store))
    apply_events(store, tenant, [event(4, Dropped(A)), event(5, *underived(A))])
    assert prune_graph(store, START + timedelta(minutes=30)) > 0
    assert A.id not in {item.id for item in store.stream() if isinstance(item, Node)}
    apply_events(store, tenant, [late])
    assert "DERIVES_FROM" in "".join(lines(store))
