"""The node type `harvest` against the demo source over real HTTP."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
from sqlalchemy import Engine

from platform_defs.chain_nodes.harvest import HarvestExecutor
from platform_defs.chains.nodes.catalogue import cfg_problems
from platform_defs.chains.nodes.port import NodeFailed, NodeStopped, StopSignal
from platform_defs.demo_source.server import DemoSettings, running_server
from platform_defs.store.tables.ingest import ing_plan, ing_schedule_instance
from tests.chains.nodes.attempts import Bench, open_bench
from tests.ingest.demo.demo_client import DemoClient
from tests.ingest.demo.harvest import DAY, NOW, ids_of_truth, opened_harvester, stored_ids
from tests.ingest.planning.test_planner import rows_of

pytestmark = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
CFG = {"source": "demo_crossref", "endpoint": "works", "operation": "backfill"}
FROM_TENTH = {**CFG, "from": "2026-11-10", "to": "${params.to}"}


@pytest.fixture
def demo() -> Iterator[DemoClient]:
    with running_server(DemoSettings(now=NOW)) as url:
        yield DemoClient(url)


@contextmanager
def opened(engine: Engine, demo: DemoClient) -> Iterator[Bench]:
    with opened_harvester(engine, demo.url, {"pagination.page_size": 30}) as harvester:
        executor = HarvestExecutor(engine, lambda engine, threads: nullcontext(harvester.environment))
        yield open_bench(engine, None, executor)


def test_windows_are_fetched_and_counted(engine: Engine, demo: DemoClient) -> None:
    with opened(engine, demo) as bench:
        artifact = bench.artifact("harvest", FROM_TENTH, {"to": "2026-11-11T00:00Z"})
    assert (artifact["partitions"], artifact["inserted"], artifact["pages"]) == (1, 100, 4)
    assert stored_ids(engine, "demo_crossref") == ids_of_truth(demo.records(DAY.start, DAY.end), "demo_crossref")
    assert bench.lines == [
        "demo_crossref/works: 1 windows to fetch",
        "[2026-11-10T00:00:00Z, 2026-11-11T00:00:00Z): completed, 100 new, 0 changed, 4 pages",
    ]
    (asked,) = rows_of(engine, ing_schedule_instance)
    assert (asked.scheduler_code, asked.scheduler_log_id) == ("chain", bench.run_id)


def test_a_retry_after_a_stop_fetches_only_what_is_not_complete(engine: Engine, demo: DemoClient) -> None:
    days = {"to": "2026-11-16"}
    with opened(engine, demo) as bench:
        save, saved = bench.lines.append, bench.lines

        def stop_after_the_first_window(text: str) -> None:
            save(text)
            if "completed" in text:
                bench.stop.set("the run was stopped by ann")

        bench.log = stop_after_the_first_window
        with pytest.raises(NodeStopped):
            bench.perform("harvest", FROM_TENTH, days)
        complete = sum("completed" in line for line in saved)
        assert 1 <= complete < 6
        bench.stop = StopSignal()
        bench.log = save
        bench.next_attempt()
        assert bench.artifact("harvest", FROM_TENTH, days)["partitions"] == 6 - complete
        assert bench.artifact("harvest", FROM_TENTH, days)["partitions"] == 0
    assert len(rows_of(engine, ing_plan)) == 6
    assert len(stored_ids(engine, "demo_crossref")) == 600


def test_a_stop_ends_a_harvest_between_two_pages(engine: Engine, demo: DemoClient) -> None:
    with opened(engine, demo) as bench:
        bench.stop.set("the run was stopped by ann")
        with pytest.raises(NodeStopped, match="stopped by ann"):
            bench.perform("harvest", FROM_TENTH, {"to": "2026-11-12"})
    assert stored_ids(engine, "demo_crossref") == []


def test_an_endpoint_that_is_not_known_says_so(engine: Engine, demo: DemoClient) -> None:
    with opened(engine, demo) as bench, pytest.raises(NodeFailed, match="no active source has the code 'nothing'"):
        bench.perform("harvest", {**CFG, "source": "nothing"})


@pytest.mark.parametrize(
    ("cfg", "problem"),
    [
        ({"from": "yesterday"}, "cfg.from: expected a time such as"),
        ({"operation": "update", "to": "2026-11-10"}, "an update has buckets"),
        ({"bucket": 3}, "cfg.bucket: only an update"),
        ({"operation": "steal"}, "cfg.operation: "),
    ],
)
def test_problems_are_told_when_a_chain_is_saved(engine: Engine, cfg: dict[str, Any], problem: str) -> None:
    bench = open_bench(engine, None, HarvestExecutor(engine))
    assert any(problem in text for text in cfg_problems(bench.types, "n", "harvest", {**CFG, **cfg}))
