"""No batch stays stuck: a runner that is away, a run that is handed over and dies, a process that hangs."""

import os
import signal
from typing import Any

from platform_defs.work import leases, rows
from platform_defs.work.rows import OPEN_STATUSES, Status
from tests.arrivals.world import work_of
from tests.e2e.arrivals_site import OP, Site
from tests.e2e.flaky_source import NAME as FLAKY
from tests.waiting import until

NEXT = "20251220"


def _until_success(site: Site, model: str, op_time: str = OP) -> list[Any]:
    def look() -> list[Any]:
        log = site.log(model, op_time)
        return log if log and log[-1].status == "SUCCESS" else []

    return until(f"{model} to succeed", look)


def test_a_batch_handed_over_while_the_runner_hung_is_executed_and_recovers_from_the_death_of_its_run(
    site: Site,
) -> None:
    site.load({"id": "slow", "tables": ["A"], "expression": site.paced})
    site.pace(600)
    runner = site.platform.up["pids"]["runner"]
    os.kill(runner, signal.SIGSTOP)
    try:
        assert site.post("A", wait=0)["triggeredModels"][0]["status"] == "RUNNING"
        (task,) = site.log("slow")
        until(
            "the row to be handed to Dagster",
            lambda: work_of(site.engine, task).lease_owner == leases.DAGSTER,
        )
    finally:
        os.kill(runner, signal.SIGCONT)
    # in the runner, or cold: that depends on who is first now, Dagster with its launch or the runner with a heartbeat
    pid = site.pid_of_run(site.until_querying("slow").run_id)
    site.pace(0)
    os.kill(pid, signal.SIGKILL)
    log = _until_success(site, "slow")
    assert [task.status for task in log] == ["FAILED", "SUCCESS"]
    # the run that Dagster made belongs to the row for which it was made: there is no second one
    assert [work_of(site.engine, task).run_id for task in log] == [task.run_id for task in log]
    until("no row to stay open", lambda: all(work_of(site.engine, task).status not in OPEN_STATUSES for task in log))


def test_terminate_ends_the_query_at_the_source_and_drops_no_arrival_that_came_meanwhile(site: Site) -> None:
    site.load({"id": "slow", "tables": ["A"], "expression": site.paced})
    site.pace(600)
    site.post("A", wait=0)
    task = site.until_querying("slow")
    assert site.post("A")["triggeredModels"][0]["status"] == "SKIPPED"
    site.pace(0)
    assert site.platform.terminate(task.run_id) == "TerminateRunSuccess"
    log = _until_success(site, "slow")
    assert [(task.status, task.trigger_code, task.attempt) for task in log] == [
        ("FAILED", "ARRIVAL", 1),
        ("SUCCESS", "AGAIN", 1),
    ]
    assert (log[0].ended_by, log[0].message.partition(":")[0]) == ("operator", "operator")
    assert log[-1].versions == {table: at.isoformat() for table, at in site.arrivals().items()}
    assert not site.queries_of(task)


def test_the_query_of_a_run_whose_process_was_killed_ends_at_the_source(site: Site) -> None:
    site.load({"id": "slow", "tables": ["A"], "expression": site.paced})
    site.pace(600)
    site.post("A", wait=0)
    task = site.until_querying("slow")
    pid = site.pid_of_run(task.run_id)
    # unpublished, so that no next execution ends the query of the one before
    site.unpublish("slow")
    os.kill(pid, signal.SIGKILL)
    until("the query to end", lambda: site.log("slow")[0].status == "FAILED" and not site.queries_of(task))
    until("nobody to look for it any more", lambda: site.log("slow")[0].statement_until is None)
    assert site.log("slow")[0].ended_by == "death"


def test_deaths_of_the_runner_with_its_run_are_no_attempts_of_the_model(site: Site) -> None:
    site.load({"id": "slow", "tables": ["A"], "expression": site.paced})
    site.pace(600)
    site.post("A", wait=0)
    task = site.until_querying("slow")
    pid, runner = site.pid_of_run(task.run_id), site.platform.up["pids"]["runner"]
    os.kill(runner, signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)
    site.pace(0)
    log = _until_success(site, "slow")
    assert [(task.status, task.trigger_code, task.attempt, task.crashes) for task in log] == [
        ("FAILED", "ARRIVAL", 1, 0),
        ("SUCCESS", "RECOVERY", 1, 1),
    ]
    assert log[0].ended_by == "host"
    until("the runner to be back", lambda: site.platform.up["pids"]["runner"] not in (0, runner))


def test_a_source_that_is_down_is_tried_again_by_itself_and_at_once_with_the_next_arrival(site: Site) -> None:
    flaky = site.platform.flaky
    assert flaky is not None
    reads = {"reads_exactly": "orders"} if site.engine.dialect.name == "sqlite" else {}
    site.orders(("north", OP, 1.5), ("north", NEXT, 2.5))
    site.load({"id": "remote", "tables": ["A"], "source": FLAKY, **reads})
    flaky.take_away()
    try:
        # whoever waits follows the tries, and is told that the model runs
        assert site.post("A", wait=8)["triggeredModels"][0]["status"] == "RUNNING"
        until("the first try to fail", lambda: len(site.log("remote")) > 1)
        *failed, waiting = site.log("remote")
        assert {(task.status, task.failure_code) for task in failed} == {("FAILED", "SOURCE")}
        assert (waiting.status, waiting.failure_code) == ("RUNNING", None)
        site.post("A", NEXT, wait=0)
        until("the other batch to wait as well", lambda: len(site.log("remote", NEXT)) > 1)
        assert work_of(site.engine, site.log("remote", NEXT)[-1]).not_before is not None
    finally:
        flaky.bring_back()
    answer = site.post("A")["triggeredModels"][0]
    log = _until_success(site, "remote")
    # unless another try had just begun on this machine, the arrival has started it and is answered by it
    assert answer["status"] in ("SUCCESS", "SKIPPED")
    assert [(task.status, task.trigger_code) for task in log][:2] == [("FAILED", "ARRIVAL"), (log[1].status, "RETRY")]
    other = _until_success(site, "remote", NEXT)
    # how often it was tried while the source was away is up to the machine
    assert [task.trigger_code for task in other] == ["ARRIVAL", *["RETRY"] * (len(other) - 1)]
    assert [task.try_number for task in other] == list(range(1, len(other) + 1))


def test_an_arrival_is_answered_while_a_backfill_has_all_slots_that_it_may_have(site: Site) -> None:
    site.load({"id": "quick", "tables": ["A"]})
    launched = [site.platform.hold(600) for _ in range(9)]
    try:
        for run_id in launched[:6]:
            site.platform.until_status(run_id, "STARTED")
        assert site.post("A")["triggeredModels"][0]["status"] == "SUCCESS"
        statuses = [site.platform.row(run_id).status for run_id in launched]
        assert statuses == [Status.RUNNING] * 6 + [Status.QUEUED] * 3
    finally:
        for run_id in reversed(launched):
            site.platform.terminate(run_id, "MARK_AS_CANCELED_IMMEDIATELY")
            rows.request_cancel(site.engine, run_id)
    for run_id in launched:
        site.platform.until_closed(run_id)
