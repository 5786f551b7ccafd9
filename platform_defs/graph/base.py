"""What the two stores share: the single methods of the port as batches of one operation."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from platform_defs.graph.batch import Step, plan
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
from platform_defs.graph.values import check_tenant

T = TypeVar("T")


def chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (items[start : start + size] for start in range(0, len(items), size))


class BatchStore(ABC):
    """A tenant's store that runs checked steps in one transaction."""

    def __init__(self, tenant: int) -> None:
        self._tenant = check_tenant(tenant)

    @property
    def tenant(self) -> int:
        return self._tenant

    @abstractmethod
    def _run(self, steps: Sequence[Step]) -> Applied: ...

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
