"""Whoever watches a graph says that it was gone, but not because of one ping that came to nothing."""

from collections.abc import Callable
from typing import Any

import pytest

from platform_defs.graph.errors import GraphLost, GraphUnavailable
from platform_defs.lineage.sink import graph_watch
from platform_defs.lineage.sink.graph_watch import GraphWatch
from tests.waiting import until


class Pinged:
    """A graph whose pings end as `outcomes` says, and then for ever as the last of them."""

    def __init__(self, *outcomes: Exception | None) -> None:
        self._outcomes = outcomes
        self.pings = 0

    def ping(self) -> None:
        outcome = self._outcomes[min(self.pings, len(self._outcomes) - 1)]
        self.pings += 1
        if outcome is not None:
            raise outcome


def watch(graph: Any, is_enough: Callable[[], bool], losses: list[int]) -> None:
    watching = GraphWatch(graph, lambda: losses.append(graph.pings))
    try:
        until("enough pings", is_enough)
    finally:
        watching.close()


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_watch, "PING_EVERY_S", 0.001)
    monkeypatch.setattr(graph_watch, "PING_AGAIN_S", 0.001)


LOST = GraphLost("no connection")


def test_a_graph_that_answers_no_second_ping_either_is_lost() -> None:
    losses: list[int] = []
    watch(Pinged(None, LOST), lambda: bool(losses), losses)
    assert losses[0] == 3


@pytest.mark.parametrize(
    "outcomes", [(None,), (LOST, None, LOST, None), (GraphUnavailable("busy"),), (RuntimeError("a defect"),)]
)
def test_a_graph_that_is_there_is_not(outcomes: tuple[Exception | None, ...]) -> None:
    losses: list[int] = []
    graph = Pinged(*outcomes)
    watch(graph, lambda: graph.pings > 10, losses)
    assert losses == []
