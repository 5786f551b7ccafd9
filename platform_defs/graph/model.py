"""What passes through the graph port: nodes, edges, the operations of a batch and what came of them."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

Props: TypeAlias = Mapping[str, Any]


class EdgeKey(NamedTuple):
    """Within a tenant there is one edge of a type between two nodes."""

    type: str
    from_id: str
    to_id: str


@dataclass(frozen=True, slots=True)
class Node:
    """One kind label; assets also carry `Knowledge` (added by itself) and at most one vector label."""

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
    """With their edges; `with_subtree` also deletes what hangs below along HAS_SCHEMA/TABLE/COLUMN/METRIC."""

    ids: Sequence[str]
    with_subtree: bool = False


@dataclass(frozen=True, slots=True)
class DeleteEdges:
    keys: Sequence[EdgeKey]


Operation: TypeAlias = UpsertNodes | PatchNodes | UpsertEdges | DeleteNodes | DeleteEdges


@dataclass(frozen=True, slots=True)
class Applied:
    """What a batch could not do: patches of absent nodes and edges with an absent end, in order, each once per write.

    Deleting what is absent is not reported: it is gone, as asked.
    """

    absent_nodes: tuple[str, ...] = ()
    dangling_edges: tuple[EdgeKey, ...] = ()
