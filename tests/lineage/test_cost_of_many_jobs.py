"""What an event costs does not grow with the number of jobs and runs that have named the same tables before it."""

from collections.abc import Iterable, Mapping, Sequence

import pytest

from platform_defs.access.tenants import DEMO_TENANT
from platform_defs.graph.model import BatchResult, Edge, EdgeKey, Node, Operation
from platform_defs.lineage.facts import SPEAKER, Ref
from platform_defs.lineage.sink.apply import EventFacts, apply_events
from platform_defs.lineage.version import Version
from tests.lineage.merging import TABLES, PlainStore, stated

EARLY, LATE = 100, 300


class CountingStore(PlainStore):
    """Adds up the length of what is read and written, hidden properties included, and counts what is read."""

    def __init__(self, tenant: int) -> None:
        super().__init__(tenant)
        self.items = self.size = 0

    def _count(self, items: Iterable[object]) -> None:
        for item in items:
            self.items += 1
            self.size += len(str(item))

    def nodes(self, ids: Sequence[str]) -> Mapping[str, Node]:
        found = super().nodes(ids)
        self._count(found.values())
        return found

    def edges(self, ids: Sequence[str], *, types: Sequence[str] | None = None) -> list[Edge]:
        found = super().edges(ids, types=types)
        self._count(found)
        return found

    def edges_by_key(self, keys: Sequence[EdgeKey]) -> Mapping[EdgeKey, Edge]:
        found = super().edges_by_key(keys)
        self._count(found.values())
        return found

    def apply(self, operations: Iterable[Operation]) -> BatchResult:
        steps = list(operations)
        self._count(steps)
        return super().apply(steps)


def event(at: int, job: str, run: str, kind: str = "COMPLETE") -> EventFacts:
    """Each job has its SQL; all of them write the same columns of one table from those of another."""
    columns, pairs = {"x": {"dataType": "int"}, "y": {}}, [("x", "x"), ("y", "y")]
    facts = stated(
        Ref(SPEAKER, ("job", "n", job)), run, kind, Ref("sql", (job,)), *TABLES[:2], columns, pairs, ["whole"]
    )
    return EventFacts(Version(f"{at:032x}"), tuple(facts))


@pytest.mark.parametrize(
    ("job", "run", "kind"),
    [("job{}", "run", "COMPLETE"), ("job{}", "run", "START"), ("job", "run{}", "COMPLETE"), ("job", "run{}", "START")],
)
def test_what_the_last_event_reads_and_writes_is_what_the_hundredth_did(job: str, run: str, kind: str) -> None:
    store = CountingStore(DEMO_TENANT.id)
    costs: list[tuple[int, int]] = []
    for at in range(1, LATE + 1):
        store.items = store.size = 0
        result = apply_events(store, DEMO_TENANT, [event(at, job.format(at), run.format(at), kind)])
        assert not result.needs_rebuild
        costs.append((store.items + result.writes, store.size))
    (items, size), (late_items, late_size) = costs[EARLY], costs[-1]
    assert late_items == items
    assert late_size < 2 * size
