"""The graph port: the methods that the platform calls on a graph, whichever store answers.

`Graph` is a connection to a store; `Graph.for_tenant` gives a `GraphStore`, which is bound to that tenant: none of its
methods takes a tenant, so none can forget or confuse it.

Writes merge. Given properties overwrite, None removes a property, others stay. The kind label of an upsert replaces
the stored kind (a metric may turn from atomic to derived). A vector label replaces the stored vector label; a node that
is upserted without a vector label keeps the one it has. An edge to an absent node is not created but reported. A node's
id is unique within its tenant over all kinds; the Tenant node's id is the tenant's number, and no other node has it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

from platform_defs.graph.model import BatchResult, Edge, EdgeKey, Node, Operation

T = TypeVar("T")


class GraphTransaction(Protocol):
    """The methods that work inside `GraphStore.update` may call: its reads see its own earlier writes."""

    @property
    def tenant(self) -> int: ...

    def apply(self, operations: Iterable[Operation]) -> BatchResult: ...

    def nodes(self, ids: Sequence[str]) -> Mapping[str, Node]: ...

    def edges(self, ids: Sequence[str], *, types: Sequence[str] | None = None) -> list[Edge]: ...

    def edges_by_key(self, keys: Sequence[EdgeKey]) -> Mapping[EdgeKey, Edge]: ...


class GraphStore(Protocol):
    """One tenant's graph."""

    @property
    def tenant(self) -> int: ...

    def apply(self, operations: Iterable[Operation]) -> BatchResult:
        """Carries out all operations in order, in one transaction; one invalid value refuses the whole batch."""

    def update(self, work: Callable[[GraphTransaction], T]) -> T:
        """Runs work in one transaction that no other update of this tenant overlaps; repeated as a whole on deadlock.

        The lock is held on the Tenant node, which is created if it does not exist.
        """

    def clear(self) -> None:
        """Deletes the tenant's whole graph, in bounded transactions."""

    def nodes(self, ids: Sequence[str]) -> Mapping[str, Node]:
        """The nodes among these that exist, by id."""

    def upstream_tables(self, ids: Sequence[str], *, limit: int) -> list[tuple[str, str]]:
        """Pairs (table, table that its rows come from) for these tables, sorted, at most `limit` of them.

        A table comes from what the jobs that write it read, and from the tables of the columns that it derives from.
        """

    def edges(self, ids: Sequence[str], *, types: Sequence[str] | None = None) -> list[Edge]:
        """Edges that begin or end at one of these nodes, each once, sorted by (from, type, to)."""

    def edges_by_key(self, keys: Sequence[EdgeKey]) -> Mapping[EdgeKey, Edge]:
        """The edges among these that exist, by key."""

    def follow(self, ids: Sequence[str], types: Sequence[str], *, forward: bool, limit: int) -> list[Edge]:
        """Edges of these types that begin at one of these nodes (not `forward`: that end there), sorted as `edges`.

        At most `limit` of them, so that a node with a million edges cannot fill the memory of the caller.
        """

    def find_by_ending(self, kind: str, endings: Sequence[str], *, limit: int) -> list[Node]:
        """Nodes of a kind whose `qualifiedName` is one of these endings, or ends with one after a dot or a slash.

        Upper and lower case are the same. Sorted by qualified name, namespace and id.
        """

    def find_by_text(self, kind: str, text: str, *, own: str = "", limit: int) -> list[Node]:
        """Nodes of a kind whose `qualifiedName` contains `text` and whose `name` contains `own`, sorted as above."""

    def stream(self) -> Iterator[Node | Edge]:
        """The whole graph page by page: nodes sorted by id, then edges sorted by (from, type, to), by code points."""


class Graph(Protocol):
    """An open connection to a graph store."""

    def for_tenant(self, tenant: int) -> GraphStore: ...

    def ping(self) -> None:
        """Raises GraphUnavailable unless the store answers."""

    def ensure_schema(self) -> None:
        """Creates constraints and indexes that are missing; two processes may call it at once."""

    def ensure_vector_index(self, dimension: int, similarity: str) -> str:
        """Creates the vector index for this dimension and similarity if it is missing.

        Returns the vector label that a node must carry to be found by it.
        """

    def rehearse(self, tenant: int, work: Callable[[GraphStore], None]) -> None:
        """Runs work on a tenant's graph in a transaction that is rolled back, so that the store is warm afterwards."""

    def close(self) -> None: ...
