"""The warm runner on a running platform: every way in, every way to die, never stale, never more than its slots."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from platform_defs.dagster_storage.embedded import EmbeddedStorage
from platform_defs.store.engine import open_engine
from platform_defs.work import rows, runners
from platform_defs.work.jobs import PID_TAG
from platform_defs.work.processes import ProcessId
from platform_defs.work.rows import Status
from tests import loopback
from tests.e2e.lives import Lives
from tests.e2e.platform_up import PATIENTLY
from tests.e2e.warm import Warm
from tests.waiting import PATIENCE_S, until

SLOTS = 8
# of them for executions that arrivals made due
RESERVED = 2
PARTITIONS = [f"check-{number:02d}-of-20" for number in range(1, 21)]
FINAL = ("SUCCESS", "FAILURE", "CANCELED")


@pytest.fixture(scope="module")
def warm(platform: Warm) -> Warm:
    return platform


def test_a_run_launched_in_the_ui_is_executed_by_the_runner_and_says_so(warm: Warm) -> None:
    run_id = warm.launch("selfcheck")
    assert warm.until_status(run_id, *FINAL)["status"] == "SUCCESS"
    assert warm.runner_of(run_id) == warm.up["pids"]["runner"]
    assert f"in process (pid: {warm.pid_of(run_id)})" in warm.messages(run_id)
    assert warm.pid_of(run_id) not in warm.up["pids"].values()
    assert warm.until_closed(run_id).status is Status.SUCCEEDED


def test_the_ui_shows_who_asked_for_a_run_and_hides_the_tags_of_its_process(warm: Warm) -> None:
    run_id = warm.launch("selfcheck")
    warm.until_status(run_id, *FINAL)
    # those of Dagster itself, such as the code location, are none of ours
    ours = {name: value for name, value in warm.tags(run_id).items() if not name.startswith("dagster/")}
    assert ours == {"user": "operator"}
    found = warm.graphql(
        """query ($filter: RunsFilter!) { runsOrError(filter: $filter) { ... on Runs { results { runId } } } }""",
        filter={"tags": [{"key": PID_TAG, "value": str(warm.pid_of(run_id))}]},
    )["runsOrError"]["results"]
    assert run_id in [run["runId"] for run in found], "whoever knows the hidden tag can ask for it"


def test_the_selfcheck_command_writes_a_row_of_work_whose_run_the_ui_shows(warm: Warm) -> None:
    done = warm.command("selfcheck", "--json", *PATIENTLY)
    assert done.returncode == 0, done.stderr
    run_id = done.stdout.split('"run_id": "')[1].split('"')[0]
    assert warm.row(run_id).kind == "selfcheck"
    assert warm.row(run_id).result["selfcheck/graph"]["store"]
    assert warm.run(run_id)["status"] == "SUCCESS"
    assert warm.runner_of(run_id) == warm.up["pids"]["runner"]


def test_twenty_runs_at_once_all_succeed_and_never_more_than_the_slots_at_a_time(warm: Warm) -> None:
    launched = [warm.hold(0.5) for _ in range(20)]
    runs = [warm.until_status(run_id, *FINAL) for run_id in launched]
    assert {run["status"] for run in runs} == {"SUCCESS"}
    edges = sorted(edge for run in runs for edge in ((run["startTime"], 1), (run["endTime"], -1)))
    height = 0
    for _, change in edges:
        height += change
        assert height <= SLOTS


def test_what_a_run_prints_is_in_its_own_compute_log_and_nowhere_else(warm: Warm) -> None:
    launched = [warm.hold(0.2) for _ in range(4)]
    for run_id in launched:
        warm.until_status(run_id, "SUCCESS")
    for run_id in launched:
        logs = [path for path in (warm.home / "dagster" / "storage").rglob("*.out") if run_id in path.read_text()]
        assert len(logs) == 1
        assert logs[0].read_text().strip() == f"printed by {run_id}"
        assert run_id in str(logs[0])
    assert "printed by" not in warm.log


def test_terminating_ends_a_run_and_its_process_and_its_row(warm: Warm) -> None:
    run_id = warm.hold(600)
    warm.until_status(run_id, "STARTED")
    process = ProcessId.of(warm.pid_of(run_id))
    answer = warm.terminate(run_id)
    assert answer == "TerminateRunSuccess"
    assert warm.until_status(run_id, *FINAL)["status"] == "CANCELED"
    assert warm.until_closed(run_id).status is Status.CANCELED
    assert process is not None
    until("its process to end", lambda: not process.is_alive())


def test_terminating_a_run_that_waits_for_a_slot_ends_it_without_starting_it(warm: Warm) -> None:
    holders = [warm.hold(600) for _ in range(SLOTS - RESERVED)]
    for run_id in holders:
        warm.until_status(run_id, "STARTED")
    waiting = warm.hold(600)
    assert warm.tags(waiting)["user"] == "operator", "the UI calls it manually launched otherwise"
    # Dagster lets a run that has not started only be ended by force
    assert warm.terminate(waiting, "MARK_AS_CANCELED_IMMEDIATELY") == "TerminateRunSuccess"
    assert warm.until_status(waiting, *FINAL)["status"] == "CANCELED"
    for run_id in holders:
        warm.terminate(run_id)
    for run_id in [*holders, waiting]:
        assert warm.until_closed(run_id).status is Status.CANCELED
    assert "STEP_START" not in warm.messages(waiting)
    assert not any(waiting in path.read_text() for path in (warm.home / "dagster" / "storage").rglob("*.out"))


def test_killing_the_process_of_a_run_fails_run_and_row_with_the_signal(warm: Warm) -> None:
    run_id = warm.hold(600)
    warm.until_status(run_id, "STARTED")
    pid = warm.pid_of(run_id)
    os.kill(pid, signal.SIGKILL)
    row = warm.until_closed(run_id)
    assert row.status is Status.FAILED
    assert f"process {pid} was killed by SIGKILL" in str(row.error)
    assert warm.until_status(run_id, *FINAL)["status"] == "FAILURE"
    assert f"process {pid} was killed by SIGKILL" in warm.messages(run_id)


def test_a_runner_that_is_killed_comes_back_and_closes_or_keeps_what_it_had(warm: Warm) -> None:
    short, long, victim = warm.hold(5), warm.hold(600), warm.hold(600)
    for run_id in (short, long, victim):
        # a busy machine may need longer for the launches than the short one takes
        warm.until_status(run_id, "STARTED", "SUCCESS")
    pids = {run_id: warm.pid_of(run_id) for run_id in (short, long, victim)}
    processes = {run_id: ProcessId.of(pid) for run_id, pid in pids.items()}
    old = warm.up["pids"]["runner"]
    os.kill(old, signal.SIGKILL)
    os.kill(pids[victim], signal.SIGKILL)
    until("the supervisor to bring the runner back", lambda: warm.up["pids"]["runner"] not in (old, 0))

    def told_the_truth() -> bool:
        return (
            all(
                warm.row(run_id).status.is_final == (not process.is_alive())
                for run_id, process in processes.items()
                if process is not None
            )
            and warm.row(victim).status.is_final
        )

    until("every row to be closed or truly running", told_the_truth)
    assert "ended while its runner was away" in str(warm.row(victim).error)
    assert warm.until_status(victim, *FINAL)["status"] == "FAILURE"
    assert warm.until_status(warm.launch("two_ops"), *FINAL)["status"] == "SUCCESS"
    assert warm.until_status(short, *FINAL)["status"] == "SUCCESS"
    assert warm.row(long).status is Status.RUNNING
    assert warm.terminate(long) == "TerminateRunSuccess"
    assert warm.until_closed(long).status is Status.CANCELED


def test_while_the_runner_hangs_runs_start_cold_and_what_it_should_do_is_done_once(warm: Warm) -> None:
    """A runner that hangs still holds its socket, as one that is suspended does: nobody may wait for it."""
    hanging = warm.up["pids"]["runner"]
    os.kill(hanging, signal.SIGSTOP)
    try:
        until("its heartbeat to be missed", lambda: not runners.living_runners(warm.engine))
        row = rows.enqueue(warm.engine, "selfcheck", {})
        run_id = warm.launch("two_ops")
        assert warm.until_status(run_id, *FINAL)["status"] == "SUCCESS"
        assert f"`kill -9 {hanging}` ends it" in warm.messages(run_id)
        until("the recovery to have the row done", lambda: rows.get(warm.engine, row.id).status.is_final)
        done = rows.get(warm.engine, row.id)
        assert (done.status, done.attempts) == (Status.SUCCEEDED, 1)
    finally:
        os.kill(hanging, signal.SIGCONT)
    until("the runner to be back", lambda: runners.living_runners(warm.engine))
    run_id = warm.launch("two_ops")
    assert warm.until_status(run_id, *FINAL)["status"] == "SUCCESS"
    assert warm.runner_of(run_id) == hanging
    assert rows.get(warm.engine, row.id).attempts == 1


def test_a_definition_changed_on_disk_and_reloaded_is_what_the_next_run_executes(warm: Warm) -> None:
    probe = warm.tree / "assets" / "probe.py"
    source = probe.read_text()
    try:
        probe.write_text(source.replace('"first"', '"second"'))
        assert warm.reload() == "RepositoryLocation"
        run_id = warm.launch("two_ops")
        warm.until_status(run_id, "SUCCESS")
        assert warm.until_closed(run_id).result["one"] == {"version": "second"}

        probe.write_text("def broken(:\n")
        assert warm.reload() == "PythonError"
        until("the API to say so", lambda: "probe.py" in _load_error(warm))
        row = rows.enqueue(warm.engine, "selfcheck", {})
        assert rows.wait(warm.engine, row.id, PATIENCE_S).status is Status.SUCCEEDED
        assert "does not load" in warm.messages(row.run_id)
        assert "SyntaxError" in warm.messages(row.run_id)
        assert "does not load" in warm.log
    finally:
        probe.write_text(source)
        warm.reload()
    until("the error to be gone", lambda: not _load_error(warm))


def test_a_fork_server_that_is_killed_even_while_it_loads_is_replaced(warm: Warm) -> None:
    runner = warm.up["pids"]["runner"]
    [server] = _children(runner)
    os.kill(server, signal.SIGKILL)
    loading = until("the next one to load", lambda: [pid for pid in _children(runner) if pid != server])
    os.kill(loading[0], signal.SIGKILL)
    row = rows.enqueue(warm.engine, "selfcheck", {})
    assert rows.wait(warm.engine, row.id, PATIENCE_S).status is Status.SUCCEEDED
    assert warm.up["pids"]["runner"] == runner


@pytest.mark.needs("time")
def test_a_run_that_a_stop_of_the_platform_ends_is_canceled_with_that_reason(lives: Lives) -> None:
    engine = open_engine(f"sqlite:///{lives.home}/platform.db")
    row = rows.find_by_run_id(engine, lives.interrupted_run)
    engine.dispose()
    assert row is not None
    assert row.status is Status.CANCELED
    events = EmbeddedStorage(str(lives.home / "dagster" / "instance")).event_log_storage
    assert "The runner was stopped" in str(events.get_logs_for_run(lives.interrupted_run))
    events.dispose()


def test_the_runner_is_seen_in_the_metrics_and_by_its_command(warm: Warm) -> None:
    def missing() -> list[str]:
        """A collector that the machine keeps waiting is left out of an answer."""
        metrics = loopback.get(f"{warm.up['api']}/metrics").text
        names = ("slots", "busy", "queued", "start_seconds_bucket", "finished_total")
        return [name for name in names if f"platform_runner_{name}" not in metrics]

    until("all metrics", lambda: not missing())
    status = warm.command("runner", "status")
    assert status.returncode == 0
    assert f" of {SLOTS} " in status.stdout


def _load_error(warm: Warm) -> str:
    checks: dict[str, Any] = loopback.get(f"{warm.up['api']}/readyz").json()["checks"]
    return "" if checks["runner"] == "ok" else str(checks["runner"])


def _finished_runs(warm: Warm, tag: dict[str, str], count: int) -> list[dict[str, Any]]:
    def look() -> list[dict[str, Any]] | None:
        found: list[dict[str, Any]] = warm.graphql(
            """query ($filter: RunsFilter!) { runsOrError(filter: $filter, limit: 100) { ... on Runs { results {
                 runId status tags { key value } } } } }""",
            filter={"tags": [tag]},
        )["runsOrError"]["results"]
        return found if len([run for run in found if run["status"] in FINAL]) == count else None

    return until("the runs to finish", look) or []


@pytest.fixture(scope="module")
def backfill(warm: Warm) -> str:
    """Asked for before the longest test: the daemon looks for backfills every 30 s, which that test need not wait."""
    launched: str = warm.graphql(
        """mutation ($params: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $params) {
             __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message } } }""",
        params={"assetSelection": [{"path": ["selfcheck", "side_by_side"]}], "partitionNames": PARTITIONS},
    )["launchPartitionBackfill"]["backfillId"]
    return launched


@pytest.mark.needs("time")
@pytest.mark.usefixtures("backfill")
def test_a_hundred_runs_leave_nothing_behind_in_runner_and_fork_server(warm: Warm) -> None:
    """On the servers fewer: what could leak there beside is the driver's, and a leak per run shows in forty as well."""
    count = 100 if warm.engine.dialect.name == "sqlite" else 40
    _selfchecks(warm, 2 * SLOTS)  # what is allocated once is allocated now
    runner = warm.up["pids"]["runner"]
    [server] = [pid for pid in _children(runner) if "fork_server_process" in Path(f"/proc/{pid}/cmdline").read_text()]
    before = {pid: _memory_kib(pid) for pid in (runner, server)}
    files = {pid: len(os.listdir(f"/proc/{pid}/fd")) for pid in (runner, server)}
    _selfchecks(warm, count)
    for pid, memory in before.items():
        assert _memory_kib(pid) < memory * 1.1
        until(f"the files of {pid} to be closed", lambda pid=pid: len(os.listdir(f"/proc/{pid}/fd")) <= files[pid])
    until("the last children to be reaped", lambda: _children(server) == [])
    assert _children(runner) == [server]


@pytest.mark.needs("time")
def test_a_backfill_of_twenty_partitions_goes_through_the_runner(warm: Warm, backfill: str) -> None:
    runs = _finished_runs(warm, {"key": "dagster/backfill", "value": backfill}, len(PARTITIONS))
    assert {run["status"] for run in runs} == {"SUCCESS"}
    tags = [{tag["key"]: tag["value"] for tag in run["tags"]} for run in runs]
    assert sorted(tag["dagster/partition"] for tag in tags) == PARTITIONS
    assert {warm.runner_of(run["runId"]) for run in runs} == {warm.up["pids"]["runner"]}


def _selfchecks(warm: Warm, count: int) -> None:
    written = [rows.enqueue(warm.engine, "selfcheck", {}) for _ in range(count)]
    for row in written:
        assert rows.wait(warm.engine, row.id, PATIENCE_S).status is Status.SUCCEEDED


def _children(pid: int) -> list[int]:
    """Also the dead that nobody reaped."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _memory_kib(pid: int) -> int:
    [line] = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1])


@pytest.mark.needs("time")
def test_with_another_launcher_configured_rows_of_work_become_its_runs(lives: Lives) -> None:
    assert "runner" not in lives.parts_with_another_launcher
    assert lives.handed_over.status is Status.SUCCEEDED
    assert lives.handed_over_status == "SUCCESS"
