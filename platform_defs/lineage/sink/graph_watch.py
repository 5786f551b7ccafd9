"""Finds out that the graph was gone, also while nobody writes to it."""

import threading
from collections.abc import Callable

from platform_defs.graph.errors import GraphLost
from platform_defs.graph.port import Graph

# No server restarts within less, and a ping is one round trip.
PING_EVERY_S = 1.0
# A server that is only busy may miss the time for one new connection: then a ping after this pause decides.
PING_AGAIN_S = 0.2


class GraphWatch:
    """Pings the graph all the time, in a thread of its own, and says when there is no connection to it.

    A write cannot tell: the driver connects again without a word, and tries a while. So whoever writes first after a
    restart that nobody noticed would meet a server that is cold.
    """

    def __init__(self, graph: Graph, on_lost: Callable[[], None]) -> None:
        self._graph = graph
        self._on_lost = on_lost
        self._closing = threading.Event()
        # a ping may hang for as long as the network does, and the process must be able to end meanwhile
        threading.Thread(target=self._work, name="lineage-graph-watch", daemon=True).start()

    def close(self) -> None:
        self._closing.set()

    def _work(self) -> None:
        while not self._closing.wait(PING_EVERY_S):
            if self._is_gone() and not self._closing.wait(PING_AGAIN_S) and self._is_gone():
                self._on_lost()

    def _is_gone(self) -> bool:
        try:
            self._graph.ping()
        except GraphLost:
            return True
        except Exception:
            # Other errors are those of a server that is there. Whoever writes meets them too, and says so.
            return False
        return False
