"""Runs that nothing drives go on, are stopped if somebody terminated them, or are given up after many vain tries."""

from datetime import UTC, datetime

import pytest
from sqlalchemy import Connection, Engine, select, update

from platform_defs.chains.runs import operations
from platform_defs.chains.runs.happenings import Parked, RunEnded
from platform_defs.chains.runs.recovery import MOST_IN_VAIN, continue_runs
from platform_defs.chains.states import RunStatus
from platform_defs.store.engine import transact
from platform_defs.store.tables.chains import job_run
from platform_defs.store.tables.work import work
from platform_defs.work.rows import EndedBy, Status
from tests.chains.runs.driving import (
    Driving,
    Script,
    close_drive,
    drive,
    newest_drive,
    next_drive,
    node,
    node_row,
    run_row,
    start_run,
    statuses,
)
from tests.chains.runs.test_driver import waits_for_run, waits_until_stopped
from tests.waiting import PATIENCE_S


def close(engine: Engine, run_id: str, **values: object) -> None:
    close_drive(engine, run_id)
    transact(engine, lambda connection: connection.execute(update(work).values(**values)) if values else None)


def test_a_run_whose_process_died_goes_on_where_it_was(engine: Engine) -> None:
    run_id = start_run(engine, [node("a"), node("b", "a")])
    assert continue_runs(engine) == []
    script = Script(b=waits_until_stopped)
    with Driving(engine, run_id, script):
        assert script.begun["b"].wait(PATIENCE_S)
        close(engine, run_id)
        assert continue_runs(engine) == [run_id]
        assert continue_runs(engine) == []
    next_drive(engine, run_id)
    after = Script()
    assert drive(engine, run_id, after) == RunEnded(RunStatus.SUCCESS)
    assert after.calls == [("b", 2)]


def test_a_run_that_was_terminated_stays_stopped(engine: Engine) -> None:
    run_id = start_run(engine, [node("a"), node("b", "a")])
    close(engine, run_id, cancel_requested_at=datetime.now(UTC), ended_by=EndedBy.OPERATOR)
    assert continue_runs(engine) == [run_id]
    assert run_row(engine, run_id).status == "STOPPED"
    assert statuses(engine, run_id) == {"a": "STOPPED", "b": "SKIPPED"}
    assert continue_runs(engine) == []


def test_a_run_that_was_ended_with_the_platform_goes_on(engine: Engine) -> None:
    run_id = start_run(engine, [node("a")])
    close(engine, run_id, cancel_requested_at=datetime.now(UTC), ended_by=EndedBy.RESTART)
    assert continue_runs(engine) == [run_id]
    assert newest_drive(engine, run_id) == 2


def test_a_stop_that_the_process_did_not_survive_is_completed(engine: Engine) -> None:
    run_id = start_run(engine, [node("a")])
    assert operations.stop_run(engine, run_id, actor="key:1") is RunStatus.STOPPING
    close(engine, run_id)
    assert continue_runs(engine) == [run_id]
    assert run_row(engine, run_id).status == "STOPPED"
    assert node_row(engine, run_id, "a").last_error == "the run was stopped by key:1"


def test_a_run_that_waits_without_a_process_is_left_alone(engine: Engine) -> None:
    sub_run = start_run(engine, [node("x")])
    run_id = start_run(engine, [node("a")])
    assert isinstance(drive(engine, run_id, Script(a=waits_for_run(sub_run))), Parked)
    assert continue_runs(engine) == []


def test_a_run_that_no_process_can_begin_is_given_up_and_can_be_retried(engine: Engine) -> None:
    run_id = start_run(engine, [node("a"), node("b", "a")])
    close(engine, run_id, error="no memory")
    for _ in range(MOST_IN_VAIN):
        assert continue_runs(engine) == [run_id]
        assert run_row(engine, run_id).status == "PENDING"
        close(engine, run_id, error="no memory")
    assert continue_runs(engine) == [run_id]
    run = run_row(engine, run_id)
    assert run.status == "FAILED"
    assert run.error == "5 processes in a row ended before they began a node; the last: no memory"
    assert statuses(engine, run_id) == {"a": "FAILED", "b": "SKIPPED"}
    operations.retry_node(engine, run_id, "a", actor="key:1")
    with engine.connect() as connection:
        assert Status.QUEUED in connection.execute(select(work.c.status)).scalars().all()
    next_drive(engine, run_id)
    assert drive(engine, run_id, Script()) == RunEnded(RunStatus.SUCCESS)


def test_a_run_that_cannot_be_continued_stops_no_other(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    broken = start_run(engine, [node("a")])
    whole = start_run(engine, [node("a")])
    close_drive(engine, broken)
    close_drive(engine, whole)

    def spoil(connection: Connection) -> None:
        values = {"status": RunStatus.STOPPING, "dag_json": {"nodes": "what another program wrote"}}
        connection.execute(update(job_run).where(job_run.c.run_id == broken).values(values))

    transact(engine, spoil)
    assert continue_runs(engine) == [whole]
    assert f"run {broken} cannot be continued" in caplog.text
