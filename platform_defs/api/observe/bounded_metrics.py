"""Metrics read from the database: a scrape never waits long for it, and outages show the last values with their age."""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

log = logging.getLogger(__name__)

SCRAPE_WAIT_S = 1.0
# Older values would mislead more than a gap does. Prometheus, too, drops a series after five minutes without samples.
KEEP_VALUES_S = 300.0
# A collector whose query takes a minute must query again before its values disappear.
LONGEST_REST_S = KEEP_VALUES_S / 2

Clock = Callable[[], float]


@dataclass(frozen=True)
class NamedCollector:
    """A collector that asks the database and raises when the database fails; `name` labels the age of its values.

    After a query that took t seconds the next one starts at the earliest `rest` times t seconds later. A scrape in
    between shows the values of the last query.
    """

    name: str
    collector: Collector
    rest: float = 0.0


@dataclass(frozen=True)
class _Reading:
    """The metrics that a collector returned, and when it did."""

    metrics: Sequence[Metric]
    at: float


class _RememberingCollector:
    """Queries one collector in a thread, never twice at a time, and remembers the last successful reading."""

    def __init__(self, named: NamedCollector, clock: Clock) -> None:
        self.name = named.name
        self._collector = named.collector
        self._rest = named.rest
        self._clock = clock
        self._lock = threading.Lock()
        self._finished: threading.Event | None = None
        # Before the first success the age counts from the start, so that an alert on the age also covers that time.
        self._reading = _Reading((), clock())
        self._query_again_at = self._reading.at
        self._failing = False

    def start_query(self) -> threading.Event:
        """Starts a query unless one is under way or the collector rests. The event is set once none is under way."""
        with self._lock:
            if self._finished is None:
                finished = threading.Event()
                if self._clock() < self._query_again_at:
                    finished.set()
                    return finished
                self._finished = finished
                threading.Thread(target=self._query, args=[finished], name="metrics", daemon=True).start()
            return self._finished

    def age_s(self) -> float:
        return self._clock() - self._reading.at

    def metrics(self) -> Sequence[Metric]:
        return self._reading.metrics if self.age_s() < KEEP_VALUES_S else ()

    def _query(self, finished: threading.Event) -> None:
        started = self._clock()
        try:
            metrics = list(self._collector.collect())
            ended = self._clock()
            self._reading = _Reading(metrics, ended)
            self._query_again_at = ended + min(LONGEST_REST_S, self._rest * (ended - started))
            self._failing = False
        except Exception:
            # Only the first failure in a row is logged: the age on /metrics tells how long the outage lasts.
            if not self._failing:
                log.warning("the metrics of %s cannot be read; showing the last ones", self.name, exc_info=True)
            self._failing = True
        with self._lock:
            self._finished = None
        finished.set()


class BoundedCollector(Collector):
    """Queries all collectors at the same time and waits at most `seconds` for them.

    A collector that is slow or fails is represented by its last values, for up to five minutes. The age of each
    collector's values is a gauge of its own, which stays when the values have disappeared.
    """

    def __init__(
        self, *collectors: NamedCollector, seconds: float = SCRAPE_WAIT_S, clock: Clock = time.monotonic
    ) -> None:
        self._collectors = [_RememberingCollector(named, clock) for named in collectors]
        self._seconds = seconds

    def collect(self) -> Iterator[Metric]:
        deadline = time.monotonic() + self._seconds
        for finished in [collector.start_query() for collector in self._collectors]:
            finished.wait(max(0.0, deadline - time.monotonic()))
        ages = GaugeMetricFamily(
            "platform_metrics_age_seconds",
            "Seconds since the database last answered a collector, or since the start if it never did",
            labels=["collector"],
        )
        for collector in self._collectors:
            ages.add_metric([collector.name], collector.age_s())
            yield from collector.metrics()
        yield ages
