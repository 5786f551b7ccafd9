"""Base of both stores of a tenant's graph: checks a batch, then carries out its steps in one transaction."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from platform_defs.graph.checks import Value, check_tenant
from platform_defs.graph.model import BatchResult, EdgeKey, Operation
from platform_defs.graph.steps import (
    DeleteEdgesStep,
    DeleteNodesStep,
    NodeChange,
    PatchNodesStep,
    Step,
    UpsertEdgesStep,
    UpsertNodesStep,
    plan_steps,
)

T = TypeVar("T")
# what a store's driver calls an open transaction: a Connection of SQLAlchemy, a ManagedTransaction of Neo4j
Handle = TypeVar("Handle")
Handle_co = TypeVar("Handle_co", covariant=True)


class Transactions(Protocol[Handle_co]):
    """Runs work in a transaction; who commits and repeats it is up to the implementation."""

    def write(self, work: Callable[[Handle_co], T]) -> T: ...

    def read(self, work: Callable[[Handle_co], T]) -> T: ...


class OpenTransaction(Generic[Handle]):
    """All work in a transaction that somebody else has opened, and commits, rolls back and repeats."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    def write(self, work: Callable[[Handle], T]) -> T:
        return work(self._handle)

    def read(self, work: Callable[[Handle], T]) -> T:
        return work(self._handle)


class BatchStore(ABC, Generic[Handle]):
    """One tenant's graph. A subclass knows how each kind of step is written, in a transaction that it is given."""

    def __init__(self, tenant: int, transactions: Transactions[Handle]) -> None:
        self._tenant = check_tenant(tenant)
        self._transactions = transactions

    @property
    def tenant(self) -> int:
        return self._tenant

    def apply(self, operations: Iterable[Operation]) -> BatchResult:
        steps = plan_steps(self._tenant, operations)
        if not steps:
            return BatchResult()
        return self._transactions.write(lambda handle: self._carry_out(handle, steps))

    @abstractmethod
    def _upsert_nodes(self, handle: Handle, changes: Mapping[str, NodeChange], /) -> None: ...

    @abstractmethod
    def _patch_nodes(self, handle: Handle, changes: Mapping[str, NodeChange], /) -> list[str]:
        """Returns the ids of nodes that do not exist."""

    @abstractmethod
    def _upsert_edges(self, handle: Handle, changes: Mapping[EdgeKey, Mapping[str, Value | None]], /) -> list[EdgeKey]:
        """Returns the edges that were not written because a node at one end does not exist."""

    @abstractmethod
    def _delete_nodes(self, handle: Handle, ids: Sequence[str], /) -> None: ...

    @abstractmethod
    def _delete_edges(self, handle: Handle, keys: Sequence[EdgeKey], /) -> None: ...

    def _carry_out(self, handle: Handle, steps: Sequence[Step]) -> BatchResult:
        absent: list[str] = []
        dangling: list[EdgeKey] = []
        for step in steps:
            match step:
                case UpsertNodesStep(changes):
                    self._upsert_nodes(handle, changes)
                case PatchNodesStep(changes):
                    absent += self._patch_nodes(handle, changes)
                case UpsertEdgesStep(edge_changes):
                    dangling += self._upsert_edges(handle, edge_changes)
                case DeleteNodesStep(ids):
                    self._delete_nodes(handle, sorted(ids))
                case DeleteEdgesStep(keys):
                    self._delete_edges(handle, sorted(keys))
        return BatchResult(tuple(absent), tuple(dangling))
