"""The lane of wide events rests between the steps of a write while others wait."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from platform_defs.graph.model import BatchResult, Edge, EdgeKey, Node, Operation
from platform_defs.graph.port import GraphTransaction
from platform_defs.lineage.sink.pace import MAX_REST_S, REST_SHARE, Pace, PacedStore

T = TypeVar("T")


class Clock:
    """Shows the seconds that steps have worked and rests have lasted."""

    def __init__(self) -> None:
        self.now = 100.0
        self.rests: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.rests.append(round(seconds, 6))
        self.now += seconds


class Steps:
    """A tenant's graph in which each read takes some seconds; it notes what was asked."""

    tenant = 7

    def __init__(self, clock: Clock, step_s: float) -> None:
        self._clock, self._step_s = clock, step_s
        self.asked: list[str] = []

    def update(self, work: Callable[[GraphTransaction], T]) -> T:
        return work(self)

    def apply(self, operations: Iterable[Operation]) -> BatchResult:
        self._note("apply")
        return BatchResult()

    def nodes(self, ids: Sequence[str]) -> Mapping[str, Node]:
        self._note("nodes")
        return {}

    def edges(self, ids: Sequence[str], *, types: Sequence[str] | None = None) -> list[Edge]:
        self._note("edges")
        return []

    def edges_by_key(self, keys: Sequence[EdgeKey]) -> Mapping[EdgeKey, Edge]:
        self._note("edges_by_key")
        return {}

    def _note(self, what: str) -> None:
        self.asked.append(what)
        self._clock.now += self._step_s


def write(transaction: GraphTransaction) -> int:
    transaction.nodes(["a"])
    transaction.edges(["a"], types=["HAS_TABLE"])
    transaction.edges_by_key([])
    transaction.apply([])
    return transaction.tenant


def rests_of(step_s: float, *, others_wait: bool) -> list[float]:
    clock = Clock()
    pace = Pace(clock.sleep, clock)
    pace.others_wait = lambda: others_wait
    steps = Steps(clock, step_s)
    assert PacedStore(steps, pace).update(write) == 7
    assert steps.asked == ["nodes", "edges", "edges_by_key", "apply"]
    return clock.rests


def test_nothing_rests_while_nobody_else_waits() -> None:
    assert rests_of(0.01, others_wait=False) == []


def test_each_step_is_followed_by_a_rest_in_proportion() -> None:
    rest = REST_SHARE * 0.01
    assert rests_of(0.01, others_wait=True) == [0.0, rest, rest, rest]


def test_a_rest_is_bounded_because_requests_have_a_deadline() -> None:
    assert rests_of(10.0, others_wait=True) == [0.0, MAX_REST_S, MAX_REST_S, MAX_REST_S]
