"""Releases of stuck executions, by task and by row of work: they end, begin anew, and the log says who did it."""

import logging
import subprocess
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from click.testing import CliRunner, Result
from dagster import DagsterRunStatus
from dagster._core.test_utils import create_run_for_test

from platform_defs.arrivals.executions import lifecycle
from platform_defs.arrivals.intake import Arrival, record_arrival
from platform_defs.cli import cli
from platform_defs.work import leases, rows
from platform_defs.work.processes import ProcessId
from platform_defs.work.rows import EndedBy, Status
from tests.arrivals.conftest import Home
from tests.arrivals.world import add_model, logged_tasks

OP = "20251219"


@pytest.fixture
def process() -> Iterator[ProcessId]:
    """Stands for the process of a run that hangs."""
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as child:
        found = ProcessId.of(child.pid)
        assert found is not None
        yield found
        child.kill()


def platform(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments))


def hang(home: Home, process: ProcessId) -> tuple[int, int]:
    """An execution that began and does not end; returns the ids of its task and of its row of work."""
    add_model(home.engine, "M", ["A"])
    record_arrival(home.engine, Arrival("A", OP))
    [task] = logged_tasks(home.engine, "M", OP)
    create_run_for_test(home.instance, run_id=task.run_id, status=DagsterRunStatus.STARTED)
    leases.claim(home.engine, ProcessId.current().full_name, 1)
    leases.mark_started(home.engine, ProcessId.current().full_name, task.work_id, process)
    lifecycle.start_queued_execution(
        home.engine, ("M", OP), task.work_id, task.run_id, datetime.now(UTC), process=process.full_name
    )
    return task.id, task.work_id


@pytest.mark.parametrize("what", ["task", "row"])
def test_a_released_execution_is_closed_everywhere_and_begins_anew(
    home: Home, process: ProcessId, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    task_id, work_id = hang(home, process)
    with caplog.at_level(logging.WARNING):
        done = (
            platform("models", "release", str(task_id))
            if what == "task"
            else platform("runner", "release", str(work_id))
        )
    assert done.exit_code == 0, done.output
    assert not process.is_alive()
    row = rows.get(home.engine, work_id)
    assert (row.status, row.ended_by) == (Status.CANCELED, EndedBy.RELEASE)
    first, second = logged_tasks(home.engine, "M", OP)
    assert (first.status, first.ended_by, second.status, second.attempt) == ("FAILED", "release", "RUNNING", 1)
    assert first.message.startswith("release: released by ")
    run = home.instance.get_run_by_id(first.run_id)
    assert run is not None
    assert run.status is DagsterRunStatus.CANCELED
    assert any("released by" in record.getMessage() for record in caplog.records)


def test_an_execution_that_an_operator_launched_without_a_row_is_released_too(home: Home, process: ProcessId) -> None:
    add_model(home.engine, "M", ["A"])
    run_id = str(uuid.uuid4())
    create_run_for_test(home.instance, run_id=run_id, status=DagsterRunStatus.STARTED)
    execution = lifecycle.start_operator_execution(
        home.engine, "M", OP, run_id, datetime.now(UTC), process=process.full_name
    )
    assert platform("models", "release", str(execution.task_id)).exit_code == 0
    assert not process.is_alive()
    assert [task.status for task in logged_tasks(home.engine, "M", OP)] == ["FAILED"]
    run = home.instance.get_run_by_id(run_id)
    assert run is not None
    assert run.status is DagsterRunStatus.CANCELED


@pytest.mark.parametrize(("command", "problem"), [("models", "there is no task 99"), ("runner", "there is no work 99")])
def test_what_does_not_exist_or_has_ended_is_one_line(
    home: Home, process: ProcessId, command: str, problem: str
) -> None:
    task_id, work_id = hang(home, process)
    assert problem in str(platform(command, "release", "99").exception)
    platform("models", "release", str(task_id))
    again = platform(command, "release", str(task_id if command == "models" else work_id))
    assert again.exit_code == 1
    assert "there is nothing to release" in str(again.exception)
