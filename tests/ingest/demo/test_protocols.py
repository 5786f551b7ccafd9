"""The demo source answers as PubMed and Crossref were recorded, oddities included."""

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from platform_defs.demo_source.server import DemoSettings, running_server
from tests import loopback
from tests.ingest.demo.demo_client import DemoClient

NOW = datetime(2026, 11, 17, 10, tzinfo=UTC)
DAY = datetime(2026, 11, 10, tzinfo=UTC)
ONE_DAY = "from-index-date:2026-11-10,until-index-date:2026-11-10"


@pytest.fixture
def demo() -> Iterator[DemoClient]:
    with running_server(DemoSettings(now=NOW)) as url:
        yield DemoClient(url)


def test_pubmed_counts_in_texts_and_includes_both_days(demo: DemoClient) -> None:
    result = demo.esearch(datetype="mdat", mindate="2026/11/10", maxdate="2026/11/11", retmax=1000).json()
    found, truth = result["esearchresult"], demo.records(DAY, DAY + timedelta(days=2))
    assert found["count"] == str(len(truth)) == "200"
    assert sorted(found["idlist"]) == sorted(record["pmid"] for record in truth)


def test_an_unknown_kind_of_date_finds_nothing_and_is_no_error(demo: DemoClient) -> None:
    answer = demo.esearch(datetype="nope", mindate="2026/11/10", maxdate="2026/11/10")
    assert answer.status_code == 200
    assert answer.json()["esearchresult"]["count"] == "0"


def test_paging_beyond_the_cap_is_an_error_with_a_line_break_inside_its_text(demo: DemoClient) -> None:
    assert "warninglist" in demo.esearch(datetype="mdat", retstart=9000, retmax=1000).json()["esearchresult"]
    answer = demo.esearch(retstart=9999)
    assert answer.status_code == 200
    assert "first 9,999 records" in answer.text
    with pytest.raises(json.JSONDecodeError, match="control character"):
        answer.json()


def test_summaries_come_by_get_and_by_form_and_name_what_is_gone(demo: DemoClient) -> None:
    pmid = demo.records(DAY, DAY + timedelta(days=1))[0]["pmid"]
    by_get = demo.get("/entrez/eutils/esummary.fcgi", id=f"{pmid},1").json()["result"]
    url = f"{demo.url}/entrez/eutils/esummary.fcgi"
    by_form = loopback.post(url, data={"id": f"{pmid},1"}).json()["result"]
    assert by_get == by_form
    assert by_get["uids"] == [pmid, "1"]
    assert by_get[pmid]["uid"] == pmid
    assert by_get["1"]["error"] == "cannot get document summary"
    assert demo.get("/entrez/eutils/esummary.fcgi", id="," * 5000).status_code == 414


def test_crossrefs_cursor_stays_the_same_while_its_pages_go_on(demo: DemoClient) -> None:
    cursor, pages, cursors = "*", [], []
    while not pages or pages[-1]:
        message = demo.works(filter=ONE_DAY, rows=30, cursor=cursor)
        cursor = message["next-cursor"]
        cursors.append(cursor)
        pages.append([item["DOI"] for item in message["items"]])
        assert message["total-results"] == 100
    assert [len(page) for page in pages] == [30, 30, 30, 10, 0]
    assert len(set(cursors)) == 1
    truth = demo.records(DAY, DAY + timedelta(days=1))
    assert [doi for page in pages for doi in page] == [record["doi"] for record in truth]
    assert demo.get("/works", cursor="made-up").status_code == 404


def test_crossref_finds_works_by_doi_in_any_case(demo: DemoClient) -> None:
    first, second = (record["doi"] for record in demo.records(DAY, DAY + timedelta(days=1))[:2])
    message = demo.works(filter=f"doi:{first.lower()},doi:{second.upper()},doi:10.5555/none", rows=10)
    assert [item["DOI"] for item in message["items"]] == [first, second]
    assert demo.get("/works", rows=1001).json()["message-type"] == "validation-failure"


def test_the_same_record_has_the_same_time_after_a_restart_and_late_ones_appear(demo: DemoClient) -> None:
    before = demo.records(DAY, DAY + timedelta(days=1))
    with running_server(DemoSettings(now=NOW + timedelta(hours=5))) as url:
        assert DemoClient(url).records(DAY, DAY + timedelta(days=1)) == before
    [late] = demo.control(late=["2026-11-10T12:00:00"])["added"]
    after = demo.records(DAY, DAY + timedelta(days=1))
    assert [record["doi"] for record in after if record not in before] == [late["doi"]]


def test_the_rate_limit_answers_in_each_sources_own_way() -> None:
    with running_server(DemoSettings(now=NOW, rate_per_s=0.001, burst=1)) as url:
        demo = DemoClient(url)
        demo.esearch()
        pubmed, crossref = demo.esearch(), demo.get("/works")
    assert pubmed.status_code == crossref.status_code == 429
    assert pubmed.json()["error"] == "API rate limit exceeded"
    assert pubmed.headers["x-ratelimit-remaining"] == "0"
    assert crossref.headers["content-type"] == "text/html"
    assert "x-rate-limit-limit" not in crossref.headers


def test_trouble_comes_as_often_as_asked_and_requests_are_counted(demo: DemoClient) -> None:
    demo.make_trouble("error", times=2, skip=1, path="/works")
    assert [demo.get("/works").status_code for _ in range(4)] == [200, 500, 500, 200]
    demo.make_trouble("truncated", path="esearch")
    with pytest.raises(json.JSONDecodeError):
        demo.esearch().json()
    seen = demo.requests()
    assert seen["byPath"] == {"/works": 4, "/entrez/eutils/esearch.fcgi": 1}
    assert seen["byStatus"] == {"200": 3, "500": 2}


def test_the_command_prints_its_address_and_serves() -> None:
    command = [sys.executable, "-m", "platform_defs.demo_source", "--records", "60"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            demo = DemoClient(process.stdout.readline().strip())
            assert demo.esearch(datetype="mdat").json()["esearchresult"]["count"] in ("59", "60")
        finally:
            process.terminate()
    assert process.returncode == 0
