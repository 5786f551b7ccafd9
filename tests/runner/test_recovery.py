"""The recovery sensor: rows that no runner takes become run requests, and are closed when those runs end."""

import selectors
import signal
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from dagster import DagsterInstance, DagsterRun, DagsterRunStatus, RunRequest, SkipReason, build_sensor_context
from dagster._core.storage.tags import GRPC_INFO_TAG, RUN_KEY_TAG, USER_TAG, TagType, get_tag_type
from dagster._core.test_utils import create_run_for_test
from sqlalchemy import Engine, update

from platform_defs import dagster_instance
from platform_defs.runner.metrics import RunnerMetrics
from platform_defs.runner.recorded_runs import trigger_of
from platform_defs.runner.recovery import recover_local_rows
from platform_defs.runner.release import release_row, whoami
from platform_defs.runner.run_processes import RunProcesses
from platform_defs.settings import Settings
from platform_defs.store.engine import open_engine
from platform_defs.store.tables.work import work as table
from platform_defs.upgrade import upgrade_stores
from platform_defs.work import leases, rows, runners
from platform_defs.work.errors import TickFailed, WorkError
from platform_defs.work.jobs import CODE_SERVER_TAG, RUNNER_TAG, WORK_TAG
from platform_defs.work.processes import ProcessId
from platform_defs.work.rows import EndedBy, Status
from sensors.work import work_recovery
from tests.waiting import PATIENCE_S
from tests.work.living import living_runner


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    monkeypatch.setenv("PLATFORM_HOME", str(tmp_path))
    settings = Settings.load()
    upgrade_stores(settings)
    dagster_instance.prepare(settings)
    for name, value in dagster_instance.environment(settings).items():
        monkeypatch.setenv(name, value)
    engine = open_engine(settings.database_url)
    yield engine
    engine.dispose()


@pytest.fixture
def instance(engine: Engine) -> Iterator[DagsterInstance]:
    with DagsterInstance.get() as instance:
        yield instance


def tick(instance: DagsterInstance) -> list[RunRequest | SkipReason]:
    return ticked(instance, "")[0]


def ticked(instance: DagsterInstance, cursor: str) -> tuple[list[RunRequest | SkipReason], str]:
    with build_sensor_context(instance=instance, cursor=cursor) as context:
        return list(work_recovery(context)), context.cursor or ""


def waiting_row(engine: Engine) -> rows.Work:
    row = rows.enqueue(engine, "selfcheck", {})
    with engine.begin() as connection:
        connection.execute(update(table).values(created_at=datetime.now(UTC) - timedelta(minutes=1)))
    return row


def test_a_row_that_nobody_takes_becomes_one_run_request(engine: Engine, instance: DagsterInstance) -> None:
    row = waiting_row(engine)
    [request] = tick(instance)
    assert isinstance(request, RunRequest)
    assert (request.job_name, request.tags[WORK_TAG]) == ("selfcheck", str(row.id))
    assert tick(instance) == []


def test_a_fresh_row_is_left_to_a_runner_that_may_be_about_to_take_it(
    engine: Engine, instance: DagsterInstance
) -> None:
    row = rows.enqueue(engine, "selfcheck", {})
    # still fresh when the sensor looks, however long it takes to look
    with engine.begin() as connection:
        later = datetime.now(UTC) + timedelta(seconds=PATIENCE_S)
        connection.execute(update(table).where(table.c.id == row.id).values(created_at=later))
    assert tick(instance) == []


def test_while_a_runner_is_alive_nothing_is_handed_over(engine: Engine, instance: DagsterInstance) -> None:
    waiting_row(engine)
    living_runner(engine)
    assert [type(answer) for answer in tick(instance)] == [SkipReason]


@pytest.mark.parametrize(
    ("tag", "ended", "expected"),
    [
        (WORK_TAG, DagsterRunStatus.SUCCESS, Status.SUCCEEDED),
        (WORK_TAG, DagsterRunStatus.FAILURE, Status.FAILED),
        # a run of the release before, which the upgrade found at work
        ("platform/work", DagsterRunStatus.SUCCESS, Status.SUCCEEDED),
    ],
)
def test_the_row_is_closed_with_the_run_that_was_made_for_it(
    engine: Engine, instance: DagsterInstance, tag: str, ended: DagsterRunStatus, expected: Status
) -> None:
    row = waiting_row(engine)
    tick(instance)
    run = create_run_for_test(instance, job_name="selfcheck", status=ended, tags={tag: str(row.id)})
    tick(instance)
    closed = rows.get(engine, row.id)
    assert (closed.status, closed.run_id) == (expected, run.run_id)


def test_the_ui_shows_who_asked_for_a_run_and_hides_what_only_the_recovery_reads(
    engine: Engine, instance: DagsterInstance
) -> None:
    waiting_row(engine)
    [request] = tick(instance)
    assert isinstance(request, RunRequest)
    shown = {name: value for name, value in request.tags.items() if get_tag_type(name) is not TagType.HIDDEN}
    assert shown == {USER_TAG: "operator"}


@pytest.mark.parametrize(
    ("tags", "parent", "expected"),
    [
        ({}, None, "operator"),
        ({"user": "arrival of A"}, None, "arrival of A"),
        ({"platform/trigger": "arrival of A"}, None, "arrival of A"),
        ({"user": "arrival of A"}, "another", "operator"),
        ({"dagster/sensor_name": "planner"}, None, "sensor planner"),
        ({"dagster/schedule_name": "nightly"}, None, "schedule nightly"),
        ({"dagster/schedule_name": "nightly", "dagster/backfill": "abc"}, None, "operator"),
    ],
)
def test_a_run_that_dagster_made_says_who_asked_for_it(tags: dict[str, str], parent: str | None, expected: str) -> None:
    run = DagsterRun("job", tags=tags, parent_run_id=parent, root_run_id=parent)
    assert trigger_of(run) == expected


def test_a_row_whose_run_never_came_to_be_waits_again(engine: Engine, instance: DagsterInstance) -> None:
    row = waiting_row(engine)
    tick(instance)
    with engine.begin() as connection:
        connection.execute(update(table).values(heartbeat_at=datetime.now(UTC) - timedelta(hours=1)))
    [again] = tick(instance)
    assert isinstance(again, RunRequest)
    assert again.run_key == f"work-{row.id}-2"


def test_a_row_of_an_unknown_kind_fails_alone(engine: Engine, instance: DagsterInstance) -> None:
    unknown = rows.enqueue(engine, "nonsense", {})
    row = waiting_row(engine)
    [request] = tick(instance)
    assert isinstance(request, RunRequest)
    assert request.tags[WORK_TAG] == str(row.id)
    failed = rows.get(engine, unknown.id)
    assert failed.status is Status.FAILED
    assert "unknown kind of work 'nonsense'" in str(failed.error)


def test_a_run_that_waits_for_a_runner_that_does_not_come_back_ends_and_says_why(
    engine: Engine, instance: DagsterInstance
) -> None:
    run = create_run_for_test(instance, status=DagsterRunStatus.STARTING)
    row = rows.enqueue(engine, rows.DAGSTER_RUN, {}, run_id=run.run_id)
    with engine.begin() as connection:
        connection.execute(update(table).values(created_at=datetime.now(UTC) - timedelta(minutes=1)))
    now = datetime.now(UTC)
    long_ago, lately = ((now - timedelta(seconds=ago)).isoformat() for ago in (600, 5))
    _, cursor = ticked(instance, "")
    for seen in (cursor, f"{lately} {lately}", f"{long_ago} {long_ago}"):  # the last one: nobody looked in between
        ticked(instance, seen)
        assert rows.get(engine, row.id).status is Status.QUEUED
    ticked(instance, f"{long_ago} {lately}")
    assert rows.get(engine, row.id).status is Status.FAILED
    closed = instance.get_run_by_id(run.run_id)
    assert closed is not None
    assert closed.status is DagsterRunStatus.FAILURE
    assert "no runner has come back" in str(rows.get(engine, row.id).error)


def test_a_runner_that_is_alive_again_makes_the_sensor_forget_that_none_was(
    engine: Engine, instance: DagsterInstance
) -> None:
    living_runner(engine)
    assert ticked(instance, "2026-01-01T00:00:00+00:00 2026-01-01T00:00:00+00:00")[1] == ""


def cold_run(engine: Engine, instance: DagsterInstance, server: ProcessId, status: DagsterRunStatus) -> rows.Work:
    """A row whose run a code server executes, because no runner was alive."""
    row = waiting_row(engine)
    tick(instance)
    tags = {WORK_TAG: str(row.id), GRPC_INFO_TAG: "{}", CODE_SERVER_TAG: server.full_name}
    create_run_for_test(instance, job_name="selfcheck", status=status, tags=tags)
    return row


@pytest.mark.parametrize("status", [DagsterRunStatus.STARTING, DagsterRunStatus.STARTED])
def test_a_cold_run_is_closed_with_its_row_when_its_code_server_dies(
    engine: Engine, instance: DagsterInstance, status: DagsterRunStatus
) -> None:
    with subprocess.Popen(["sleep", "60"]) as server:
        process = ProcessId.of(server.pid)
        assert process is not None
        row = cold_run(engine, instance, process, status)
        tick(instance)
        assert rows.get(engine, row.id).status is Status.RUNNING
        server.kill()
    tick(instance)
    tick(instance)
    [run] = instance.get_runs()
    assert run.status is DagsterRunStatus.FAILURE
    closed = rows.get(engine, row.id)
    assert (closed.status, closed.ended_by) == (Status.FAILED, EndedBy.HOST)
    assert any(f"code server {process.pid}" in entry.message for entry in instance.all_logs(run.run_id))


def test_a_row_that_two_runs_were_made_for_is_closed_when_both_have_ended(
    engine: Engine, instance: DagsterInstance
) -> None:
    row = waiting_row(engine)
    tick(instance)
    tags = {WORK_TAG: str(row.id)}
    create_run_for_test(instance, job_name="selfcheck", status=DagsterRunStatus.FAILURE, tags=tags)
    at_work = create_run_for_test(instance, job_name="selfcheck", status=DagsterRunStatus.STARTED, tags=tags)
    tick(instance)
    assert rows.get(engine, row.id).status is Status.RUNNING
    instance.report_run_failed(at_work)
    tick(instance)
    assert rows.get(engine, row.id).status is Status.FAILED


@pytest.mark.parametrize("status", [DagsterRunStatus.NOT_STARTED, DagsterRunStatus.STARTING])
def test_a_run_that_dagster_created_and_never_launched_is_failed_and_its_row_waits_again(
    engine: Engine, instance: DagsterInstance, status: DagsterRunStatus
) -> None:
    row = waiting_row(engine)
    tick(instance)
    run = create_run_for_test(instance, job_name="selfcheck", status=status, tags={WORK_TAG: str(row.id)})
    tick(instance)
    assert rows.get(engine, row.id).status is Status.RUNNING
    with engine.begin() as connection:
        connection.execute(update(table).values(heartbeat_at=datetime.now(UTC) - timedelta(hours=1)))
    [again] = tick(instance)
    assert isinstance(again, RunRequest)
    found = instance.get_run_by_id(run.run_id)
    assert found is not None
    assert found.status is DagsterRunStatus.FAILURE


def test_a_row_that_was_handed_over_again_does_not_wait_for_the_run_of_the_first_time(
    engine: Engine, instance: DagsterInstance
) -> None:
    row = waiting_row(engine)
    [first] = tick(instance)
    assert isinstance(first, RunRequest)
    tags = {WORK_TAG: str(row.id), RUN_KEY_TAG: str(first.run_key)}
    never_started = create_run_for_test(instance, job_name="selfcheck", status=DagsterRunStatus.STARTING, tags=tags)
    # our launcher gave the run to the row, and the runner was gone again
    assert leases.take_back_from_dagster(engine, row.id, never_started.run_id)
    [second] = tick(instance)
    assert isinstance(second, RunRequest)
    tags = {WORK_TAG: str(row.id), RUN_KEY_TAG: str(second.run_key)}
    done = create_run_for_test(instance, job_name="selfcheck", status=DagsterRunStatus.SUCCESS, tags=tags)
    tick(instance)
    tick(instance)
    closed = rows.get(engine, row.id)
    assert (closed.status, closed.run_id) == (Status.SUCCEEDED, done.run_id)
    found = instance.get_run_by_id(never_started.run_id)
    assert found is not None
    assert found.status is DagsterRunStatus.FAILURE


def parked_row(engine: Engine, instance: DagsterInstance, *, is_of_a_later_drive: bool) -> tuple[rows.Work, DagsterRun]:
    """A row that gave its slot back and is due, with the run that its runner, which is gone, had begun."""
    row, runner = rows.enqueue(engine, "selfcheck", {}), "host:1:1"
    assert leases.claim(engine, runner, 1)
    assert leases.mark_started(engine, runner, row.id, ProcessId.current())
    parent = create_run_for_test(instance, job_name="selfcheck").run_id if is_of_a_later_drive else None
    run = create_run_for_test(
        instance,
        job_name="selfcheck",
        run_id=row.run_id,
        status=DagsterRunStatus.STARTED,
        tags={WORK_TAG: str(row.id), RUNNER_TAG: runner},
        parent_run_id=parent,
        root_run_id=parent,
    )
    with engine.begin() as connection:
        assert leases.park(connection, row.id, datetime.now(UTC) - timedelta(minutes=1))
        connection.execute(update(table).values(created_at=datetime.now(UTC) - timedelta(minutes=2)))
    return row, run


@pytest.mark.parametrize("is_of_a_later_drive", [False, True])
@pytest.mark.parametrize(
    ("ended", "expected"),
    [(DagsterRunStatus.SUCCESS, Status.SUCCEEDED), (DagsterRunStatus.FAILURE, Status.FAILED)],
)
def test_a_run_that_waited_while_its_runner_went_away_ends_and_its_row_is_closed_with_the_run_that_goes_on(
    engine: Engine, instance: DagsterInstance, is_of_a_later_drive: bool, ended: DagsterRunStatus, expected: Status
) -> None:
    row, left = parked_row(engine, instance, is_of_a_later_drive=is_of_a_later_drive)
    [request] = tick(instance)
    assert isinstance(request, RunRequest)
    tags = {WORK_TAG: str(row.id), RUN_KEY_TAG: str(request.run_key)}
    goes_on = create_run_for_test(instance, job_name="selfcheck", status=ended, tags=tags)
    tick(instance)
    closed = rows.get(engine, row.id)
    assert (closed.status, closed.run_id) == (expected, goes_on.run_id)
    found = instance.get_run_by_id(left.run_id)
    assert found is not None
    assert found.status is DagsterRunStatus.FAILURE
    assert any("no runner was alive to go on" in entry.message for entry in instance.all_logs(left.run_id))


def test_a_row_that_waited_while_its_runner_went_away_is_asked_for_again_when_dagster_loses_the_request(
    engine: Engine, instance: DagsterInstance
) -> None:
    _, left = parked_row(engine, instance, is_of_a_later_drive=False)
    [first] = tick(instance)
    tick(instance)
    with engine.begin() as connection:
        connection.execute(update(table).values(heartbeat_at=datetime.now(UTC) - timedelta(hours=1)))
    [second] = tick(instance)
    assert isinstance(first, RunRequest)
    assert isinstance(second, RunRequest)
    assert first.run_key != second.run_key
    # a runner that is back by then goes on with the run that it had begun, so that must not have ended
    found = instance.get_run_by_id(left.run_id)
    assert found is not None
    assert found.status is DagsterRunStatus.STARTED


def test_one_row_that_cannot_be_closed_stops_no_other_and_fails_the_tick(
    engine: Engine, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, sound = waiting_row(engine), waiting_row(engine)
    tick(instance)
    for row in (broken, sound):
        tags = {WORK_TAG: str(row.id)}
        create_run_for_test(instance, job_name="selfcheck", status=DagsterRunStatus.SUCCESS, tags=tags)
    finish = rows.finish

    def fail_for_one(engine: Engine, work_id: int, *arguments: Any, **options: Any) -> bool:
        if work_id == broken.id:
            raise RuntimeError("poison")
        return finish(engine, work_id, *arguments, **options)

    monkeypatch.setattr(rows, "finish", fail_for_one)
    with pytest.raises(TickFailed, match="poison"):
        tick(instance)
    assert rows.get(engine, sound.id).status is Status.SUCCEEDED
    monkeypatch.setattr(rows, "finish", finish)
    tick(instance)
    assert rows.get(engine, broken.id).status is Status.SUCCEEDED


def test_rows_that_were_stuck_because_their_run_has_a_row_of_its_own_are_mended(
    engine: Engine, instance: DagsterInstance
) -> None:
    row = waiting_row(engine)
    tick(instance)
    tags = {WORK_TAG: str(row.id)}
    run = create_run_for_test(instance, job_name="selfcheck", status=DagsterRunStatus.FAILURE, tags=tags)
    second = rows.enqueue(engine, rows.DAGSTER_RUN, {}, run_id=run.run_id)
    rows.finish(engine, second.id, Status.FAILED)
    tick(instance)
    assert rows.get(engine, row.id).status is Status.FAILED


def test_a_release_closes_run_and_row_ends_the_process_and_says_who_did_it(
    engine: Engine, instance: DagsterInstance
) -> None:
    run = create_run_for_test(instance, status=DagsterRunStatus.STARTED)
    row = rows.enqueue(engine, rows.DAGSTER_RUN, {}, run_id=run.run_id)
    owner = ProcessId.current().full_name
    leases.claim(engine, owner, 1)
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as child:
        process = ProcessId.of(child.pid)
        assert process is not None
        leases.mark_started(engine, owner, row.id, process)
        release_row(instance, engine, row.id)
        assert child.wait(PATIENCE_S) == -signal.SIGKILL
    closed = rows.get(engine, row.id)
    assert (closed.status, closed.ended_by, closed.error) == (
        Status.CANCELED,
        EndedBy.RELEASE,
        f"released by {whoami()}",
    )
    assert [found.status for found in instance.get_runs()] == [DagsterRunStatus.CANCELED]
    with pytest.raises(WorkError, match="nothing to release"):
        release_row(instance, engine, row.id)


def test_what_a_stopped_runner_has_no_time_to_close_is_closed_by_the_next_one_as_ended_by_the_stop(
    engine: Engine, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    gone = f"{ProcessId.current().full_name}1"
    row = rows.enqueue(engine, "selfcheck", {})
    create_run_for_test(instance, job_name="selfcheck", run_id=row.run_id, status=DagsterRunStatus.STARTED)
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as child, selectors.DefaultSelector() as selector:
        process = ProcessId.of(child.pid)
        assert process is not None
        leases.claim(engine, gone, 1)
        leases.mark_started(engine, gone, row.id, process)
        stopped = RunProcesses(Settings.load(), engine, instance, selector, RunnerMetrics(), owner=gone)
        stopped.adopt(rows.get(engine, row.id), process)
        # as if the database had taken all the time that a stop has
        monkeypatch.setattr(runners, "LEAVE_AFTER_S", 0.0)
        stopped.stop()
        stopped.terminate_all()
        stopped.close_ended()
        stopped.leave()
        child.wait()
        assert f"rows of work {row.id} are closed by the next runner" in caplog.text
        assert rows.get(engine, row.id).status is Status.RUNNING
        me = ProcessId.current().full_name
        recover_local_rows(RunProcesses(Settings.load(), engine, instance, selector, RunnerMetrics(), owner=me))
    closed = rows.get(engine, row.id)
    assert (closed.status, closed.ended_by) == (Status.CANCELED, EndedBy.RESTART)
    run = instance.get_run_by_id(row.run_id)
    assert run is not None
    assert run.status is DagsterRunStatus.CANCELED
