"""What somebody cancels is not fetched any more, keeps what it has, says so, and can be begun anew."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from click.testing import CliRunner
from sqlalchemy import Engine

from assets.ingest.complete import complete_outcome
from platform_defs.commands.ingest.harvesting import command
from platform_defs.demo_source.server import DemoSettings, running_server
from platform_defs.errors import PlatformError
from platform_defs.http_door.policy import LONGEST_TIMEOUT_S
from platform_defs.ingest.codes import ErrorLevel, Operation, PlanStatus, RunStatus, SliceStatus, TaskStatus, Trigger
from platform_defs.ingest.errors import ResponseError
from platform_defs.ingest.ledger.open_partitions import count_cancelled
from platform_defs.ingest.ledger.queue import buckets_with_signals
from platform_defs.ingest.ledger.windows import open_windows, plan_report, window_states
from platform_defs.ingest.planning.cancelling import CancelledPlan, PlanChoice, cancel_plans
from platform_defs.ingest.planning.harvest_requests import windows_to_request
from platform_defs.ingest.planning.planner import plan_bucket, queue_pending_slices
from platform_defs.ingest.planning.signals import add_signals
from platform_defs.ingest.planning.slices import Estimate, id_slice
from platform_defs.ingest.spec.model import CompiledSpec, Spec
from platform_defs.ingest.tasks.leases import LEASE
from platform_defs.store.tables.ingest import ing_plan, ing_plan_slice, ing_task, ing_task_run, ing_task_run_batch
from tests.ingest.demo.demo_client import DemoClient
from tests.ingest.demo.harvest import NOW as DEMO_NOW
from tests.ingest.demo.harvest import opened_harvester
from tests.ingest.execution.memory_source import MemorySource
from tests.ingest.execution.test_executor import DAY, GRID, Clock, Killed, executor, items_of, listed, paged, stored
from tests.ingest.planning.test_planner import BUSY, NOW, SPEC, plan, rows_of
from tests.ingest.registry.making import GOOD, load_text
from tests.waiting import PATIENCE_S, until

NAMES = ("made_up", "items", Operation.HARVEST)
SAID = f"somebody cancelled it at {NOW:%F %T} UTC: wrong key"


def cancel(engine: Engine, choice: PlanChoice = PlanChoice()) -> list[CancelledPlan]:  # noqa: B008  # frozen
    return cancel_plans(engine, *NAMES, choice, reason="wrong key", now=NOW)


@pytest.mark.parametrize("then", ["the page comes", "the page fails", "the executor dies"])
def test_a_cancelled_window_ends_after_its_page_and_is_begun_anew_when_somebody_asks(engine: Engine, then: str) -> None:
    spec, clock = paged(), Clock()
    source, told = MemorySource(spec.pagination, items_of(35)), list[CancelledPlan]()
    plans = [plan(engine, spec, GRID.window(number), Estimate()).plan_id for number in (0, 1)]

    def trouble(number: int) -> None:
        if number == 2:  # while an executor holds the lease of the first window's task
            told.extend(cancel(engine))
            if then == "the page fails":
                raise ResponseError(ErrorLevel.TRANSIENT, "HTTP_503", "away")
            if then == "the executor dies":
                raise Killed

    source.trouble = trouble
    if then == "the executor dies":
        with pytest.raises(Killed):
            executor(engine, source, clock).drain_plans(plans)
        clock.pass_by(LEASE * 2)
    states = executor(engine, source, clock).drain_plans(plans)
    assert states == dict.fromkeys(plans, PlanStatus.CANCELLED)
    assert [(each.window, each.taken_back, each.stopping) for each in told] == [
        (GRID.window(0), 0, 1),
        (GRID.window(1), 1, 0),
    ]
    assert len(source.requests) == 2, "neither the next page nor the other window was asked for"
    assert len(rows_of(engine, ing_task_run_batch)) == (2 if then == "the page comes" else 1), "what came is kept"
    assert {task.status_code for task in rows_of(engine, ing_task)} == {TaskStatus.CANCELLED}
    assert [task.last_error_msg for task in rows_of(engine, ing_task)] == [SAID, SAID]
    [run] = rows_of(engine, ing_task_run)
    assert run.status_code == (RunStatus.FAILED if then == "the page fails" else RunStatus.CANCELLED)

    found = open_windows(engine, *NAMES)
    assert [(state.window, state.reason) for state in found] == [(GRID.window(0), SAID), (GRID.window(1), SAID)]
    outcome = complete_outcome(Operation.HARVEST, found, None)
    assert not outcome["passed"]
    assert outcome["description"].endswith(
        f"{SAID}. It stays cancelled until somebody materialises it, which begins it anew."
    )
    assert plan_report(engine, plans[0]).unfinished == (f"slice 1: CANCELLED ({SAID})",)
    late = clock() + timedelta(days=1)
    wanted = windows_to_request(spec.window, DAY.start, window_states(engine, *NAMES), late, most=31)
    assert wanted[0] == GRID.window(2), "the planner leaves it alone"
    assert count_cancelled(engine, NOW) == {("made_up", "items", "HARVEST"): 2}

    source.trouble = lambda number: None
    again = plan(engine, spec, DAY, Estimate(), now=clock())
    assert (again.generation, again.continued) == (2, False)
    assert executor(engine, source, clock).drain_plans([again.plan_id]) == {again.plan_id: PlanStatus.COMPLETED}
    assert stored(engine) == listed(source.items)
    assert count_cancelled(engine, NOW) == {("made_up", "items", "HARVEST"): 1}


def test_slices_that_have_no_task_yet_and_windows_that_were_given_up_are_taken_back_too(engine: Engine) -> None:
    source = MemorySource(SPEC.pagination, items_of(30), trouble=refuse)
    first = plan(engine, replace(SPEC, stock_limit=3), DAY, BUSY)
    failed = plan(engine, SPEC, GRID.window(1), Estimate())
    executor(engine, source).drain_plans([failed.plan_id])
    cancelled = cancel(engine, PlanChoice(start=DAY.start, end=GRID.window(1).end))
    assert [each.taken_back for each in cancelled] == [12, 1]
    assert cancel(engine) == [], "a second time there is nothing"
    assert queue_pending_slices(engine, first.plan_id, NOW) == 0, "an executor that looked a moment before"
    states = executor(engine, source).drain_plans([first.plan_id, failed.plan_id])
    assert set(states.values()) == {PlanStatus.CANCELLED}
    assert {piece.status_code for piece in rows_of(engine, ing_plan_slice)} == {
        SliceStatus.READY,
        SliceStatus.CANCELLED,
    }
    assert len(rows_of(engine, ing_task)) == 4
    assert len(source.requests) == 1


def test_executors_that_work_on_a_plan_while_it_is_cancelled_leave_nothing_open(engine: Engine) -> None:
    spec = replace(paged(), max_concurrent_slices=8)
    source = MemorySource(spec.pagination, items_of(600))
    planned = plan(engine, spec, DAY, BUSY)
    cancelled = threading.Event()

    def cancel_at_the_sixth(number: int) -> None:
        if number == 6:
            cancel(engine)
            cancelled.set()
        elif number > 6:
            # later pages are answered when the plan is cancelled, however long that takes on a busy machine
            assert cancelled.wait(PATIENCE_S)

    source.trouble = cancel_at_the_sixth
    states: list[dict[int, PlanStatus]] = []

    def work() -> None:
        states.append(executor(engine, source, threads=2).drain_plans([planned.plan_id]))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert states == [{planned.plan_id: PlanStatus.CANCELLED}] * 2
    assert {task.status_code for task in rows_of(engine, ing_task)} <= {TaskStatus.CANCELLED, TaskStatus.SUCCEEDED}
    assert RunStatus.RUNNING not in {run.status_code for run in rows_of(engine, ing_task_run)}
    assert len(source.requests) < 60, "most pages were not asked for"
    pages = rows_of(engine, ing_task_run_batch)
    assert len(stored(engine)) == sum(page.stats["inserted"] for page in pages), "what came is kept"


@pytest.mark.parametrize("waits_for", ["the rate gate", "the source"])
def test_a_cancelled_window_does_not_wait_for_its_next_page(engine: Engine, waits_for: str) -> None:
    """The next request may go in four minutes, or its answer comes when nobody waits for it any more."""
    names = ("demo_crossref", "works", Operation.HARVEST)
    with running_server(DemoSettings(now=DEMO_NOW)) as url, ThreadPoolExecutor(1) as pool:
        demo = DemoClient(url)
        with opened_harvester(engine, url, {"pagination.page_size": 30}) as harvester:
            if waits_for == "the rate gate":
                slow = {"refill_per_s": 1 / 240, "burst": 1}
                harvester.change = lambda spec: replace(spec, rate=replace(spec.rate, **slow))
            else:
                harvester.change = with_the_longest_timeouts
                demo.make_trouble("hold", skip=1, path="/works")
            harvest = pool.submit(harvester.harvest, "demo_crossref")
            until("the first page is stored", lambda: rows_of(engine, ing_task_run_batch))
            cancel_plans(engine, *names, PlanChoice(), reason="wrong key", now=DEMO_NOW)
            [result] = harvest.result()
        assert not result.is_complete
        assert demo.requests()["total"] <= (1 if waits_for == "the rate gate" else 2)
        demo.control(release=True)
    assert len(rows_of(engine, ing_task_run_batch)) == 1
    assert [task.status_code for task in rows_of(engine, ing_task)] == [TaskStatus.CANCELLED]


def with_the_longest_timeouts(spec: Spec) -> Spec:
    assert spec.search is not None
    longest = round(LONGEST_TIMEOUT_S * 1000)
    http = replace(spec.search.http, read_timeout_ms=longest, total_timeout_ms=longest)
    return replace(spec, search=replace(spec.search, http=http))


def refuse(number: int) -> None:
    raise ResponseError(ErrorLevel.REQUEST, "HTTP_400", "no")


def test_a_cancelled_bucket_waits_for_the_next_one_who_asks(engine: Engine) -> None:
    spec = replace(SPEC, operation=Operation.UPDATE, update_buckets=1)

    def ask(minutes: int) -> None:
        at = NOW + timedelta(minutes=minutes)
        add_signals(engine, "made_up", "items", [str(minutes)], reason=None, requested_by="test", now=at)

    ask(0)
    drafts = [id_slice(spec, 0, ["0"], number=1)]
    plan_bucket(engine, CompiledSpec(spec), 0, drafts, schedule_instance_id=1, trigger=Trigger.SIGNAL, now=NOW)
    [told] = cancel_plans(
        engine, "made_up", "items", Operation.UPDATE, PlanChoice(bucket=0), reason=None, now=NOW + timedelta(minutes=1)
    )
    assert (told.name, told.taken_back) == ("bucket 0", 1)
    assert buckets_with_signals(engine, "made_up", "items", 1) == []
    ask(2)
    assert buckets_with_signals(engine, "made_up", "items", 1) == [0]


def test_the_command_says_what_it_took_back_and_status_where_it_stands(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLATFORM_DB_URL", engine.url.render_as_string(hide_password=False))

    def run(*arguments: str) -> Any:
        return CliRunner().invoke(command, arguments)

    load_text(engine, GOOD.replace("code: demo", "code: made_up"))
    plan(engine, SPEC, DAY, BUSY)
    assert "say which" in run("cancel", "made_up", "items").output
    asked = ("cancel", "made_up", "items", "--from", f"{DAY.start:%F}", "--to", f"{DAY.end:%F}", "--json")
    done = run(*asked)
    assert (done.exit_code, json.loads(done.output)["taken_back"]) == (0, 12)
    again = run(*asked)
    assert isinstance(again.exception, PlatformError), "nothing to cancel is no success"
    assert run("status").output == "made_up/items: cancelled harvest windows: 1; running one again begins it anew\n"
    assert [each["partitions"] for each in json.loads(run("status", "--json").output)["cancelled"]] == [1]
    assert rows_of(engine, ing_plan)[0].status_code == PlanStatus.CANCELLED
