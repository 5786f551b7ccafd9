"""Metrics that come from the database, when it takes its time."""

import threading
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from platform_defs.api.observe.bounded_metrics import BoundedCollector
from tests.waiting import until


class Asked(Collector):
    """Counts how often it was asked, and answers when it may."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.times = 0
        self.may = threading.Event()
        self.may.set()

    def collect(self) -> Iterator[Metric]:
        self.times += 1
        times = self.times
        self.may.wait(20)
        yield GaugeMetricFamily(self.name, "How often", value=times)


def test_a_database_that_hangs_is_asked_once_and_scrapes_show_what_was_found_last() -> None:
    fast, slow = Asked("fast"), Asked("slow")
    registry = CollectorRegistry()
    registry.register(BoundedCollector(fast, slow, seconds=0.2))

    def scrape() -> list[str]:
        return [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]

    def shows(collector: Asked) -> bool:
        lines = scrape()
        return f"{collector.name} {collector.times}.0" in lines

    until("it to answer", lambda: shows(slow))
    before = slow.times
    slow.may.clear()
    for _ in range(3):
        lines = scrape()
        assert f"slow {before}.0" in lines
    assert slow.times == before + 1
    assert f"fast {fast.times}.0" in lines
    slow.may.set()
    until("it to answer again", lambda: shows(slow))


def test_a_collector_that_never_answered_shows_nothing() -> None:
    slow = Asked("slow")
    slow.may.clear()
    registry = CollectorRegistry()
    registry.register(BoundedCollector(Asked("fast"), slow, seconds=0.2))
    assert "slow" not in generate_latest(registry).decode()
    slow.may.set()
