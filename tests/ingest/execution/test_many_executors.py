"""Four executors drain 2,000 tasks of one queue: each task once, and none by two executors at the same time."""

import threading
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from sqlalchemy import Engine

from platform_defs.ingest.codes import Operation, PlanStatus, Trigger
from platform_defs.ingest.execution.executor import Executor
from platform_defs.ingest.fetching.source import Fetched
from platform_defs.ingest.planning.planner import plan_bucket
from platform_defs.ingest.planning.update_candidates import id_slices
from platform_defs.ingest.spec.model import CallSpec, CompiledSpec
from platform_defs.store.engine import open_engine
from platform_defs.store.tables.ingest import ing_plan, ing_record, ing_task, ing_task_run, ing_task_run_batch
from tests.conftest import STORES
from tests.ingest.execution.memory_source import item
from tests.ingest.planning.test_planner import NOW, SPEC, rows_of

TASKS = 2000
EXECUTORS = 4


@dataclass
class WatchedSource:
    """Answers at once, and remembers which ids were asked for while the same ones were being answered."""

    asked: Counter[str] = field(default_factory=Counter)
    met: list[str] = field(default_factory=list)
    _busy: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def fetch(
        self, call: CallSpec, names: Mapping[str, Any], *, url: str | None = None, cancel: threading.Event
    ) -> Fetched:
        ids = set(names["ids"])
        with self._lock:
            self.met += ids & self._busy
            self._busy |= ids
            self.asked.update(ids)
        answer = Fetched({"items": [item(int(each), NOW) for each in ids]})
        with self._lock:
            self._busy -= ids
        return answer


@pytest.mark.needs("time")
@pytest.mark.parametrize("engine", STORES[1:2], indirect=True)
def test_four_executors_drain_two_thousand_tasks_and_none_runs_twice(engine: Engine) -> None:
    assert SPEC.search is not None
    spec = replace(
        SPEC,
        operation=Operation.UPDATE,
        detail=replace(SPEC.search, endpoint_name="by_id"),
        update_buckets=1,
        batching=replace(SPEC.batching, max_ids_per_slice=1),
        stock_limit=TASKS,
    )
    ids = [str(number) for number in range(TASKS)]
    plan_bucket(
        engine,
        CompiledSpec(spec),
        0,
        id_slices(spec, 0, ids),
        schedule_instance_id=1,
        trigger=Trigger.MANUAL,
        now=NOW,
    )
    source = WatchedSource()

    def drain(number: int) -> int:
        own = open_engine(engine.url)
        try:
            executor = Executor(own, lambda spec: source, threads=2, per_partition=64, clock=lambda: NOW)
            return executor.drain_everything()
        finally:
            own.dispose()

    with ThreadPoolExecutor(EXECUTORS) as pool:
        ended = list(pool.map(drain, range(EXECUTORS)))
    assert sum(ended) == TASKS
    assert min(ended) > 0
    assert source.met == []
    assert source.asked == Counter(ids)
    assert {row.lease_count for row in rows_of(engine, ing_task)} == {1}
    for table in (ing_task_run, ing_task_run_batch, ing_record):
        assert len(rows_of(engine, table)) == TASKS
    [plan] = rows_of(engine, ing_plan)
    assert plan.status_code == PlanStatus.COMPLETED
