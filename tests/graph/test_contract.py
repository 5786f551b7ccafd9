"""What every graph store promises, on every store."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from platform_defs.graph.errors import GraphConflict, InvalidGraphValue
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
from platform_defs.graph.port import Graph, GraphStore, GraphTransaction
from platform_defs.graph.text import graph_lines


def table(id: str, **props: object) -> Node:
    return Node(id, {"Table"}, props)


def everything(store: GraphStore) -> list[Node | Edge]:
    return list(store.stream())


def test_a_node_reads_back_with_its_labels_and_every_type_of_value(store: GraphStore) -> None:
    props = {
        "name": "订单 ✓ 🜚 \x00 \u2028 'quoted' `tick`",
        "empty": "",
        "least": -(2**63),
        "most": 2**63 - 1,
        "tiny": 5e-324,
        "huge": 1.7976931348623157e308,
        "third": 0.1 + 0.2,
        "negativeZero": -0.0,
        "whole": 1.0,
        "yes": True,
        "no": False,
        "words": ["b", "a", "b"],
        "numbers": [1, 2],
        "floats": [1.0, 2.5],
        "flags": [True, False],
        "nothing": [],
    }
    store.apply([UpsertNodes([Node("table:1", {"Table"}, props)])])
    read = store.nodes(["table:1"])["table:1"]
    assert read == Node("table:1", {"Table", "Knowledge"}, props)
    assert {name: repr(value) for name, value in read.props.items()} == {k: repr(v) for k, v in props.items()}


def test_a_map_is_kept_as_canonical_text(store: GraphStore) -> None:
    store.apply([UpsertNodes([table("t", properties={"b": [1, {"z": None}], "a": "ü"})])])
    assert store.nodes(["t"])["t"].props == {"properties": '{"a":"ü","b":[1,{"z":null}]}'}


def test_an_upsert_overwrites_what_it_names_removes_what_is_none_and_keeps_the_rest(store: GraphStore) -> None:
    store.apply([UpsertNodes([table("t", name="a", description="d", nullable=1)])])
    store.apply([UpsertNodes([table("t", name="b", description=None, nullable=True, absent=None)])])
    assert repr(store.nodes(["t"])["t"].props["nullable"]) == "True"
    assert store.nodes(["t"])["t"].props == {"name": "b", "nullable": True}


def test_the_last_of_two_writes_to_one_node_in_a_batch_wins(store: GraphStore) -> None:
    store.apply([UpsertNodes([table("t", a=1, b=1, c=1), table("t", a=None, b=2), table("t", a=3)])])
    assert store.nodes(["t"])["t"].props == {"a": 3, "b": 2, "c": 1}


def test_a_kind_replaces_the_kind_and_a_vector_label_stays_until_another_comes(store: GraphStore) -> None:
    store.apply(
        [UpsertNodes([Node("m", {"AtomicMetric", "Knowledge_2_cosine"}, {"embedding": [0.5, 1.0], "code": "c"})])]
    )
    store.apply([UpsertNodes([Node("m", {"DerivedMetric"})])])
    assert store.nodes(["m"])["m"] == Node(
        "m", {"DerivedMetric", "Knowledge", "Knowledge_2_cosine"}, {"embedding": [0.5, 1.0], "code": "c"}
    )
    store.apply([PatchNodes([Patch("m", {"embedding": [1.0, 2.0, 3.0]}, {"Knowledge_3_euclidean"})])])
    assert store.nodes(["m"])["m"].labels == {"DerivedMetric", "Knowledge", "Knowledge_3_euclidean"}


def test_the_tenant_node_is_found_by_the_tenants_number_and_carries_its_label_alone(store: GraphStore) -> None:
    id = str(store.tenant)
    store.apply([UpsertNodes([Node(id, {"Tenant"}, {"code": f"c{id}", "name": "Demo"}), Node("c", {"Catalog"})])])
    store.apply([UpsertEdges([Edge("OWNS_CATALOG", id, "c")])])
    assert store.nodes([id])[id] == Node(id, {"Tenant"}, {"code": f"c{id}", "name": "Demo"})
    assert store.edges(["c"]) == store.edges([id]) == [Edge("OWNS_CATALOG", id, "c")]
    store.apply([PatchNodes([Patch(id, {"name": None})])])
    assert store.nodes([id])[id].props == {"code": f"c{id}"}
    store.apply([DeleteNodes([id])])
    assert everything(store) == [Node("c", {"Catalog", "Knowledge"})]


def test_a_tenant_code_belongs_to_one_tenant(new_tenant: Callable[[], GraphStore]) -> None:
    one, two = new_tenant(), new_tenant()
    code = f"code-{one.tenant}"
    one.apply([UpsertNodes([Node(str(one.tenant), {"Tenant"}, {"code": code})])])
    with pytest.raises(GraphConflict):
        two.apply([UpsertNodes([table("t"), Node(str(two.tenant), {"Tenant"}, {"code": code})])])
    assert everything(two) == []
    one.apply([PatchNodes([Patch(str(one.tenant), {"code": None})])])
    two.apply([UpsertNodes([Node(str(two.tenant), {"Tenant"}, {"code": code})])])
    assert two.nodes([str(two.tenant)])[str(two.tenant)].props == {"code": code}


def test_setting_properties_changes_existing_nodes_only_and_reports_the_absent(store: GraphStore) -> None:
    store.apply([UpsertNodes([table("t", a=1, b=1)])])
    applied = store.apply([PatchNodes([Patch("none", {"a": 2}), Patch("t", {"a": 2, "b": None})])])
    assert applied == BatchResult(absent_nodes=("none",))
    assert everything(store) == [Node("t", {"Table", "Knowledge"}, {"a": 2})]


def test_an_edge_is_one_per_type_and_ends_and_merges_its_properties(store: GraphStore) -> None:
    store.apply([UpsertNodes([table("a"), table("b")])])
    store.apply([UpsertEdges([Edge("DERIVES_FROM", "a", "b", {"x": 1, "y": 1}), Edge("DERIVES_FROM", "b", "a")])])
    store.apply([UpsertEdges([Edge("DERIVES_FROM", "a", "b", {"y": None, "z": 2}), Edge("HAS_TAG", "a", "b")])])
    store.apply([UpsertEdges([Edge("DERIVES_FROM", "a", "b")])])
    assert store.edges(["a"]) == [
        Edge("DERIVES_FROM", "a", "b", {"x": 1, "z": 2}),
        Edge("HAS_TAG", "a", "b"),
        Edge("DERIVES_FROM", "b", "a"),
    ]
    assert store.edges(["a", "b"], types=["HAS_TAG"]) == [Edge("HAS_TAG", "a", "b")]


def test_an_edge_with_an_absent_end_is_not_created_but_reported(store: GraphStore) -> None:
    store.apply([UpsertNodes([table("a")])])
    absent = [Edge("HAS_TAG", "a", "none"), Edge("HAS_TAG", "none", "a"), Edge("HAS_TAG", "x", "y")]
    applied = store.apply([UpsertEdges([absent[0], Edge("HAS_TAG", "a", "a"), *absent[1:]])])
    assert applied == BatchResult(dangling_edges=tuple(edge.key for edge in absent))
    assert everything(store) == [Node("a", {"Table", "Knowledge"}), Edge("HAS_TAG", "a", "a")]


def test_deleting_edges_leaves_the_nodes_and_the_other_edges(store: GraphStore) -> None:
    store.apply([UpsertNodes([table("a"), table("b")])])
    store.apply([UpsertEdges([Edge("HAS_TAG", "a", "b"), Edge("INPUT_OF", "a", "b"), Edge("HAS_TAG", "b", "a")])])
    store.apply([DeleteEdges([EdgeKey("HAS_TAG", "a", "b"), EdgeKey("HAS_TAG", "a", "none")])])
    assert store.edges(["a"]) == [Edge("INPUT_OF", "a", "b"), Edge("HAS_TAG", "b", "a")]


def small_catalog(store: GraphStore) -> None:
    nodes = [("c", "Catalog"), ("s", "Schema"), ("t", "Table"), ("k", "Column"), ("m", "AtomicMetric"), ("g", "Tag")]
    store.apply([UpsertNodes([*(Node(id, {kind}) for id, kind in nodes), Node("q", {"SQL"})])])
    links = [("HAS_SCHEMA", "c", "s"), ("HAS_TABLE", "s", "t"), ("HAS_COLUMN", "t", "k"), ("HAS_METRIC", "s", "m")]
    store.apply([UpsertEdges([Edge(*link) for link in [*links, ("HAS_TAG", "t", "g"), ("INPUT_OF", "t", "q")]])])


def test_deleting_a_node_takes_its_edges_and_leaves_the_nodes_below_it(store: GraphStore) -> None:
    small_catalog(store)
    store.apply([DeleteNodes(["s", "none"])])
    assert sorted(store.nodes(["c", "s", "t", "k", "m", "g", "q"])) == ["c", "g", "k", "m", "q", "t"]
    assert store.edges(["c", "m"]) == []


def test_operations_apply_in_order(store: GraphStore) -> None:
    store.apply(
        [
            UpsertNodes([table("a", v=1), table("b")]),
            UpsertEdges([Edge("HAS_TAG", "a", "b"), Edge("INPUT_OF", "a", "b")]),
            DeleteNodes(["a"]),
            UpsertNodes([table("a", w=1)]),
            PatchNodes([Patch("a", {"w": 2})]),
            UpsertEdges([Edge("HAS_TAG", "b", "a")]),
            DeleteEdges([EdgeKey("HAS_TAG", "a", "b")]),
        ]
    )
    assert everything(store) == [
        Node("a", {"Table", "Knowledge"}, {"w": 2}),
        Node("b", {"Table", "Knowledge"}),
        Edge("HAS_TAG", "b", "a"),
    ]


def test_an_invalid_value_at_the_end_of_a_batch_leaves_nothing_of_it(store: GraphStore) -> None:
    with pytest.raises(InvalidGraphValue) as caught:
        store.apply([UpsertNodes([table("a")]), UpsertEdges([Edge("HAS_TAG", "a", "a", {"x": float("nan")})])])
    assert caught.value.field == "props.x"
    assert everything(store) == []


def test_ids_differ_by_case_accent_and_trailing_space_and_may_have_512_characters(store: GraphStore) -> None:
    ids = ["a", "A", "á", "a ", "a\u0301", " a", "𝄞" * 512, "\uffff", "\U00010000", "z"]
    store.apply([UpsertNodes([table(id, name=id) for id in ids])])
    store.apply([UpsertEdges([Edge("HAS_TAG", "𝄞" * 512, id) for id in ids])])
    assert [item.id for item in store.stream() if isinstance(item, Node)] == sorted(ids)
    assert [item.to_id for item in store.stream() if isinstance(item, Edge)] == sorted(ids)
    assert {id: node.props["name"] for id, node in store.nodes(ids).items()} == {id: id for id in ids}


def test_more_nodes_than_a_page_stream_once_and_in_order(store: GraphStore) -> None:
    ids = [f"{at % 10}:{at:05}" for at in range(2500)]
    store.apply([UpsertNodes([*(table(id) for id in ids), Node(str(store.tenant), {"Tenant"}, {"name": "n"})])])
    store.apply([UpsertEdges([Edge("HAS_TAG", id, ids[0], {"at": 1}) for id in ids])])
    streamed = everything(store)
    assert [item.id for item in streamed if isinstance(item, Node)] == sorted([*ids, str(store.tenant)])
    assert [item.from_id for item in streamed if isinstance(item, Edge)] == sorted(ids)
    assert len(store.edges(ids)) == 2500
    store.clear()
    assert everything(store) == []


def test_the_lines_of_a_graph_are_json_without_bookkeeping(store: GraphStore) -> None:
    store.apply([UpsertNodes([table("b", name="ü", _version=3), table("a", z=1, y=[1.0])])])
    store.apply([UpsertEdges([Edge("HAS_TAG", "b", "a", {"_version": 1, "k": True})])])
    assert list(graph_lines(store)) == [
        '{"node": ["Knowledge", "Table"], "id": "a", "props": {"y": [1.0], "z": 1}}',
        '{"node": ["Knowledge", "Table"], "id": "b", "props": {"name": "ü"}}',
        '{"edge": "HAS_TAG", "from": "b", "to": "a", "props": {"k": true}}',
    ]


def test_writers_at_once_lose_no_property_and_create_each_node_once(store: GraphStore) -> None:
    ids = [f"t{at}" for at in range(40)]

    def write(writer: int) -> None:
        order = ids if writer % 2 else ids[::-1]
        store.apply(
            [
                UpsertNodes([table(id, **{f"w{writer}": writer}) for id in order]),
                UpsertEdges([Edge("HAS_TAG", id, order[0], {f"w{writer}": 1}) for id in order]),
            ]
        )

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    expected = {f"w{writer}": writer for writer in range(4)}
    assert {id: node.props for id, node in store.nodes(ids).items()} == dict.fromkeys(ids, expected)
    assert len(store.edges(ids)) == 2 * len(ids)  # both directions of writing have their own hub


def test_an_empty_batch_is_nothing(store: GraphStore) -> None:
    assert store.apply([]) == store.apply([UpsertNodes([])]) == store.apply([UpsertEdges([])]) == BatchResult()
    assert store.nodes([]) == {}
    assert store.edges([]) == []
    assert store.edges(["a"], types=[]) == []


def test_a_vector_index_is_named_by_dimension_and_similarity(graph: Graph) -> None:
    assert graph.ensure_vector_index(3, "cosine") == graph.ensure_vector_index(3, "cosine") == "Knowledge_3_cosine"
    for dimension, similarity, field in [
        (0, "cosine", "dimension"),
        (4097, "cosine", "dimension"),
        (3, "l2", "similarity"),
    ]:
        with pytest.raises(InvalidGraphValue) as caught:
            graph.ensure_vector_index(dimension, similarity)
        assert caught.value.field == field


def test_a_graph_that_is_there_answers_a_ping(graph: Graph) -> None:
    graph.ping()
    graph.ensure_schema()


def test_an_update_sees_its_own_writes_and_leaves_nothing_when_it_fails(store: GraphStore) -> None:
    class Failed(Exception):
        pass

    def work(transaction: GraphTransaction) -> None:
        transaction.apply([UpsertNodes([table("t", x=1), table("u")]), UpsertEdges([Edge("HAS_TAG", "t", "u")])])
        assert transaction.nodes(["t"])["t"].props == {"x": 1}
        assert [edge.key for edge in transaction.edges(["u"])] == [EdgeKey("HAS_TAG", "t", "u")]
        assert list(transaction.edges_by_key([EdgeKey("HAS_TAG", "t", "u"), EdgeKey("HAS_TAG", "u", "t")])) == [
            EdgeKey("HAS_TAG", "t", "u")
        ]
        raise Failed

    with pytest.raises(Failed):
        store.update(work)
    assert everything(store) == []


def test_updates_of_one_tenant_do_not_overlap(store: GraphStore) -> None:
    def increment(_: int) -> None:
        def work(transaction: GraphTransaction) -> None:
            counted = transaction.nodes(["t"])
            number = counted["t"].props["n"] if counted else 0
            transaction.apply([UpsertNodes([table("t", n=number + 1)])])

        store.update(work)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(increment, range(24)))
    assert store.nodes(["t"])["t"].props["n"] == 24


def test_edges_are_read_by_their_keys_and_types(store: GraphStore) -> None:
    own = str(store.tenant)
    store.apply([UpsertNodes([Node(own, {"Tenant"}), table("a"), table("b")])])
    edges = [Edge("OWNS_TAG", own, "a", {"k": 1}), Edge("HAS_TAG", "a", "b", {"k": 2}), Edge("GONE_HAS_TAG", "a", "b")]
    store.apply([UpsertEdges([*edges, Edge("INPUT_OF", "a", "b")])])
    wanted = [edge.key for edge in edges]
    assert store.edges_by_key([*wanted, EdgeKey("HAS_TAG", "b", "a"), EdgeKey("HAS_TAG", "a", "absent")]) == {
        edge.key: edge for edge in edges
    }


def test_a_table_comes_from_what_its_jobs_read_and_from_the_tables_of_its_columns_sources(store: GraphStore) -> None:
    tables = ["read", "made", "derived", "whole", "column"]
    columns = {name: f"column:{name}" for name in ("derived", "column", "whole")}
    store.apply(
        [
            UpsertNodes([table(name) for name in tables] + [Node(id, {"Column"}) for id in columns.values()]),
            UpsertNodes([Node("job", {"SQL"}), Node("gone", {"SQL"})]),
            UpsertEdges([Edge("HAS_COLUMN", name, id) for name, id in columns.items()]),
            UpsertEdges([Edge("INPUT_OF", "read", "job"), Edge("OUTPUT_TO", "job", "made")]),
            # a job that reads what it writes, and one whose edge was taken back
            UpsertEdges([Edge("INPUT_OF", "made", "job"), Edge("INPUT_OF", "column", "gone")]),
            UpsertEdges([Edge("GONE_OUTPUT_TO", "gone", "made")]),
            UpsertEdges([Edge("DERIVES_FROM", columns["derived"], columns["column"])]),
            UpsertEdges([Edge("DERIVES_FROM", "whole", columns["column"])]),
            UpsertEdges([Edge("DERIVES_FROM", columns["whole"], columns["whole"])]),
        ]
    )
    expected = [("derived", "column"), ("made", "made"), ("made", "read"), ("whole", "column"), ("whole", "whole")]
    assert store.upstream_tables([*tables, "absent"], limit=10) == expected
    assert store.upstream_tables(tables, limit=2) == expected[:2]
    assert store.upstream_tables(["read"], limit=10) == []


def test_tombstones_and_gone_edges_are_not_part_of_the_text(store: GraphStore) -> None:
    store.apply([UpsertNodes([table("a"), table("b"), Node("gone", {"Tombstone"}, {"_facts": "{}"})])])
    shown = list(graph_lines(store))
    store.apply([UpsertEdges([Edge("GONE_HAS_TAG", "a", "b"), Edge("GONE_HAS_TAG", "a", "gone")])])
    assert list(graph_lines(store)) == shown
    assert len(shown) == 2
    store.apply([UpsertNodes([Node("gone", {"Table"})])])
    assert len(list(graph_lines(store))) == 3
