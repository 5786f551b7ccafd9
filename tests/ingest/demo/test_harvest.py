"""Windows of the demo source are harvested completely and exactly once, whatever trouble it makes."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine

from platform_defs.demo_source.server import DemoSettings, running_server
from tests.ingest.demo.demo_client import DemoClient
from tests.ingest.demo.harvest import DAY, ENDPOINTS, NOW, ids_of_truth, opened_harvester, stored_ids

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
    assert result.watermark_after is None or result.watermark_after >= DAY.start
    assert demo.requests()["byPath"] == (
        {"/entrez/eutils/esearch.fcgi": 4, "/entrez/eutils/esummary.fcgi": 4} if "pubmed" in code else {"/works": 4}
    )
