"""How the lane of wide events gives way: while others wait, it rests between two steps of a write.

All threads of a process take turns, so a merge that works without a pause would double the time that everybody else
needs. Steps that each take some milliseconds, with a rest in between, are hardly noticed.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from platform_defs.graph.model import BatchResult, Edge, EdgeKey, Node, Operation
from platform_defs.graph.port import GraphTransaction

T = TypeVar("T")

# A rest is REST_SHARE times as long as the step before it, but at most MAX_REST_S: requests have a deadline.
REST_SHARE = 2.0
MAX_REST_S = 0.05


class Updatable(Protocol):
    """The part of a tenant's graph that events are applied to."""

    def update(self, work: Callable[[GraphTransaction], T]) -> T: ...


class Pace:
    """Belongs to one thread at a time. others_wait: asked before each rest."""

    def __init__(
        self, sleep: Callable[[float], None] = time.sleep, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.others_wait: Callable[[], bool] = lambda: False
        self._sleep = sleep
        self._clock = clock
        self._began = clock()

    def begin(self) -> None:
        """A step begins."""
        self._began = self._clock()

    def rest(self) -> None:
        """A step has ended and the next one begins."""
        if self.others_wait():
            self._sleep(min(MAX_REST_S, REST_SHARE * (self._clock() - self._began)))
        self.begin()


@dataclass(frozen=True, slots=True)
class PacedStore:
    """A tenant's graph, whose updates rest after each read, and before they write."""

    store: Updatable
    pace: Pace

    def update(self, work: Callable[[GraphTransaction], T]) -> T:
        self.pace.begin()
        return self.store.update(lambda transaction: work(_PacedTransaction(transaction, self.pace)))


@dataclass(frozen=True, slots=True)
class _PacedTransaction:
    transaction: GraphTransaction
    pace: Pace

    @property
    def tenant(self) -> int:
        return self.transaction.tenant

    def apply(self, operations: Iterable[Operation]) -> BatchResult:
        self.pace.rest()
        return self.transaction.apply(operations)

    def nodes(self, ids: Sequence[str]) -> Mapping[str, Node]:
        self.pace.rest()
        return self.transaction.nodes(ids)

    def edges(self, ids: Sequence[str], *, types: Sequence[str] | None = None) -> list[Edge]:
        self.pace.rest()
        return self.transaction.edges(ids, types=types)

    def edges_by_key(self, keys: Sequence[EdgeKey]) -> Mapping[EdgeKey, Edge]:
        self.pace.rest()
        return self.transaction.edges_by_key(keys)
