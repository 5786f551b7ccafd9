"""Warms the graph up before the process is ready, and again whenever the graph has been gone.

A server that has just started would need longer for its first group of events than the group may take. While a graph
that was lost is not warm again, events are refused at once: the sender's retry then meets a server that is fast.
"""

import logging
import threading
import time

from platform_defs.errors import GraphError, one_line
from platform_defs.graph.port import Graph
from platform_defs.lineage.sink.warm_up import warm_up

log = logging.getLogger(__name__)

# seconds between two attempts to warm up a graph that does not answer, and between two lines of the log that say so
AGAIN_S = 1.0
LOGGED_EVERY_S = 30.0
# graphs that this process has warmed up before
_WARM: set[str] = set()


class Warmth:
    """is_warm: the process may get requests. is_lost: the graph was gone and is not warm again."""

    def __init__(self, graph: Graph, url: str, *, needed: bool) -> None:
        self._graph = graph
        self._url = url
        self._closing = threading.Event()
        self._wanted = threading.Event()
        self.is_warm = not needed or url in _WARM
        self.is_lost = False
        self._thread = threading.Thread(target=self._work, name="lineage-warm-up", daemon=True)
        if not self.is_warm:
            self._wanted.set()
        if needed:
            self._thread.start()

    def lose(self) -> None:
        """The graph is gone: its server may come back cold."""
        if not self.is_lost:
            self.is_lost, self.is_warm = True, False
            _WARM.discard(self._url)
            self._wanted.set()

    def close(self) -> None:
        self._closing.set()
        self._wanted.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _work(self) -> None:
        while not self._closing.is_set():
            self._wanted.wait()
            self._wanted.clear()
            began, logged_at = time.monotonic(), -LOGGED_EVERY_S
            while not self._closing.is_set():
                try:
                    warm = warm_up(self._graph, stop=self._closing.is_set)
                except Exception as error:
                    # not every time: an outage of an hour would fill the log with the same line
                    if time.monotonic() - logged_at >= LOGGED_EVERY_S:
                        logged_at = time.monotonic()
                        unforeseen = not isinstance(error, GraphError)
                        log.warning("the graph could not be warmed up yet: %s", one_line(error), exc_info=unforeseen)
                    self._closing.wait(AGAIN_S)
                    continue
                if warm:
                    _WARM.add(self._url)
                    self.is_warm, self.is_lost = True, False
                    log.info("the graph is warm after %.0f s: events are taken", time.monotonic() - began)
                break
