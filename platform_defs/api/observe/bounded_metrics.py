"""Metrics that the database has to be asked for, in bounded time: a scrape must not hang because the database does."""

import logging
import threading
import time
from collections.abc import Iterator, Sequence

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

log = logging.getLogger(__name__)

LOOK_S = 1.0
# what was found longer ago says nothing any more; Prometheus forgets after the same time
STALE_S = 300.0


class _Look:
    """One collector: asked in a thread, by one at a time, whoever waits for it."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self._lock = threading.Lock()
        self._ended: threading.Event | None = None
        self._found: Sequence[Metric] = ()
        self._found_at = 0.0

    def begin(self) -> threading.Event:
        """Set when the look that is under way has ended."""
        with self._lock:
            if self._ended is None:
                self._ended = threading.Event()
                threading.Thread(target=self._run, args=[self._ended], name="metrics", daemon=True).start()
            return self._ended

    def found(self) -> Sequence[Metric]:
        return self._found if time.monotonic() < self._found_at + STALE_S else ()

    def _run(self, ended: threading.Event) -> None:
        try:
            self._found = list(self._collector.collect())
            self._found_at = time.monotonic()
        except Exception:
            log.warning("metrics could not be collected", exc_info=True)
        with self._lock:
            self._ended = None
        ended.set()


class BoundedCollector(Collector):
    """All of these at the same time; what has not answered after `seconds` shows what it found last."""

    def __init__(self, *collectors: Collector, seconds: float = LOOK_S) -> None:
        self._looks = [_Look(collector) for collector in collectors]
        self._seconds = seconds

    def describe(self) -> list[Metric]:
        return []  # asked at registration, when the database may not answer yet

    def collect(self) -> Iterator[Metric]:
        until = time.monotonic() + self._seconds
        for ended in [look.begin() for look in self._looks]:
            ended.wait(max(0.0, until - time.monotonic()))
        for look in self._looks:
            yield from look.found()
