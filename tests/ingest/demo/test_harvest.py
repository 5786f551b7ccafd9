"""Windows of the demo source are harvested completely and exactly once, whatever trouble it makes."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import pytest
from sqlalchemy import Engine

from platform_defs.demo_source.server import DemoSettings, running_server
from platform_defs.ingest.codes import PaginationType
from platform_defs.ingest.execution import task_ends
from platform_defs.ingest.materialisation import materialise_bucket
from platform_defs.ingest.planning.signals import add_signals
from platform_defs.ingest.planning.windows import Window
from platform_defs.ingest.spec.model import Spec
from platform_defs.store.tables.ingest import ing_outbox, ing_plan_slice, ing_record_quarantine
from tests.ingest.demo.demo_client import DemoClient
from tests.ingest.demo.harvest import CONTEXT, DAY, ENDPOINTS, NOW, ids_of_truth, opened_harvester, stored_ids
from tests.ingest.planning.test_planner import rows_of

SMALL_PAGES = {"pagination.page_size": 30}


@pytest.fixture
def demo() -> Iterator[DemoClient]:
    with running_server(DemoSettings(now=NOW)) as url:
        yield DemoClient(url)


@pytest.mark.parametrize("code", ENDPOINTS)
def test_a_window_is_harvested_completely_and_once(engine: Engine, demo: DemoClient, code: str) -> None:
    with opened_harvester(engine, demo.url, SMALL_PAGES) as harvester:
        [result] = harvester.harvest(code)
    assert result.is_complete, result.report
    assert stored_ids(engine, code) == ids_of_truth(demo.records(DAY.start, DAY.end), code)
    assert result.report.totals["inserted"] == 100
    assert result.cursor_after is None or result.cursor_after >= DAY.start
    assert demo.requests()["byPath"] == (
        {"/entrez/eutils/esearch.fcgi": 4, "/entrez/eutils/esummary.fcgi": 4} if "pubmed" in code else {"/works": 4}
    )


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that is put back is due again at once: the clock of these tests stands still."""
    monkeypatch.setattr(task_ends, "FIRST_WAIT", timedelta(0))


TROUBLES = [
    pytest.param("too_many", {"times": 2, "retry_after": "0"}, id="429"),
    pytest.param("error", {"times": 3}, id="500"),
    pytest.param("error", {"times": 7}, id="500 until the task is put back"),
    pytest.param("slow", {"seconds": 0.3}, id="slow"),
    pytest.param("truncated", {}, id="truncated"),
    pytest.param("repeated_page", {}, id="repeated page"),
    pytest.param("changed_order", {"times": 2}, id="changed order"),
    pytest.param("expired_cursor", {}, id="expired cursor"),
    pytest.param("rate_limit_in_body", {}, id="rate limit with status 200"),
]


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
@pytest.mark.parametrize("skip", [0, 1, 3])
@pytest.mark.parametrize(("kind", "more"), TROUBLES)
@pytest.mark.parametrize("code", ENDPOINTS)
@pytest.mark.usefixtures("no_waiting")
def test_trouble_loses_nothing(
    engine: Engine, demo: DemoClient, code: str, kind: str, more: dict[str, Any], skip: int
) -> None:
    path = "esearch" if code == "demo_pubmed" else "/works"
    demo.make_trouble(kind, skip=skip, path=path, **more)
    with opened_harvester(engine, demo.url, SMALL_PAGES) as harvester:
        [result] = harvester.harvest(code)
    assert result.is_complete, result.report
    assert stored_ids(engine, code) == ids_of_truth(demo.records(DAY.start, DAY.end), code)
    events = [row.provider_id for row in rows_of(engine, ing_outbox)]
    assert len(events) == len(set(events)) == 100
    if kind == "too_many":
        assert result.report.totals["429Count"] == 2


@pytest.mark.parametrize("code", ENDPOINTS)
def test_late_records_are_found_by_a_second_generation(engine: Engine, demo: DemoClient, code: str) -> None:
    with opened_harvester(engine, demo.url, SMALL_PAGES) as harvester:
        harvester.harvest(code)
        demo.control(late=["2026-11-10T12:00:00", "2026-11-10T23:59:59"])
        [again] = harvester.harvest(code)
    assert again.plan.generation == 2
    assert again.report.totals["inserted"] == 2
    assert stored_ids(engine, code) == ids_of_truth(demo.records(DAY.start, DAY.end), code)


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_a_next_page_on_another_origin_is_refused_and_sees_no_request(engine: Engine, demo: DemoClient) -> None:
    def by_next_url(spec: Spec) -> Spec:
        pagination = replace(
            spec.pagination, type=PaginationType.URL, next_url_path="$.message.next-url", next_token_path=None
        )
        return replace(spec, pagination=pagination)

    with running_server(DemoSettings(now=NOW)) as foreign, opened_harvester(engine, demo.url, SMALL_PAGES) as harvester:
        demo.make_trouble("next_url", origin=demo.url, times=1)
        demo.make_trouble("next_url", origin=foreign, skip=1)
        harvester.change = by_next_url
        [result] = harvester.harvest("demo_crossref")
        assert not result.is_complete
        assert "FAILED (the source names a next page on" in result.report.unfinished[0]
        assert demo.requests()["total"] == 2
        assert DemoClient(foreign).requests()["total"] == 0


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_a_total_beyond_pubmeds_cap_splits_days_and_then_ranges_of_ids(engine: Engine) -> None:
    days = Window(DAY.start, DAY.start + timedelta(days=4))
    with running_server(DemoSettings(now=NOW, records=12_000, pubmed_cap=150)) as url:
        demo = DemoClient(url)
        with opened_harvester(engine, url) as harvester:
            harvester.change = lambda spec: replace(spec, pagination=replace(spec.pagination, result_cap=150))
            [result] = harvester.harvest("demo_pubmed", days)
        assert result.is_complete, result.report
        assert stored_ids(engine, "demo_pubmed") == ids_of_truth(demo.records(days.start, days.end), "demo_pubmed")
    states = [row.status_code for row in rows_of(engine, ing_plan_slice)]
    assert states.count("SPLIT") >= 7


@pytest.mark.parametrize("code", ENDPOINTS)
def test_an_update_asks_by_id_and_sets_a_bad_one_aside(engine: Engine, demo: DemoClient, code: str) -> None:
    first, second = stored = ids_of_truth(demo.records(DAY.start, DAY.end), code)[:2]
    demo.make_trouble("bad_id", id=quote(first, safe=""), times=-1)
    with opened_harvester(engine, demo.url) as harvester:
        harvester.change = lambda spec: replace(spec, update_buckets=1)
        add_signals(engine, code, ENDPOINTS[code], stored, reason=None, requested_by="test", now=NOW)
        result = materialise_bucket(harvester.environment, code, ENDPOINTS[code], 0, CONTEXT)
    assert result.is_complete, result.report
    assert stored_ids(engine, code) == [second]
    [aside] = rows_of(engine, ing_record_quarantine)
    assert (aside.provider_id, aside.reason_code) == (first, "BAD_ID")
