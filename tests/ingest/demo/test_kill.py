"""A harvest that is killed at any request loses nothing, stores nothing twice, and fetches little again."""

import multiprocessing
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from multiprocessing.process import BaseProcess

import pytest
from dagster import DagsterInstance, build_sensor_context
from sqlalchemy import URL, Engine, update

from platform_defs.demo_source.registry import FIRST_WINDOWS, load_demo_sources
from platform_defs.demo_source.server import DemoSettings, running_server
from platform_defs.ingest.codes import Operation, PlanStatus
from platform_defs.ingest.cursors.operations import read_watermark
from platform_defs.ingest.spec.compiler import compile_spec
from platform_defs.store import migrate
from platform_defs.store.engine import open_engine, transact
from platform_defs.store.tables.ingest import ing_outbox, ing_plan, ing_record
from sensors.ingest import keep_ingest_going
from tests.ingest.demo import killed_harvest
from tests.ingest.demo.demo_client import DemoClient
from tests.ingest.demo.harvest import DAY, ENDPOINTS, NOW, ids_of_truth, stored_ids
from tests.ingest.planning.test_planner import rows_of
from tests.waiting import until

# 15 records a day in pages of 4: four pages, the last of them short
PAGES, PAGE_SIZE = 4, 4
REQUESTS = {"demo_pubmed": 2 * PAGES, "demo_crossref": PAGES}
# Without PLATFORM_TEST_LONG only the second request of each source.
QUICK_NUMBER = 1
# Crossref's cursor repeats as recorded; with a cursor of its own for each page a source can be asked for a page again.
KILLS = [
    pytest.param(
        code,
        keeps_place,
        number,
        id=f"{code}-{'repeating' if keeps_place else 'own'} cursor-{number}",
        marks=() if number == QUICK_NUMBER else pytest.mark.needs("time"),
    )
    for code, keeps_place in (("demo_pubmed", False), ("demo_crossref", True), ("demo_crossref", False))
    for number in range(REQUESTS[code])
]


def start_harvest(engine: Engine, code: str, now: datetime) -> BaseProcess:
    """A process forked from one that has imported everything already."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([killed_harvest.__name__])
    database = engine.url.render_as_string(hide_password=False)
    process = context.Process(target=killed_harvest.harvest_window, args=(database, code, now, PAGE_SIZE))
    process.start()
    return process


@pytest.fixture
def file_engine(database_url: URL) -> Iterator[Engine]:
    engine = open_engine(database_url)
    migrate.upgrade(engine)
    yield engine
    engine.dispose()


def kill_at(engine: Engine, demo: DemoClient, code: str, number: int, *, is_answered: bool) -> None:
    """Kills the harvest while its request of this number is answered, or right after the answer went out."""
    demo.make_trouble("hold", skip=number, path="/")
    process = start_harvest(engine, code, NOW)
    try:
        until("the request", lambda: demo.requests()["held"] or process.exitcode is not None)
        assert process.exitcode is None
        if is_answered:
            # the next answer is held too: somewhere between the two the batch is read and committed
            demo.make_trouble("hold", path="/")
            seen = demo.requests()["total"]
            demo.control(release=True)
            until("the answer", lambda: demo.requests()["total"] > seen)
    finally:
        process.kill()
        process.join()
    demo.control(reset=True)


def finish(engine: Engine, code: str) -> None:
    """Starts a second process, unless the first one was done before it died: that would fetch the window again."""
    if [plan.status_code for plan in rows_of(engine, ing_plan)] == [PlanStatus.COMPLETED]:
        return
    process = start_harvest(engine, code, NOW + timedelta(hours=1))
    process.join()
    assert process.exitcode == 0


def assert_complete_and_once(engine: Engine, demo: DemoClient, code: str) -> None:
    truth = ids_of_truth(demo.records(DAY.start, DAY.end), code)
    assert stored_ids(engine, code) == truth
    assert sorted(row.provider_id for row in rows_of(engine, ing_outbox)) == truth
    assert len(rows_of(engine, ing_record)) == len(truth)


def watermark_after_upkeep(engine: Engine, code: str, monkeypatch: pytest.MonkeyPatch) -> datetime | None:
    """After one tick, more than a minute after the last change: the kill may have come before the cursor was moved."""
    monkeypatch.setenv("PLATFORM_DB_URL", engine.url.render_as_string(hide_password=False))
    long_ago = update(ing_plan).values(updated_at=datetime.now(UTC) - timedelta(hours=1))
    transact(engine, lambda connection: connection.execute(long_ago))
    with DagsterInstance.ephemeral() as instance, build_sensor_context(instance=instance) as context:
        keep_ingest_going(context)
    spec = compile_spec(engine, code, ENDPOINTS[code], Operation.HARVEST, now=NOW).spec
    return read_watermark(engine, spec)


def fetched_pages(demo: DemoClient, code: str) -> Counter[str]:
    path = "/entrez/eutils/esearch.fcgi" if code == "demo_pubmed" else "/works"
    return Counter(seen["query"] for seen in demo.requests()["requests"] if seen["path"] == path)


@pytest.mark.parametrize("is_answered", [False, True], ids=["inside a batch", "between two"])
@pytest.mark.parametrize(("code", "keeps_place", "number"), KILLS)
def test_a_killed_harvest_is_finished_by_the_next_one(
    file_engine: Engine,
    code: str,
    keeps_place: bool,
    number: int,
    is_answered: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with running_server(DemoSettings(records=15 * 60, now=NOW, cursor_keeps_place=keeps_place)) as url:
        demo = DemoClient(url)
        # its windows begin with the one that is fetched: the watermark is at its end when it is complete
        load_demo_sources(file_engine, url, now=DAY.start + FIRST_WINDOWS)
        kill_at(file_engine, demo, code, number, is_answered=is_answered)
        finish(file_engine, code)
        assert_complete_and_once(file_engine, demo, code)
        assert watermark_after_upkeep(file_engine, code, monkeypatch) == DAY.end
        again = fetched_pages(demo, code).total() - PAGES
        # where the source keeps the place itself, the slice may have to begin again from its window
        assert again <= (PAGES if keeps_place else 1)
