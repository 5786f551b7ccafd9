"""The same random batches end in the same graph on every store, and in the graph that plain dicts say."""

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine

from platform_defs.graph.checks import check_props
from platform_defs.graph.embedded import EmbeddedGraph
from platform_defs.graph.model import (
    DeleteEdges,
    DeleteNodes,
    Edge,
    EdgeKey,
    Node,
    Operation,
    Patch,
    PatchNodes,
    UpsertEdges,
    UpsertNodes,
)
from platform_defs.graph.neo4j import Neo4jGraph
from platform_defs.graph.port import GraphStore
from platform_defs.graph.text import graph_lines
from tests.graph.conftest import EMBEDDED, random_tenant
from tests.graph.plain_model import PlainModel

TENANT = "the tenant's number"  # stands for it until the batch is bound to a tenant

asset_ids = st.sampled_from(["a", "A", "a ", "á", "b", "c"])
ids = st.one_of(asset_ids, st.just(TENANT))
types = st.sampled_from(["HAS_SCHEMA", "HAS_TABLE", "HAS_TAG", "DERIVES_FROM"])
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
integers = st.integers(-(2**63), 2**63 - 1)
floats = st.floats(allow_nan=False, allow_infinity=False)
scalars = st.one_of(text, integers, floats, st.booleans())
lists = st.one_of(*(st.lists(one, max_size=3) for one in (text, integers, floats, st.booleans())))
maps = st.dictionaries(text, st.one_of(scalars, st.none()), max_size=2)
props = st.dictionaries(st.sampled_from(["x", "y", "z", "_v"]), st.one_of(st.none(), scalars, lists, maps), max_size=3)
vectors = st.sampled_from([frozenset[str](), frozenset({"Knowledge_2_cosine"}), frozenset({"Knowledge_3_euclidean"})])
kinds = st.sampled_from(["Table", "Column", "Tag"])

assets = st.builds(lambda id, kind, vector, props: Node(id, {kind} | vector, props), asset_ids, kinds, vectors, props)
tenant_nodes = st.builds(lambda props: Node(TENANT, {"Tenant"}, props), props)
patches = st.one_of(st.builds(Patch, asset_ids, props, vectors), st.builds(lambda props: Patch(TENANT, props), props))
operations = st.one_of(
    st.builds(UpsertNodes, st.lists(st.one_of(assets, assets, tenant_nodes), max_size=6)),
    st.builds(UpsertEdges, st.lists(st.builds(Edge, types, ids, ids, props), max_size=8)),
    st.builds(PatchNodes, st.lists(patches, max_size=4)),
    st.builds(DeleteNodes, st.lists(ids, max_size=2)),
    st.builds(DeleteEdges, st.lists(st.builds(EdgeKey, types, ids, ids), max_size=3)),
)
batches = st.lists(st.lists(operations, min_size=1, max_size=6), min_size=1, max_size=4)

# a round trip to a server costs what twenty to a file do; what the stores have in common is tried on the file
EXAMPLES = {"sqlite": 40, "mysql": 15, "mariadb": 15, "neo4j": 20}
by_example = settings(
    max_examples=EXAMPLES["neo4j"],
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def bound(operation: Operation, tenant: int) -> Operation:
    def own(id: str) -> str:
        return str(tenant) if id == TENANT else id

    match operation:
        case UpsertNodes(nodes):
            return UpsertNodes([Node(own(node.id), node.labels, node.props) for node in nodes])
        case PatchNodes(some):
            return PatchNodes([Patch(own(patch.id), patch.props, patch.labels) for patch in some])
        case UpsertEdges(edges):
            return UpsertEdges([Edge(edge.type, own(edge.from_id), own(edge.to_id), edge.props) for edge in edges])
        case DeleteNodes(some_ids):
            return DeleteNodes([own(id) for id in some_ids])
        case DeleteEdges(keys):
            return DeleteEdges([EdgeKey(key.type, own(key.from_id), own(key.to_id)) for key in keys])


def check(stores: list[GraphStore], random_batches: list[list[Operation]]) -> None:
    """repr besides the values: 1, 1.0 and True are equal, and 0.0 is -0.0, but they are not the same graph."""
    model = PlainModel()
    try:
        for batch in random_batches:
            here = [bound(operation, stores[0].tenant) for operation in batch]
            model.apply(as_stored(here))
            reports = {repr(store.apply(here)) for store in stores}
            assert len(reports) == 1
        expected = [exact(item) for item in model.stream()]
        for store in stores:
            assert [exact(item) for item in store.stream()] == expected
        assert len({tuple(graph_lines(store)) for store in stores}) == 1
    finally:
        for store in stores:
            store.clear()


def as_stored(batch: list[Operation]) -> list[Operation]:
    """Maps as the text they are kept as, by the store's own rule, which test_contract states in an example."""

    def kept(operation: Operation) -> Operation:
        match operation:
            case UpsertNodes(nodes):
                return UpsertNodes([Node(node.id, node.labels, check_props(node.props)) for node in nodes])
            case PatchNodes(some):
                return PatchNodes([Patch(patch.id, check_props(patch.props), patch.labels) for patch in some])
            case UpsertEdges(edges):
                return UpsertEdges([Edge(*edge.key, check_props(edge.props)) for edge in edges])
            case other:
                return other

    return [kept(operation) for operation in batch]


def exact(item: Node | Edge) -> tuple[object, ...]:
    properties = sorted((name, repr(value)) for name, value in item.props.items())
    return (item.id, sorted(item.labels), properties) if isinstance(item, Node) else (item.key, properties)


@pytest.mark.needs("neo4j")
@by_example
@given(batches)
def test_embedded_and_neo4j_end_in_the_same_graph(
    migrated: dict[str, Engine], neo4j: Neo4jGraph, random_batches: list[list[Operation]]
) -> None:
    tenant = random_tenant()
    check([EmbeddedGraph.on(migrated["sqlite"]).for_tenant(tenant), neo4j.for_tenant(tenant)], random_batches)


@pytest.mark.parametrize("database", EMBEDDED)
def test_the_embedded_graph_is_the_one_that_plain_dicts_say(database: str, migrated: dict[str, Engine]) -> None:
    @settings(by_example, max_examples=EXAMPLES[database])
    @given(batches)
    def equal(random_batches: list[list[Operation]]) -> None:
        check([EmbeddedGraph.on(migrated[database]).for_tenant(random_tenant())], random_batches)

    run: Callable[[], None] = equal
    run()
