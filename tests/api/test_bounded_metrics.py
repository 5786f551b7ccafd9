"""Metrics that come from the database, when it is slow and when it fails."""

import threading
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from sqlalchemy import text
from sqlalchemy.engine import URL

from platform_defs.api.observe.bounded_metrics import KEEP_VALUES_S, BoundedCollector, NamedCollector
from platform_defs.store import migrate
from platform_defs.store.engine import open_engine
from platform_defs.store.errors import StoreUnavailable
from tests.api.serving import serve_api
from tests.waiting import PATIENCE_S, until


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
        self.may.wait(PATIENCE_S)
        yield GaugeMetricFamily(self.name, "How often", value=times)


def test_a_database_that_hangs_is_asked_once_and_scrapes_show_what_was_found_last() -> None:
    fast, slow = Asked("fast"), Asked("slow")
    registry = CollectorRegistry()
    registry.register(BoundedCollector(NamedCollector("one", fast), NamedCollector("two", slow), seconds=0.2))

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
    until("it to be asked", lambda: slow.times == before + 1)
    until("the fast one, beside it", lambda: shows(fast))
    assert slow.times == before + 1
    slow.may.set()
    until("it to answer again", lambda: shows(slow))


def test_a_collector_that_never_answered_shows_nothing() -> None:
    slow = Asked("slow")
    slow.may.clear()
    registry = CollectorRegistry()
    named = NamedCollector("one", Asked("fast")), NamedCollector("two", slow)
    registry.register(BoundedCollector(*named, seconds=0.2))
    assert "slow" not in generate_latest(registry).decode()
    slow.may.set()


class Clock:
    """A clock that stands still until the test moves it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Failing(Collector):
    """Answers with the number of the query, unless the database fails; each query takes a while on the clock."""

    def __init__(self, clock: Clock, *, takes: float = 0.0) -> None:
        self.fails = False
        self.queries = 0
        self._clock = clock
        self._takes = takes

    def collect(self) -> Iterator[Metric]:
        self.queries += 1
        self._clock.now += self._takes
        if self.fails:
            raise StoreUnavailable("the database does not answer")
        yield GaugeMetricFamily("value", "Number of the query", value=self.queries)


class Scraped:
    """One collector behind the bounded one, on a clock of the test."""

    def __init__(self, *, takes: float = 0.0, rest: float = 0.0) -> None:
        self.clock = Clock()
        self.collector = Failing(self.clock, takes=takes)
        self._registry = CollectorRegistry()
        named = NamedCollector("runner", self.collector, rest)
        self._registry.register(BoundedCollector(named, seconds=20, clock=self.clock))

    def scrape(self) -> tuple[float | None, float]:
        """The value, if there is one, and its age."""
        families = list(text_string_to_metric_families(generate_latest(self._registry).decode()))
        samples = {sample.name: sample for family in families for sample in family.samples}
        assert samples["platform_metrics_age_seconds"].labels == {"collector": "runner"}
        value = samples["value"].value if "value" in samples else None
        return value, samples["platform_metrics_age_seconds"].value


def test_while_the_database_fails_the_last_values_stay_for_five_minutes_and_their_age_for_ever() -> None:
    scraped = Scraped()
    assert scraped.scrape() == (1.0, 0.0)
    scraped.collector.fails = True
    assert scraped.scrape() == (1.0, 0.0)
    scraped.clock.now += KEEP_VALUES_S - 1
    assert scraped.scrape() == (1.0, 299.0)
    scraped.clock.now += 1
    assert scraped.scrape() == (None, 300.0)
    scraped.clock.now += 3600
    assert scraped.scrape() == (None, 3900.0)
    scraped.collector.fails = False
    assert scraped.scrape() == (6.0, 0.0)


def test_a_database_that_fails_from_the_start_has_an_age_that_an_alert_can_see() -> None:
    scraped = Scraped()
    scraped.collector.fails = True
    scraped.clock.now += 60
    assert scraped.scrape() == (None, 60.0)


def test_a_costly_query_rests_and_the_age_says_how_old_its_values_are() -> None:
    scraped = Scraped(takes=2.0, rest=9.0)
    assert scraped.scrape() == (1.0, 0.0)
    scraped.clock.now += 17
    assert scraped.scrape() == (1.0, 17.0)
    scraped.clock.now += 1
    assert scraped.scrape() == (2.0, 0.0)


def test_no_rest_outlasts_the_values() -> None:
    scraped = Scraped(takes=60.0, rest=9.0)
    scraped.scrape()
    scraped.clock.now += KEEP_VALUES_S - 1
    assert scraped.scrape() == (2.0, 0.0)


def test_the_first_failure_in_a_row_is_logged_and_the_next_after_a_success(caplog: pytest.LogCaptureFixture) -> None:
    scraped = Scraped()
    for fails in (True, True, False, True):
        scraped.collector.fails = fails
        scraped.scrape()
    assert [record.message for record in caplog.records] == [
        "the metrics of runner cannot be read; showing the last ones"
    ] * 2


def test_every_collector_of_the_api_keeps_its_values_when_the_database_fails(
    database_url: URL, caplog: pytest.LogCaptureFixture
) -> None:
    engine = open_engine(database_url)
    migrate.upgrade(engine)
    names = ("platform_runner_queued", "platform_lineage_unapplied_events", "platform_arrivals_late_tables")

    def scrape_text() -> str:
        return api.client.get("/metrics").text

    def failing() -> set[str]:
        scrape_text()
        return {record.message.split()[3] for record in caplog.records if "cannot be read" in record.message}

    with serve_api(engine) as api:
        until("every collector to answer", lambda: all(f"# TYPE {name} " in scrape_text() for name in names))
        with engine.begin() as connection:
            for table in ("work", "lineage_events", "metrics_model"):
                connection.execute(text(f"ALTER TABLE {table} RENAME TO {table}_away"))
        until("every collector to fail", lambda: failing() >= {"runner", "lineage", "arrivals"})
        after = scrape_text()
        for name in names:
            assert f"# TYPE {name} " in after
        for collector in ("runner", "lineage", "arrivals"):
            assert f'platform_metrics_age_seconds{{collector="{collector}"}}' in after
    engine.dispose()
