"""The window of the demo that is PARTIAL: after the next start its source is whole, and the window can be mended."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import Engine

from platform_defs.demo_source.server import DemoSettings, running_server
from platform_defs.ingest.codes import PlanStatus
from tests.ingest.demo.demo_client import DemoClient
from tests.ingest.demo.harvest import DAY, NOW, Harvester, ids_of_truth, opened_harvester, stored_ids

CODE = "demo_crossref"


@contextmanager
def started(engine: Engine, *, short: bool) -> Iterator[tuple[DemoClient, Harvester]]:
    """The source of a start of the platform, with or without --short-day; the Registry is told where it listens."""
    settings = DemoSettings(now=NOW, short_day=DAY.start.date() if short else None)
    with running_server(settings) as url, opened_harvester(engine, url) as harvester:
        yield DemoClient(url), harvester


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_the_partial_window_is_complete_when_it_is_harvested_again_after_the_next_start(engine: Engine) -> None:
    with started(engine, short=True) as (_, harvester):
        for _ in range(2):
            [partial] = harvester.harvest(CODE)
            assert partial.report.status is PlanStatus.PARTIAL, "not before the next start"
        short_of = len(stored_ids(engine, CODE))
    with started(engine, short=False) as (source, harvester):
        [mended] = harvester.harvest(CODE)
        assert mended.report.status is PlanStatus.COMPLETED, mended.report
        truth = ids_of_truth(source.records(DAY.start, DAY.end), CODE)
    assert stored_ids(engine, CODE) == truth
    assert short_of < len(truth)
