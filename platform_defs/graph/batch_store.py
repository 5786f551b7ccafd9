"""What the two stores share: the single methods of the port as batches of one operation, and the order of steps."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Generic, TypeVar

from platform_defs.graph.checks import Value, check_tenant
from platform_defs.graph.model import (
    Applied,
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
from platform_defs.graph.steps import (
    DeleteEdgesStep,
    DeleteNodesStep,
    NodeChange,
    PatchNodesStep,
    Step,
    UpsertEdgesStep,
    UpsertNodesStep,
    plan,
)

T = TypeVar("T")
C = TypeVar("C")


class BatchStore(ABC, Generic[C]):
    """A tenant's store that runs checked steps in one transaction, whose handle is a C."""

    def __init__(self, tenant: int) -> None:
        self._tenant = check_tenant(tenant)

    @property
    def tenant(self) -> int:
        return self._tenant

    @abstractmethod
    def _run(self, steps: Sequence[Step]) -> Applied: ...

    @abstractmethod
    def _upsert_nodes(self, within: C, changes: Mapping[str, NodeChange], /) -> None: ...

    @abstractmethod
    def _patch_nodes(self, within: C, changes: Mapping[str, NodeChange], /) -> list[str]:
        """Returns the nodes that are not there."""

    @abstractmethod
    def _upsert_edges(self, within: C, changes: Mapping[EdgeKey, Mapping[str, Value | None]], /) -> list[EdgeKey]:
        """Returns the edges that miss an end."""

    @abstractmethod
    def _delete_nodes(self, within: C, ids: Sequence[str], with_subtree: bool, /) -> None: ...

    @abstractmethod
    def _delete_edges(self, within: C, keys: Sequence[EdgeKey], /) -> None: ...

    def _carry_out(self, within: C, steps: Sequence[Step]) -> Applied:
        absent: list[str] = []
        dangling: list[EdgeKey] = []
        for step in steps:
            match step:
                case UpsertNodesStep(changes):
                    self._upsert_nodes(within, changes)
                case PatchNodesStep(changes):
                    absent += self._patch_nodes(within, changes)
                case UpsertEdgesStep(edge_changes):
                    dangling += self._upsert_edges(within, edge_changes)
                case DeleteNodesStep(with_subtree, ids):
                    self._delete_nodes(within, sorted(ids), with_subtree)
                case DeleteEdgesStep(keys):
                    self._delete_edges(within, sorted(keys))
        return Applied(tuple(absent), tuple(dangling))

    def apply(self, operations: Iterable[Operation]) -> Applied:
        steps = plan(self._tenant, operations)
        return self._run(steps) if steps else Applied()

    def upsert_nodes(self, nodes: Sequence[Node]) -> Applied:
        return self.apply([UpsertNodes(nodes)])

    def set_properties(self, patches: Sequence[Patch]) -> Applied:
        return self.apply([PatchNodes(patches)])

    def upsert_edges(self, edges: Sequence[Edge]) -> Applied:
        return self.apply([UpsertEdges(edges)])

    def delete_nodes(self, ids: Sequence[str], *, with_subtree: bool = False) -> Applied:
        return self.apply([DeleteNodes(ids, with_subtree)])

    def delete_edges(self, keys: Sequence[EdgeKey]) -> Applied:
        return self.apply([DeleteEdges(keys)])
