"""No batch stays stuck: a runner that is away, a run that is handed over and dies, a process that hangs."""

import os
import signal
from pathlib import Path
from typing import Any

from sqlalchemy import select, text

from platform_defs.store.engine import read
from platform_defs.store.tables.work import work
from platform_defs.work import leases, rows
from platform_defs.work.rows import OPEN_STATUSES, Status
from tests.arrivals.world import work_of
from tests.e2e.arrivals_site import OP, Site
from tests.e2e.flaky_source import NAME as FLAKY
from tests.waiting import until

NEXT = "20251220"
# processor time that no run needs before its query
BUSY_S = 4.0


def _pid_of_run(site: Site, run_id: str) -> int:
    """The process of a run, whichever row of work it belongs to."""

    def look() -> int | None:
        query = select(work.c.pid).where(work.c.run_id == run_id)
        return read(site.engine, lambda connection: connection.execute(query).scalar_one_or_none())

    return int(until("the run to have a process", look) or 0)


def _until_querying(site: Site, model: str) -> Any:
    """The newest task, once its query is being executed."""
    task = until("the run to begin", lambda: (log := site.log(model)) and log[-1].versions and log[-1])
    if site.engine.dialect.name == "mysql":
        until("the query to run", lambda: _queries_of(site, task))
    else:
        pid = _pid_of_run(site, task.run_id)
        until("the query to use the processor", lambda: _processor_seconds(pid) > BUSY_S)
    return task


def _processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _until_success(site: Site, model: str, op_time: str = OP) -> list[Any]:
    def look() -> list[Any]:
        log = site.log(model, op_time)
        return log if log and log[-1].status == "SUCCESS" else []

    return until(f"{model} to succeed", look)


def _queries_of(site: Site, task: Any) -> list[str]:
    """The statements of a task that the server executes now; on SQLite there are none outside the task's process."""
    if site.engine.dialect.name != "mysql":
        return []
    shown = read(site.engine, lambda connection: connection.execute(text("SHOW FULL PROCESSLIST")).mappings().all())
    return [row["Info"] for row in shown if f"platform task {task.id} run {task.run_id}" in str(row["Info"])]


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
    pid = _pid_of_run(site, _until_querying(site, "slow").run_id)
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
    task = _until_querying(site, "slow")
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
    assert _queries_of(site, task) == []


def test_the_query_of_a_run_whose_process_was_killed_ends_at_the_source(site: Site) -> None:
    site.load({"id": "slow", "tables": ["A"], "expression": site.paced})
    site.pace(600)
    site.post("A", wait=0)
    task = _until_querying(site, "slow")
    pid = _pid_of_run(site, task.run_id)
    # unpublished, so that no next execution ends the query of the one before
    site.unpublish("slow")
    os.kill(pid, signal.SIGKILL)
    until("the query to end", lambda: site.log("slow")[0].status == "FAILED" and not _queries_of(site, task))
    until("nobody to look for it any more", lambda: site.log("slow")[0].statement_until is None)
    assert site.log("slow")[0].ended_by == "death"


def test_deaths_of_the_runner_with_its_run_are_no_attempts_of_the_model(site: Site) -> None:
    site.load({"id": "slow", "tables": ["A"], "expression": site.paced})
    site.pace(600)
    site.post("A", wait=0)
    task = _until_querying(site, "slow")
    pid, runner = _pid_of_run(site, task.run_id), site.platform.up["pids"]["runner"]
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
        until("the first try to fail", lambda: len(site.log("remote")) == 2)
        assert [(task.status, task.failure_code) for task in site.log("remote")] == [
            ("FAILED", "SOURCE"),
            ("RUNNING", None),
        ]
        site.post("A", NEXT, wait=0)
        until("the other batch to wait as well", lambda: len(site.log("remote", NEXT)) == 2)
        assert work_of(site.engine, site.log("remote", NEXT)[-1]).not_before is not None
    finally:
        flaky.bring_back()
    answer = site.post("A", wait=60)["triggeredModels"][0]
    log = _until_success(site, "remote")
    # unless the second try had just begun on this machine, the arrival has started it and is answered by it
    assert answer["status"] in ("SUCCESS", "SKIPPED")
    assert [(task.status, task.trigger_code) for task in log][:2] == [("FAILED", "ARRIVAL"), (log[1].status, "RETRY")]
    other = _until_success(site, "remote", NEXT)
    assert [(task.trigger_code, task.try_number) for task in other] == [("ARRIVAL", 1), ("RETRY", 2)]


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
