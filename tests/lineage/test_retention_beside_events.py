"""Retention runs beside the sink: what a job says while it looks around is not forgotten."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, cast

from platform_defs.graph.model import Edge, Node
from platform_defs.graph.port import GraphStore
from platform_defs.lineage.sink.apply import prune_graph
from tests.lineage.deliveries import Arrival, Deliveries
from tests.lineage.test_merge_stores import open_graphs
from tests.lineage.test_symlinks import HIVE, START, deliveries, expected, opened, place, ran
from tests.lineage.wire import dataset, schema

__all__ = ["deliveries", "open_graphs", "opened", "place"]


class Beside:
    """A graph to which an event is delivered when it has been looked through."""

    def __init__(self, deliveries: Deliveries, arrival: Arrival) -> None:
        self._deliveries = deliveries
        self._arrival = arrival
        self._store = deliveries.graph.for_tenant(deliveries.tenant.id)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def stream(self) -> Iterator[Node | Edge]:
        yield from self._store.stream()
        self._deliveries.deliver([self._arrival])


def test_a_job_that_runs_again_after_months_while_retention_runs_is_remembered(deliveries: Deliveries) -> None:
    """If its memory were deleted, its next run could not take back the column that it does not write any more."""
    wide, narrow = dataset(HIVE, "s.t", schema=schema("x", "y")), dataset(HIVE, "s.t", schema=schema("x"))
    runs = [ran(1, [], [wide]), ran(60, [], [wide]), ran(61, [], [narrow])]
    deliveries.deliver(runs[:1])
    months_later = START + timedelta(minutes=30)
    prune_graph(cast(GraphStore, Beside(deliveries, runs[1])), months_later, speakers_before=months_later)
    deliveries.deliver(runs[2:])
    assert deliveries.lines() == expected(deliveries, runs)
