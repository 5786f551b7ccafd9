"""An executor whose database goes away in the middle of a harvest waits for it, and then goes on."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, Engine
from sqlalchemy.engine import URL

from platform_defs.ingest.codes import PaginationType, PlanStatus
from platform_defs.ingest.execution.executor import Executor
from platform_defs.ingest.execution.records import CommittedBatch
from platform_defs.ingest.planning.slices import Estimate
from platform_defs.ingest.tasks.leases import LEASE
from platform_defs.store import migrate
from platform_defs.store.engine import open_engine, transact
from platform_defs.store.tables.ingest import ing_outbox, ing_task_run, ing_task_run_batch
from tests.conftest import STORES
from tests.e2e.cut import Cable, cable
from tests.ingest.execution.memory_source import MemorySource, item
from tests.ingest.execution.test_executor import DAY, Clock, paged, stored
from tests.ingest.planning.test_planner import plan, rows_of
from tests.waiting import until

on_servers = pytest.mark.parametrize("database_url", STORES[1:], indirect=True)
Way = tuple[Cable, Engine, Engine]


@pytest.fixture
def way(database_url: URL) -> Iterator[Way]:
    """A cable to the database, an engine over it, and one that goes round it."""
    direct = open_engine(database_url)
    migrate.upgrade(direct)
    with cable(str(database_url.host), int(database_url.port or 3306)) as running:
        engine = open_engine(database_url.set(host="127.0.0.1", port=running.port))
        yield running, engine, direct
        engine.dispose()
    direct.dispose()


def records(count: int) -> list[dict[str, str]]:
    return [item(number, DAY.start) for number in range(count)]


class Outage:
    """Cuts the cable at the second request, and mends it when the executor has said that it waits."""

    def __init__(self, line: Cable, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
        self.line, self.clock, self.caplog = line, clock, caplog
        self.mending = threading.Thread(target=self._mend)

    def __call__(self, number: int) -> None:
        if number == 2:
            self.line.cut()
            self.mending.start()

    def _mend(self) -> None:
        until("the executor to say that it waits", lambda: "waits up to" in self.caplog.text)
        # its task is left to the lease, which runs out meanwhile
        self.clock.pass_by(LEASE * 2)
        self.line.mend()


@on_servers
def test_a_harvest_goes_on_after_its_database_was_away(way: Way, caplog: pytest.LogCaptureFixture) -> None:
    line, engine, direct = way
    spec, clock = paged(PaginationType.OFFSET), Clock()
    outage = Outage(line, clock, caplog)
    source = MemorySource(spec.pagination, records(25), outage)
    planned = plan(direct, spec, DAY)
    states = Executor(engine, lambda spec: source, clock=clock, threads=1).drain_plans([planned.plan_id])
    outage.mending.join()
    assert states == {planned.plan_id: PlanStatus.COMPLETED}
    assert len(stored(direct)) == 25
    asked = Counter((names["window"]["from"], names["page"]["number"]) for _, names in source.requests)
    # the page that was fetched and could not be written
    assert [count for count in asked.values() if count > 1] == [2]


def test_a_batch_whose_commit_got_no_answer_is_read_and_not_written_twice(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that is lost in the moment of a commit leaves open whether it was done: the work runs again."""

    def twice(engine: Engine, work: Callable[[Connection], Any]) -> Any:
        first = transact(engine, work)
        return transact(engine, work) if isinstance(first, CommittedBatch) else first

    monkeypatch.setattr("platform_defs.ingest.execution.task_run.transact", twice)
    spec = paged(PaginationType.OFFSET)
    planned = plan(engine, spec, DAY, Estimate())
    source = MemorySource(spec.pagination, records(25))
    states = Executor(engine, lambda spec: source, clock=Clock(), threads=1).drain_plans([planned.plan_id])
    assert states == {planned.plan_id: PlanStatus.COMPLETED}
    assert len(rows_of(engine, ing_task_run_batch)) == 3
    assert len(rows_of(engine, ing_outbox)) == len(stored(engine)) == 25
    [run] = rows_of(engine, ing_task_run)
    assert (run.stats["inserted"], run.stats["skipped"]) == (25, 0)


@on_servers
def test_an_executor_that_serves_outlives_its_database(
    way: Way, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform_defs.ingest.execution.executor.OUTAGE_S", 0.0)
    line, engine, direct = way
    spec, clock = paged(PaginationType.OFFSET), Clock()
    source = MemorySource(spec.pagination, records(5))
    executor = Executor(engine, lambda spec: source, clock=clock, threads=1)
    line.cut()
    serving = threading.Thread(target=executor.serve)
    serving.start()
    try:
        until("it to fail once", lambda: "the executor goes on after" in caplog.text)
        line.mend()
        plan(direct, spec, DAY)
        until("the harvest to be done", lambda: len(stored(direct)) == 5)
    finally:
        executor.cancel.set()
        serving.join()
