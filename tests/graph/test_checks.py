"""Both stores refuse the same values with the same error, before anything is written."""

from enum import StrEnum
from typing import Any

import pytest

from platform_defs.graph.errors import InvalidGraphValue
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
from platform_defs.graph.port import Graph, GraphStore


class Colour(StrEnum):
    RED = "red"


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"x": value}
    return value


BAD_VALUES = {
    "nan": float("nan"),
    "infinity": float("-inf"),
    "an integer of 65 bits": 2**63,
    "a lone surrogate": "a\ud800",
    "bytes": b"x",
    "a set": {1},
    "an object": object(),
    "an enum": Colour.RED,
    "a list of integers and floats": [1, 2.0],
    "a list of booleans and integers": [True, 1],
    "a list with None": ["a", None],
    "a list of lists": [[1]],
    "a list of maps": [{"a": 1}],
    "a list with a surrogate": ["\udfff"],
    "a map with nan": {"a": {"b": float("nan")}},
    "a map with a surrogate as key": {"\ud800": 1},
    "a map with a number as key": {1: 1},
    "a map with bytes": {"a": b"x"},
    "a map nested too deeply": nested(101),
}


@pytest.mark.parametrize("name", sorted(BAD_VALUES))
def test_a_property_cannot_be(name: str, store: GraphStore) -> None:
    bad = {"fine": 1, "bad": BAD_VALUES[name]}
    store.apply([UpsertNodes([Node("t", {"Table"})])])
    for operation in (
        UpsertNodes([Node("u", {"Table"}), Node("v", {"Table"}, bad)]),
        PatchNodes([Patch("t", {"x": 1}), Patch("t", bad)]),
        UpsertEdges([Edge("HAS_TAG", "t", "t"), Edge("HAS_TAG", "t", "t", bad)]),
    ):
        with pytest.raises(InvalidGraphValue) as caught:
            store.apply([operation])
        assert caught.value.field == "props.bad"
        assert "\n" not in str(caught.value)
        str(caught.value).encode()
    assert list(store.stream()) == [Node("t", {"Table", "Knowledge"})]


BAD_OPERATIONS: dict[str, tuple[Operation, str]] = {
    "an empty id": (UpsertNodes([Node("", {"Table"})]), "id"),
    "an id of 513 characters": (UpsertNodes([Node("x" * 513, {"Table"})]), "id"),
    "an id with NUL": (UpsertNodes([Node("a\x00", {"Table"})]), "id"),
    "an id with a surrogate": (DeleteNodes(["\ud800"]), "id"),
    "an id that is a number": (DeleteNodes([1]), "id"),  # type: ignore[list-item]
    "no kind": (UpsertNodes([Node("a", {"Knowledge"})]), "labels"),
    "two kinds": (UpsertNodes([Node("a", {"Table", "Column"})]), "labels"),
    "an unknown label": (UpsertNodes([Node("a", {"Table", "OLJob"})]), "labels"),
    "a label that is code": (UpsertNodes([Node("a", {"Table {x: 1}) DETACH DELETE n //"})]), "labels"),
    "two vector labels": (UpsertNodes([Node("a", {"Table", "Knowledge_1_cosine", "Knowledge_2_cosine"})]), "labels"),
    "a vector label of no dimension": (UpsertNodes([Node("a", {"Table", "Knowledge_0_cosine"})]), "labels"),
    "a vector label beyond 4096": (UpsertNodes([Node("a", {"Table", "Knowledge_4097_cosine"})]), "labels"),
    "a kind in a patch": (PatchNodes([Patch("a", {}, {"Table"})]), "labels"),
    "an embedding of another length": (
        UpsertNodes([Node("a", {"SQL", "Knowledge_3_cosine"}, {"embedding": [1.0]})]),
        "props.embedding",
    ),
    "an embedding of integers": (
        PatchNodes([Patch("a", {"embedding": [1]}, {"Knowledge_1_cosine"})]),
        "props.embedding",
    ),
    "a Tenant node with another id": (UpsertNodes([Node("a", {"Tenant"})]), "id"),
    "an unknown edge type": (UpsertEdges([Edge("KNOWS", "a", "b")]), "type"),
    "an edge type that is code": (DeleteEdges([EdgeKey("X]->() DELETE r //", "a", "b")]), "type"),
    "an edge from nowhere": (UpsertEdges([Edge("HAS_TAG", "", "b")]), "from_id"),
    "an edge to a long id": (DeleteEdges([EdgeKey("HAS_TAG", "a", "b" * 513)]), "to_id"),
    "a property name that is code": (UpsertNodes([Node("a", {"Table"}, {"x = 1 //": 1})]), "props"),
    "a property name with a newline": (UpsertNodes([Node("a", {"Table"}, {"x\n": 1})]), "props"),
    "an empty property name": (UpsertNodes([Node("a", {"Table"}, {"": 1})]), "props"),
    "the property id": (UpsertNodes([Node("a", {"Table"}, {"id": "b"})]), "props.id"),
    "the property tenantId": (PatchNodes([Patch("a", {"tenantId": 2})]), "props.tenantId"),
    "the property createdAt": (UpsertEdges([Edge("HAS_TAG", "a", "b", {"createdAt": "x"})]), "props.createdAt"),
}


@pytest.mark.parametrize("name", sorted(BAD_OPERATIONS))
def test_a_batch_cannot_contain(name: str, store: GraphStore) -> None:
    operation, field = BAD_OPERATIONS[name]
    with pytest.raises(InvalidGraphValue) as caught:
        store.apply([UpsertNodes([Node("fine", {"Table"})]), operation])
    assert caught.value.field == field
    assert list(store.stream()) == []


def test_the_tenants_number_is_no_assets_id(store: GraphStore) -> None:
    own = str(store.tenant)
    with pytest.raises(InvalidGraphValue, match="Tenant node"):
        store.apply([UpsertNodes([Node(own, {"Table"})])])
    for code in ("", "x" * 65, 7):
        with pytest.raises(InvalidGraphValue, match=r"props\.code"):
            store.apply([UpsertNodes([Node(own, {"Tenant"}, {"code": code})])])


@pytest.mark.parametrize("tenant", [True, "1", 1.0, None, 2**63])
def test_a_tenant_is_a_number(graph: Graph, tenant: Any) -> None:
    with pytest.raises(InvalidGraphValue, match="tenant"):
        graph.for_tenant(tenant)


def test_a_map_may_be_nested_up_to_the_limit_and_hold_any_integer(store: GraphStore) -> None:
    store.apply([UpsertNodes([Node("t", {"Table"}, {"deep": nested(99), "wide": {"n": 2**70}, "tuple": ("a", "b")})])])
    props = store.nodes(["t"])["t"].props
    assert props["wide"] == '{"n":1180591620717411303424}'
    assert props["tuple"] == ["a", "b"]
