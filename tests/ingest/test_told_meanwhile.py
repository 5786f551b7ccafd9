"""What a person hears of work that takes long: requests that are repeated, and what a run drains for others."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta

import pytest
from sqlalchemy import Engine

from platform_defs.demo_source.registry import load_demo_sources
from platform_defs.demo_source.server import DemoSettings, running_server
from platform_defs.ingest.codes import ErrorLevel, Operation, TaskStatus
from platform_defs.ingest.errors import ResponseError
from platform_defs.ingest.materialisation import IngestEnvironment, Listener, drain_everything, materialise_windows
from platform_defs.ingest.opening import open_environment
from platform_defs.ingest.planning.slices import Estimate
from resources.database import DatabaseResource
from resources.http import HttpResource
from resources.ingest import IngestResource
from tests.ingest.demo.demo_client import DemoClient
from tests.ingest.demo.harvest import CONTEXT, DAY, NOW, ids_of_truth, stored_ids
from tests.ingest.execution.memory_source import MemorySource
from tests.ingest.execution.test_executor import GRID, items_of, paged
from tests.ingest.planning.test_planner import plan
from tests.ingest.test_materialisation import environment
from tests.waiting import until

# Dagster's own doing where one resource needs another
pytestmark = pytest.mark.filterwarnings("ignore:.*")
Opening = Callable[[Engine], AbstractContextManager[IngestEnvironment]]


@contextmanager
def of_a_run(engine: Engine) -> Iterator[IngestEnvironment]:
    database = DatabaseResource()
    database._engine = engine
    with IngestResource(database=database, http=HttpResource()).opened() as opened:
        yield opened


def of_a_command(engine: Engine) -> AbstractContextManager[IngestEnvironment]:
    return open_environment(engine, threads=1)


@pytest.mark.parametrize("opening", [of_a_run, of_a_command])
@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_a_request_that_is_repeated_is_told_with_the_reason(
    engine: Engine, opening: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLATFORM_DB_URL", engine.url.render_as_string(hide_password=False))
    trouble = list[str]()
    with running_server(DemoSettings(now=NOW)) as url, opening(engine) as opened:
        load_demo_sources(engine, url, now=NOW - timedelta(days=1))
        demo = DemoClient(url)
        demo.make_trouble("error", path="/works")
        names = ("demo_crossref", "works", Operation.HARVEST)
        [result] = materialise_windows(opened, *names, [DAY], CONTEXT, listener=Listener(on_trouble=trouble.append))
        assert result.is_complete
        assert stored_ids(engine, "demo_crossref") == ids_of_truth(demo.records(DAY.start, DAY.end), "demo_crossref")
    [told] = trouble
    assert told.startswith(f"GET {url}/works: status 500, trying again in ")


def test_it_is_told_while_the_page_is_still_awaited_and_without_secrets(engine: Engine) -> None:
    told = list[str]()

    def repeated(number: int) -> None:
        working.trouble.tell("GET https://source.test/items?api_key=hidden: no answer, trying again in 2.0 s")
        until("somebody to be told of it", lambda: told)

    source = MemorySource(paged().pagination, items_of(5), trouble=repeated)
    working = environment(engine, source)
    names = ("made_up", "items", Operation.HARVEST)
    materialise_windows(working, *names, [GRID.window(0)], CONTEXT, listener=Listener(on_trouble=told.append))
    assert len(told) == 1
    assert "hidden" not in told[0]


def test_a_run_that_drains_for_others_says_which_plans_and_what_waits(engine: Engine) -> None:
    planned = {plan(engine, paged(), GRID.window(number), Estimate()).plan_key for number in (0, 1)}

    def away(number: int) -> None:
        if number == 2:
            raise ResponseError(ErrorLevel.TRANSIENT, "HTTP_503", "GET /items: status 503")

    source, told = MemorySource(paged().pagination, items_of(5), trouble=away), list[str]()
    ended = drain_everything(environment(engine, source), Listener(on_trouble=told.append))
    assert ended.keys() == planned
    # both are fetched at the same time, and the second request may be of either
    [waiting] = [key for key, ends in ended.items() if ends == {TaskStatus.QUEUED: 1}]
    assert all(ends == {TaskStatus.SUCCEEDED: 1} for key, ends in ended.items() if key != waiting)
    [reason] = told
    assert reason.startswith(f"{waiting}: GET /items: status 503. It goes on at ")
