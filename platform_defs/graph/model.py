"""The values that pass through the graph port: nodes, edges, the operations of a batch and its result."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

Props: TypeAlias = Mapping[str, Any]


class EdgeKey(NamedTuple):
    """Identifies an edge: within a tenant there is at most one edge of a type from one node to another."""

    type: str
    from_id: str
    to_id: str


@dataclass(frozen=True, slots=True)
class Node:
    """A node with one kind label. Assets also carry `Knowledge` (the store adds it) and at most one vector label."""

    id: str
    labels: Set[str]
    props: Props = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Patch:
    """A change of a node that must exist already: properties, and perhaps its vector label."""

    id: str
    props: Props = field(default_factory=dict)
    labels: Set[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Edge:
    type: str
    from_id: str
    to_id: str
    props: Props = field(default_factory=dict)

    @property
    def key(self) -> EdgeKey:
        return EdgeKey(self.type, self.from_id, self.to_id)


def edge_order(edge: Edge) -> tuple[str, str, str]:
    """The key that both stores sort edges by."""
    return edge.from_id, edge.type, edge.to_id


def name_order(node: Node) -> tuple[str, str, str]:
    """The key that both stores sort nodes by that were found by name."""
    return str(node.props.get("qualifiedName", "")), str(node.props.get("namespace", "")), node.id


@dataclass(frozen=True, slots=True)
class UpsertNodes:
    nodes: Sequence[Node]


@dataclass(frozen=True, slots=True)
class PatchNodes:
    patches: Sequence[Patch]


@dataclass(frozen=True, slots=True)
class UpsertEdges:
    edges: Sequence[Edge]


@dataclass(frozen=True, slots=True)
class DeleteNodes:
    """Deletes nodes, and with them all edges that begin or end there."""

    ids: Sequence[str]


@dataclass(frozen=True, slots=True)
class DeleteEdges:
    keys: Sequence[EdgeKey]


Operation: TypeAlias = UpsertNodes | PatchNodes | UpsertEdges | DeleteNodes | DeleteEdges


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The writes of a batch that were not possible: patches of absent nodes and edges with an absent end, in order.

    Deleting an absent node or edge is not reported.
    """

    absent_nodes: tuple[str, ...] = ()
    dangling_edges: tuple[EdgeKey, ...] = ()
