"""The acceptance lists of the seeds (004 chapter 9; 001 5.10, 9.9 and 11.11): which test proves which sentence.

004 9.1  every object leads back to its trigger       here
004 9.2  a batch's request without the Registry       here; transport/test_replay.py
004 9.3  windows join without gap or overlap          planning/test_windows.py, planning/test_slices.py
004 9.4  a key that is known reads and goes on        planning/test_planner.py (plan, slice, task),
                                                      execution/test_database_outage.py (batch), cursors/ (event)
004 9.5  planner and executor apart                   here
5.10.1   stock and budget, no task twice              planning/test_planner.py, execution/test_stops.py (budget)
5.10.2   batches are idempotent                       execution/test_executor.py (crashes), test_database_outage.py
5.10.2   429 and a bad network slow down              rate_gate/test_gate.py, execution/test_health.py
5.10.3   operations keep to their namespaces          cursors/test_cursors.py, cursors/test_side_by_side.py
5.10.4   replay of any batch, also a failed one       transport/test_replay.py
5.10.5   planner and executor scale apart             here; execution/test_many_executors.py
5.10.5   versions side by side execute the same       test_snapshot.py
9.9      accuracy, recovery within one batch          execution/test_executor.py, demo/test_kill.py
9.9      429 and 5xx: at least 95% succeed            here; demo/test_harvest.py
9.9      throughput grows with executors              bench/ingest.py
11.11    the same effect however often                execution/test_executor.py, demo/test_harvest.py
11.11    windows, watermarks, which record wins       planning/, execution/, cursors/test_side_by_side.py
11.11    a batch and an error are told by their page  transport/test_replay.py
"""

import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import Engine, select

from platform_defs.demo_source.server import DemoSettings, running_server
from platform_defs.ingest.codes import Operation, Trigger
from platform_defs.ingest.execution.replay import load_batch
from platform_defs.ingest.planning.planner import plan_window
from platform_defs.ingest.registry.loading import set_base_url
from platform_defs.ingest.transport.http_source import rate_key, rate_policy
from platform_defs.ingest.transport.requests import replay_request
from platform_defs.rate_gate.gate import RateGate
from platform_defs.store.engine import read
from platform_defs.store.tables.ingest import (
    ing_outbox,
    ing_plan,
    ing_plan_slice,
    ing_record,
    ing_record_quarantine,
    ing_schedule_instance,
    ing_task,
    ing_task_run,
    ing_task_run_batch,
)
from platform_defs.store.tables.ingest_cursors import ing_cursor_event
from tests.e2e.platform_up import PLATFORM
from tests.ingest.demo.demo_client import DemoClient
from tests.ingest.demo.harvest import DAY, NOW, ids_of_truth, opened_harvester, stored_ids
from tests.ingest.execution.memory_source import MemorySource
from tests.ingest.execution.test_executor import drain, items_of, paged
from tests.ingest.planning.test_planner import rows_of
from tests.needs import ROOT

CODE = "demo_crossref"


@pytest.fixture
def demo() -> Iterator[DemoClient]:
    with running_server(DemoSettings(now=NOW, cursor_keeps_place=False)) as url:
        yield DemoClient(url)


def test_every_record_leads_back_to_the_trigger_that_asked_for_it(engine: Engine, demo: DemoClient) -> None:
    with opened_harvester(engine, demo.url, {"pagination.page_size": 30}) as harvester:
        harvester.change = lambda spec: replace(spec, window=replace(spec.window, start=DAY.start))
        harvester.harvest(CODE)
    batch, run, task = ing_task_run_batch.c, ing_task_run.c, ing_task.c
    piece, plan, trigger = ing_plan_slice.c, ing_plan.c, ing_schedule_instance.c
    lineage = (
        select(ing_record.c.provider_id, trigger.trigger_type_code)
        .join(ing_task_run_batch, (batch.id == ing_record.c.batch_id) & (batch.run_id == ing_record.c.run_id))
        .join(ing_task_run, run.id == batch.run_id)
        .join(ing_task, (task.id == run.task_id) & (task.id == batch.task_id))
        .join(ing_plan_slice, (piece.id == task.slice_id) & (piece.expr_hash == task.expr_hash))
        .join(ing_plan, (plan.id == piece.plan_id) & (plan.id == batch.plan_id))
        .join(ing_schedule_instance, trigger.id == plan.schedule_instance_id)
    )
    found = read(engine, lambda connection: connection.execute(lineage).all())
    assert sorted(row.provider_id for row in found) == ids_of_truth(demo.records(DAY.start, DAY.end), CODE)
    assert {row.trigger_type_code for row in found} == {Trigger.MANUAL}
    advances = select(ing_cursor_event, batch.plan_id.label("plan_of_batch")).join(
        ing_task_run_batch,
        (batch.id == ing_cursor_event.c.batch_id)
        & (batch.run_id == ing_cursor_event.c.run_id)
        & (batch.task_id == ing_cursor_event.c.task_id)
        & (batch.expr_hash == ing_cursor_event.c.expr_hash),
    )
    [event] = read(engine, lambda connection: connection.execute(advances).all())
    assert event.plan_of_batch == event.plan_id
    newest = max(row.updated_at for row in rows_of(engine, ing_record))
    assert datetime.fromisoformat(event.observed_max_value) == newest < event.new_instant


def test_a_change_and_an_item_that_was_set_aside_lead_back_to_the_batch_that_brought_them(engine: Engine) -> None:
    spec = paged()
    source = MemorySource(spec.pagination, [*items_of(3), {"id": "bad", "updated": "someday"}])
    source._matching = lambda names: source.items  # type: ignore[method-assign]
    planned, _ = drain(engine, spec, source)
    [batch] = rows_of(engine, ing_task_run_batch)
    [aside] = rows_of(engine, ing_record_quarantine)
    found = (aside.plan_id, aside.slice_id, aside.task_id, aside.run_id, aside.batch_id, aside.expr_hash)
    assert found == (planned.plan_id, batch.slice_id, batch.task_id, batch.run_id, batch.id, batch.expr_hash)
    assert aside.schedule_instance_id == rows_of(engine, ing_schedule_instance)[0].id
    assert aside.response_fragment == {"id": "bad", "updated": "someday"}
    assert {(row.run_id, row.batch_id) for row in rows_of(engine, ing_outbox)} == {(batch.run_id, batch.id)}
    assert {(row.run_id, row.batch_id) for row in rows_of(engine, ing_record)} == {(batch.run_id, batch.id)}


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_a_plan_is_executed_by_another_process_as_it_was_made_whatever_the_registry_says_since(
    engine: Engine, demo: DemoClient, tmp_path: Path
) -> None:
    with opened_harvester(engine, demo.url) as harvester:
        compiled = harvester.compile(CODE, "works", Operation.HARVEST)
    plan_window(engine, compiled, DAY, schedule_instance_id=1, trigger=Trigger.MANUAL, now=NOW)
    set_base_url(engine, CODE, "http://127.0.0.1:9", now=datetime.now(UTC))
    demo.make_trouble("error", path="/works")
    url = engine.url.render_as_string(hide_password=False)
    environment = os.environ | {"PLATFORM_HOME": str(tmp_path), "PLATFORM_DB_URL": url}
    command = [*PLATFORM, "ingest", "execute", "--once"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"GET {demo.url}/works: status 500, trying again in " in done.stderr, "it says what it waits for"
    assert stored_ids(engine, CODE) == ids_of_truth(demo.records(DAY.start, DAY.end), CODE)
    for batch in rows_of(engine, ing_task_run_batch):
        replay = replay_request(load_batch(engine, batch.run_id, batch.batch_no))
        assert replay.is_same, (replay.stored, replay.rebuilt)


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_of_requests_to_a_source_in_trouble_nearly_all_succeed_in_the_end_and_the_rate_falls(
    engine: Engine, demo: DemoClient
) -> None:
    for skip in range(0, 40, 4):
        demo.make_trouble("error" if skip % 8 else "too_many", skip=skip, retry_after="0", path="/works")
    with opened_harvester(engine, demo.url, {"pagination.page_size": 10}) as harvester:
        [result] = harvester.harvest(CODE)
    assert result.is_complete, result.report
    assert stored_ids(engine, CODE) == ids_of_truth(demo.records(DAY.start, DAY.end), CODE)
    statuses = demo.requests()["byStatus"]
    assert (statuses["429"], statuses["500"]) >= (2, 2)
    assert result.report.totals["retryCount"] == statuses["429"] + statuses["500"]
    assert result.report.totals["429Count"] == statuses["429"]
    spec = harvester.compile(CODE, "works", Operation.HARVEST).spec
    standing = RateGate(engine).standing(rate_key(spec), rate_policy(spec.rate, spec.retry))
    assert standing.rate_per_s < spec.rate.refill_per_s / 2
