"""The graph port: what the platform asks of a graph, whichever store answers.

`Graph` is a connection to a store; `Graph.for_tenant` gives a `GraphStore`, which is bound to that tenant: none of its
methods takes a tenant, so none can forget or confuse it.

Writes merge. Given properties overwrite, None removes, others stay. The kind label of an upsert replaces the stored
kind (a metric may turn from atomic to derived), a vector label replaces the stored vector label, and a node upserted
without one keeps what it has. An edge to an absent node is not created but reported. A node's id is unique within
its tenant over all kinds; the Tenant node's id is the tenant's number and belongs to it alone.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

from platform_defs.graph.model import Applied, Edge, EdgeKey, Node, Operation, Patch

T = TypeVar("T")


class GraphTransaction(Protocol):
    """What may be done inside `GraphStore.update`: reads that see what was applied before, and writes."""

    @property
    def tenant(self) -> int: ...

    def apply(self, operations: Iterable[Operation]) -> Applied: ...

    def nodes(self, ids: Sequence[str]) -> Mapping[str, Node]: ...

    def edges(self, ids: Sequence[str], *, types: Sequence[str] | None = None) -> list[Edge]: ...

    def links(self, keys: Sequence[EdgeKey]) -> Mapping[EdgeKey, Edge]: ...


class GraphStore(Protocol):
    """One tenant's graph."""

    @property
    def tenant(self) -> int: ...

    def apply(self, operations: Iterable[Operation]) -> Applied:
        """All operations in order in one transaction; an invalid value anywhere refuses all before the first write."""

    def update(self, work: Callable[[GraphTransaction], T]) -> T:
        """Runs work in one transaction that no other update of this tenant overlaps; repeated as a whole on deadlock.

        The Tenant node is what it locks, so it is there afterwards.
        """

    def upsert_nodes(self, nodes: Sequence[Node]) -> Applied: ...

    def set_properties(self, patches: Sequence[Patch]) -> Applied:
        """Changes existing nodes only; None removes a property."""

    def upsert_edges(self, edges: Sequence[Edge]) -> Applied: ...

    def delete_nodes(self, ids: Sequence[str], *, with_subtree: bool = False) -> Applied: ...

    def delete_edges(self, keys: Sequence[EdgeKey]) -> Applied: ...

    def clear(self) -> None:
        """Deletes the tenant's whole graph, in bounded transactions."""

    def nodes(self, ids: Sequence[str]) -> Mapping[str, Node]:
        """Those that exist, by id."""

    def edges(self, ids: Sequence[str], *, types: Sequence[str] | None = None) -> list[Edge]:
        """Edges that begin or end at one of these nodes, each once, sorted by (from, type, to)."""

    def links(self, keys: Sequence[EdgeKey]) -> Mapping[EdgeKey, Edge]:
        """Those of these edges that exist, by key."""

    def stream(self) -> Iterator[Node | Edge]:
        """The whole graph page by page: nodes sorted by id, then edges sorted by (from, type, to), by code points."""


class Graph(Protocol):
    """An open connection to a graph store."""

    def for_tenant(self, tenant: int) -> GraphStore: ...

    def ping(self) -> None:
        """Raises GraphUnavailable unless the store answers."""

    def ensure_schema(self) -> None:
        """Constraints and indexes; idempotent, also from two processes at once."""

    def ensure_vector_index(self, dimension: int, similarity: str) -> str:
        """The index over nodes that carry the returned vector label; idempotent."""

    def close(self) -> None: ...
