"""Two tenants that use the same ids never see, change or link each other's nodes, through any method of the port."""

import inspect
from collections.abc import Callable
from typing import cast

import pytest
from sqlalchemy import Engine
from sqlalchemy.exc import IntegrityError

from platform_defs.graph import cypher, neo4j_store
from platform_defs.graph import neo4j as neo4j_module
from platform_defs.graph.embedded import EmbeddedGraph
from platform_defs.graph.embedded_store import EmbeddedStore
from platform_defs.graph.model import (
    BatchResult,
    DeleteEdges,
    DeleteNodes,
    Edge,
    EdgeKey,
    Node,
    Patch,
    PatchNodes,
    UpsertEdges,
    UpsertNodes,
)
from platform_defs.graph.neo4j_store import Neo4jStore
from platform_defs.graph.port import GraphStore, GraphTransaction
from platform_defs.store.tables.graph import graph_edge, graph_node
from tests.graph.conftest import random_tenant
from tests.graph.cypher_patterns import node_patterns

IDS = ["c", "s", "t", "k"]


def fill(store: GraphStore, owner: str) -> None:
    """The same ids for every tenant; only the properties tell whose they are."""
    own = str(store.tenant)
    kinds = ["Catalog", "Schema", "Table", "Column"]
    store.apply([UpsertNodes([Node(own, {"Tenant"}, {"name": owner, "code": f"code{own}"})])])
    store.apply([UpsertNodes([Node(id, {kind}, {"owner": owner}) for id, kind in zip(IDS, kinds, strict=True)])])
    links = [("OWNS_CATALOG", own, "c"), ("HAS_SCHEMA", "c", "s"), ("HAS_TABLE", "s", "t"), ("HAS_COLUMN", "t", "k")]
    store.apply([UpsertEdges([Edge(*link, {"owner": owner}) for link in links])])


def try_apply(mine: GraphStore, theirs: GraphStore) -> None:
    mine.apply(
        [
            UpsertNodes([Node("t", {"Tag"}, {"owner": "mine now"})]),
            UpsertEdges([Edge("HAS_TAG", "k", "t")]),
            DeleteNodes(IDS),
        ]
    )


def apply_upsert_nodes(mine: GraphStore, theirs: GraphStore) -> None:
    mine.apply([UpsertNodes([Node(id, {"Tag", "Knowledge_2_cosine"}, {"owner": "mine now", "x": 1}) for id in IDS])])
    # the number of another tenant is an ordinary id here, not that tenant's node
    mine.apply([UpsertNodes([Node(str(theirs.tenant), {"Table"}, {"owner": "mine now"})])])


def apply_patches(mine: GraphStore, theirs: GraphStore) -> None:
    mine.apply([PatchNodes([Patch(id, {"owner": None, "x": 1}, {"Knowledge_2_cosine"}) for id in IDS])])
    applied = mine.apply([PatchNodes([Patch(str(theirs.tenant), {"name": "mine now"})])])
    assert applied == BatchResult(absent_nodes=(str(theirs.tenant),))


def apply_upsert_edges(mine: GraphStore, theirs: GraphStore) -> None:
    mine.apply([UpsertEdges([Edge("HAS_TAG", begin, end, {"x": 1}) for begin in IDS for end in IDS])])
    theirs.apply([UpsertNodes([Node("only theirs", {"Table"})])])
    crossing = [
        EdgeKey("HAS_TAG", "t", "only theirs"),
        EdgeKey("HAS_TAG", "only theirs", "t"),
        EdgeKey("OWNS_TAG", str(theirs.tenant), "t"),
        EdgeKey("HAS_TAG", "t", str(theirs.tenant)),
    ]
    assert mine.apply([UpsertEdges([Edge(*key) for key in crossing])]) == BatchResult(dangling_edges=tuple(crossing))
    theirs.apply([DeleteNodes(["only theirs"])])


def apply_delete_nodes(mine: GraphStore, theirs: GraphStore) -> None:
    mine.apply([DeleteNodes(["k"])])
    mine.apply([DeleteNodes(["c", "s", "t", str(theirs.tenant)])])
    assert [item for item in mine.stream() if isinstance(item, Node)] != []  # its own Tenant node


def apply_delete_edges(mine: GraphStore, theirs: GraphStore) -> None:
    mine.apply([DeleteEdges([EdgeKey("HAS_SCHEMA", "c", "s"), EdgeKey("OWNS_CATALOG", str(theirs.tenant), "c")])])


def try_clear(mine: GraphStore, theirs: GraphStore) -> None:
    mine.clear()


def try_nodes(mine: GraphStore, theirs: GraphStore) -> None:
    read = mine.nodes([*IDS, str(theirs.tenant)])
    assert {id: node.props for id, node in read.items()} == {id: {"owner": "mine"} for id in IDS}


def try_upstream_tables(mine: GraphStore, theirs: GraphStore) -> None:
    """The other tenant's table comes from one of theirs; mine, of the same id, from nothing."""
    theirs.apply([UpsertNodes([Node("j", {"SQL"}), Node("u", {"Table"})])])
    theirs.apply([UpsertEdges([Edge("INPUT_OF", "u", "j"), Edge("OUTPUT_TO", "j", "t")])])
    assert theirs.upstream_tables(["t"], limit=10) == [("t", "u")]
    assert mine.upstream_tables(["t"], limit=10) == []
    theirs.apply([DeleteNodes(["j", "u"])])


def try_edges(mine: GraphStore, theirs: GraphStore) -> None:
    read = mine.edges([*IDS, str(theirs.tenant)])
    assert len(read) == 4
    assert {edge.props["owner"] for edge in read} == {"mine"}


def try_edges_by_key(mine: GraphStore, theirs: GraphStore) -> None:
    keys = [EdgeKey("HAS_TABLE", "s", "t"), EdgeKey("OWNS_CATALOG", str(theirs.tenant), "c")]
    assert {key: edge.props for key, edge in mine.edges_by_key(keys).items()} == {keys[0]: {"owner": "mine"}}


def try_follow(mine: GraphStore, theirs: GraphStore) -> None:
    ids = [*IDS, str(theirs.tenant)]
    for forward in (True, False):
        read = mine.follow(ids, ["HAS_TABLE", "OWNS_CATALOG"], forward=forward, limit=9)
        assert {edge.props["owner"] for edge in read} == {"mine"}
        assert len(read) == 1 + (not forward)


def try_find_by_ending(mine: GraphStore, theirs: GraphStore) -> None:
    theirs.apply([PatchNodes([Patch("t", {"qualifiedName": "sales.orders"})])])
    assert mine.find_by_ending("Table", ["orders"], limit=9) == []
    theirs.apply([PatchNodes([Patch("t", {"qualifiedName": None})])])


def try_find_by_text(mine: GraphStore, theirs: GraphStore) -> None:
    theirs.apply([PatchNodes([Patch("t", {"qualifiedName": "sales.orders"})])])
    assert mine.find_by_text("Table", "orders", limit=9) == []
    theirs.apply([PatchNodes([Patch("t", {"qualifiedName": None})])])


def try_update(mine: GraphStore, theirs: GraphStore) -> None:
    def work(transaction: GraphTransaction) -> None:
        assert transaction.tenant == mine.tenant
        for attempt in (try_nodes, try_edges, try_edges_by_key, try_apply):
            attempt(cast(GraphStore, transaction), theirs)

    mine.update(work)


def try_stream(mine: GraphStore, theirs: GraphStore) -> None:
    assert "theirs" not in {value for item in mine.stream() for value in item.props.values()}
    assert len(list(mine.stream())) == 9


ATTEMPTS = {name.removeprefix("try_"): value for name, value in globals().items() if name.startswith("try_")}
OPERATIONS = {name: value for name, value in globals().items() if name.startswith("apply_")}


@pytest.mark.parametrize("protocol", [GraphStore, EmbeddedStore, Neo4jStore])
def test_every_public_method_of_a_tenants_store_is_attempted_below(protocol: type) -> None:
    methods = {name for name in dir(protocol) if not name.startswith("_")} - {"tenant"}
    assert methods == set(ATTEMPTS), "add an attempt for a new method, so that its isolation is proven"
    for name in methods:
        assert not [word for word in inspect.signature(getattr(protocol, name)).parameters if "tenant" in word]


@pytest.mark.parametrize("method", sorted(ATTEMPTS | OPERATIONS))
def test_a_tenant_cannot_reach_the_other_through(method: str, new_tenant: Callable[[], GraphStore]) -> None:
    mine, theirs = new_tenant(), new_tenant()
    fill(mine, "mine")
    fill(theirs, "theirs")
    before = list(theirs.stream())
    assert len(before) == 9
    (ATTEMPTS | OPERATIONS)[method](mine, theirs)
    assert list(theirs.stream()) == before


def test_the_database_itself_refuses_an_edge_between_tenants(engine: Engine) -> None:
    one, two = random_tenant(), random_tenant()
    graph = EmbeddedGraph.on(engine)
    for tenant in (one, two):
        graph.for_tenant(tenant).apply([UpsertNodes([Node("t", {"Table"})])])
    with engine.connect() as connection:
        numbers = dict(
            connection.execute(graph_node.select().with_only_columns(graph_node.c.tenant_id, graph_node.c.id)).all()
        )
    row = {"tenant_id": one, "from_node": numbers[one], "type": "HAS_TAG", "to_node": numbers[two], "props": "{}"}
    with pytest.raises(IntegrityError), engine.begin() as connection:
        connection.execute(graph_edge.insert().values(row))


TEMPLATES = {
    name: text for name, text in vars(cypher).items() if isinstance(text, str) and ("MATCH" in text or "MERGE" in text)
}


@pytest.mark.parametrize("name", sorted(TEMPLATES))
def test_every_pattern_of_every_cypher_template_carries_the_tenant(name: str) -> None:
    patterns = node_patterns(TEMPLATES[name])
    assert patterns
    for pattern in patterns:
        assert "{{tenantId: $tenant" in pattern, f"{name}: {pattern} matches nodes of every tenant"


def test_no_cypher_stands_outside_its_module() -> None:
    source = inspect.getsource(neo4j_module) + inspect.getsource(neo4j_store)
    assert not {word for word in ("MATCH", "MERGE", "CREATE ", "UNWIND ") if word in source.replace('"""', "")} - {
        "UNWIND "
    }
    assert source.count("tx.run(") == 2  # on tenant data, with the tenant; on the schema, without


def test_the_walk_over_templates_sees_a_pattern_without_a_tenant() -> None:
    bad = "MATCH (a:Knowledge {{tenantId: $tenant, id: 1}})-[r]->(b) MERGE (a)-[:X]->(c:Table {{id: 2}})"
    assert [pattern for pattern in node_patterns(bad) if "tenantId" not in pattern] == ["(b)", "(c:Table {{id: 2}})"]
