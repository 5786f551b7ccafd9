"""Arrivals that nobody read are never forgotten, whoever ends an execution, on the real databases without a runner."""

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, update

from platform_defs.arrivals import sweep as arrival_sweep
from platform_defs.arrivals.errors import AlreadyRunning
from platform_defs.arrivals.executions import lifecycle, recovery, source_watch
from platform_defs.arrivals.executions.next_attempt import MAX_CRASHES
from platform_defs.arrivals.executions.task_log import FailureCode, TaskStatus
from platform_defs.arrivals.intake import Arrival, ArrivalOutcome, record_arrival
from platform_defs.arrivals.results.tasks import find_task
from platform_defs.sources.errors import SourceError
from platform_defs.sources.named import Sources
from platform_defs.store.engine import read, transact
from platform_defs.store.tables.arrivals import metrics_task_log
from platform_defs.work import leases, rows
from platform_defs.work.rows import EndedBy, Status
from tests.arrivals.world import add_model, logged_tasks, silent, work_of, write_arrival

OP = "20251219"
LOOKBACK = timedelta(days=7)


def report(engine: Engine) -> ArrivalOutcome:
    return record_arrival(engine, Arrival("A", OP))


def last(engine: Engine) -> Any:
    return logged_tasks(engine, "M", OP)[-1]


def begin(engine: Engine) -> lifecycle.Execution:
    task = last(engine)
    return lifecycle.start_queued_execution(engine, ("M", OP), task.work_id, task.run_id, datetime.now(UTC))


def end(engine: Engine, by: EndedBy) -> dict[tuple[str, str], int]:
    status = Status.FAILED if by in (EndedBy.DEATH, EndedBy.HOST) else Status.CANCELED
    rows.finish(engine, last(engine).work_id, status, error="gone", ended_by=by)
    return recovery.settle_dead_executions(engine, datetime.now(UTC)).queued


def history(engine: Engine) -> list[tuple[str, str, int]]:
    return [(task.status, task.trigger_code, task.attempt) for task in logged_tasks(engine, "M", OP)]


def sweep(engine: Engine) -> dict[tuple[str, str], int]:
    return arrival_sweep.sweep_arrivals(engine, LOOKBACK, datetime.now(UTC))


@pytest.fixture
def due(engine: Engine) -> Engine:
    add_model(engine, "M", ["A"])
    report(engine)
    return engine


def test_after_terminate_an_arrival_that_was_skipped_begins_a_new_execution_at_once(due: Engine) -> None:
    begin(due)
    assert report(due).busy == ["M"]
    assert end(due, EndedBy.OPERATOR)
    assert history(due) == [("FAILED", "ARRIVAL", 1), ("RUNNING", "AGAIN", 1)]
    assert logged_tasks(due, "M", OP)[0].message == "operator: gone"
    assert last(due).inputs[0][2] != logged_tasks(due, "M", OP)[0].inputs[0][2]
    # what the terminated execution itself had read is over
    assert end(due, EndedBy.OPERATOR) == {}
    assert sweep(due) == {}


def test_after_three_deaths_an_arrival_that_was_skipped_begins_anew_as_attempt_one(due: Engine) -> None:
    for _ in range(3):
        begin(due)
        report(due)
        assert end(due, EndedBy.DEATH)
    assert history(due)[-1] == ("RUNNING", "AGAIN", 1)


def test_an_execution_that_died_before_it_read_anything_gives_up_what_made_it_due_and_nothing_else(due: Engine) -> None:
    assert end(due, EndedBy.OPERATOR) == {}
    assert sweep(due) == {}
    assert report(due).queued
    report(due)  # comes before the run has begun
    assert end(due, EndedBy.OPERATOR)


def test_an_unpublished_model_is_held(due: Engine) -> None:
    begin(due)
    report(due)
    add_model(due, "M", ["A"], published=False)
    assert end(due, EndedBy.OPERATOR) == {}
    assert sweep(due) == {}


def test_deaths_of_the_host_wait_longer_each_time_do_not_count_as_attempts_and_end_after_ten(
    due: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    pauses = []
    for _ in range(MAX_CRASHES - 1):
        assert end(due, EndedBy.HOST)
        row = work_of(due, last(due))
        pauses.append(round((row.not_before - last(due).start_time).total_seconds()))
    assert pauses == [5, 10, 20, 40, 80, 160, 320, 600, 600]
    assert {task.attempt for task in logged_tasks(due, "M", OP)} == {1}
    with caplog.at_level(logging.ERROR):
        assert end(due, EndedBy.HOST) == {}
    assert [record.getMessage() for record in caplog.records] == [f"model M is not executed again for {OP}: host: gone"]
    assert (last(due).failure_code, last(due).ended_by) == ("GIVEN_UP", "host")
    assert sweep(due) == {}


def test_a_release_makes_the_batch_due_again_as_if_nobody_had_read_it(due: Engine) -> None:
    begin(due)
    end(due, EndedBy.DEATH)
    begin(due)
    assert end(due, EndedBy.RELEASE)
    assert history(due)[-1] == ("RUNNING", "RECOVERY", 1)


def test_one_execution_that_cannot_be_settled_stops_no_other(due: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    add_model(due, "N", ["B"])
    record_arrival(due, Arrival("B", OP))
    for model_id in ("M", "N"):
        rows.finish(due, logged_tasks(due, model_id, OP)[0].work_id, Status.FAILED, error="gone")
    settle = recovery._settle

    def fail_for_m(connection: Any, dead: recovery.DeadExecution, now: datetime) -> Any:
        if dead.batch[0] == "M":
            raise RuntimeError("broken row")
        return settle(connection, dead, now)

    monkeypatch.setattr(recovery, "_settle", fail_for_m)
    result = recovery.settle_dead_executions(due, datetime.now(UTC))
    assert list(result.queued) == [("N", OP)]
    assert [failure for failure in result.failures if "broken row" in failure and "M for" in failure]


# -- a source that is down -------------------------------------------------------------------------------------------


def fail_for_the_source(engine: Engine, retries: int | None = None) -> int | None:
    return lifecycle.finish_execution(
        engine,
        begin(engine),
        TaskStatus.FAILED,
        silent,
        message="refused",
        failure_code=FailureCode.SOURCE,
        retries=retries,
    )


def test_a_batch_whose_source_is_down_waits_without_a_slot_and_is_tried_five_times(due: Engine) -> None:
    pauses = []
    leases.claim(due, "runner", 8)
    while fail_for_the_source(due) is not None:
        row = work_of(due, last(due))
        assert leases.claim(due, "runner", 8) == []
        pauses.append(round((row.not_before - last(due).start_time).total_seconds()))
        assert history(due)[-1] == ("RUNNING", "RETRY", 1)
    assert pauses == [15, 60, 165, 360]
    assert [(task.status, task.failure_code) for task in logged_tasks(due, "M", OP)] == [("FAILED", "SOURCE")] * 5
    assert sweep(due) == {}


def test_an_arrival_starts_a_waiting_try_at_once_and_is_answered_by_it(due: Engine) -> None:
    waiting = fail_for_the_source(due)
    assert report(due).queued == {"M": waiting}
    assert [row.id for row in leases.claim(due, "runner", 8)][-1] == last(due).work_id


def test_an_execution_that_waits_says_until_when_and_one_without_a_slot_that_it_has_none(due: Engine) -> None:
    def said() -> str | None:
        return read(due, lambda connection: find_task(connection, last(due).id)).message

    assert said() == "waits for a free slot of the runner or of its source"
    fail_for_the_source(due)
    row = work_of(due, last(due))
    assert said() == f"waits until {row.not_before:%F %T} UTC"
    assert rows.find_later(due) == (1, row.not_before)
    leases.claim(due, "runner", 8)
    report(due)
    leases.claim(due, "runner", 8)
    assert (said(), rows.find_later(due)) == (None, None)


def test_a_run_that_closed_its_row_after_terminate_is_told_from_one_that_died(due: Engine) -> None:
    begin(due)
    rows.request_cancel(due, last(due).run_id)
    rows.finish(due, last(due).work_id, Status.CANCELED)
    recovery.settle_dead_executions(due, datetime.now(UTC))
    assert last(due).message == "operator: somebody terminated its run in Dagster"


def test_an_operators_launch_makes_the_waiting_try_at_once_and_nothing_else_makes_it_again(due: Engine) -> None:
    waiting = fail_for_the_source(due)
    row = work_of(due, last(due))
    launched = lifecycle.start_operator_execution(due, "M", OP, "run-of-operator", datetime.now(UTC))
    assert launched.task_id == waiting, "whoever waits for the answer follows it"
    assert (last(due).run_id, last(due).try_number, len(logged_tasks(due, "M", OP))) == ("run-of-operator", 2, 2)
    assert rows.get(due, row.id).status is Status.CANCELED
    assert rows.get(due, row.id).error == "run run-of-operator executes it"
    with pytest.raises(AlreadyRunning):
        lifecycle.start_operator_execution(due, "M", OP, "another-run", datetime.now(UTC))
    assert report(due).busy == ["M"]
    again = lifecycle.finish_execution(due, launched, TaskStatus.SUCCESS, silent)
    assert (last(due).id, last(due).trigger_code) == (again, "AGAIN"), "the arrival that came meanwhile"
    with pytest.raises(AlreadyRunning):
        lifecycle.start_operator_execution(due, "M", OP, "third-run", datetime.now(UTC))


def test_an_arrival_that_an_etl_job_writes_starts_a_waiting_try_at_once(due: Engine) -> None:
    waiting = fail_for_the_source(due)
    assert sweep(due) == {}
    write_arrival(due, "A", OP, datetime.now(UTC) + timedelta(seconds=1))
    assert sweep(due) == {("M", OP): waiting}
    assert work_of(due, last(due)).not_before is None


def test_an_arrival_during_the_failing_try_begins_the_next_one_at_once(due: Engine) -> None:
    execution = begin(due)
    report(due)
    lifecycle.finish_execution(
        due, execution, TaskStatus.FAILED, silent, message="refused", failure_code=FailureCode.SOURCE
    )
    assert history(due)[-1] == ("RUNNING", "AGAIN", 1)
    assert work_of(due, last(due)).not_before is None


class Watched(Sources):
    """Sources of which the test says whether they answer."""

    answers = False
    asked = 0

    def ask(self, name: str) -> None:
        type(self).asked += 1
        if not type(self).answers:
            raise SourceError("refused", is_transient=True)


def test_after_the_last_try_the_batch_is_begun_when_its_source_answers_at_most_every_ten_minutes(due: Engine) -> None:
    watch, now = source_watch.SourceWatch(), datetime.now(UTC)
    sources = Watched(due, {})
    Watched.answers, Watched.asked = False, 0

    def look(at: datetime) -> bool:
        return bool(watch.begin(due, sources, LOOKBACK, at))

    assert not look(now)
    assert fail_for_the_source(due, retries=0) is None
    assert not look(now + timedelta(seconds=1))
    assert not look(now + timedelta(seconds=31))
    assert Watched.asked == 1  # once a minute
    Watched.answers = True
    assert look(now + timedelta(seconds=62))
    assert history(due)[-1] == ("RUNNING", "RETRY", 1)
    assert not look(now + timedelta(minutes=3))
    # it answered, but failed again: no tries of its own, and no further one before ten minutes have passed
    assert fail_for_the_source(due, retries=0) is None
    assert not look(now + timedelta(minutes=6))
    assert look(now + timedelta(minutes=12))
    fail_for_the_source(due, retries=0)
    old = update(metrics_task_log).values(start_time=now - LOOKBACK - timedelta(hours=1))
    transact(due, lambda connection: connection.execute(old))
    assert not look(now + timedelta(minutes=30))
