"""A commit whose answer is lost is repeated: an arrival counts once, and an execution begins and ends once."""

from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import Connection, Engine

from platform_defs.arrivals.errors import UnknownModel
from platform_defs.arrivals.executions import lifecycle
from platform_defs.arrivals.executions.task_log import FailureCode, TaskStatus
from platform_defs.arrivals.intake import Arrival, ArrivalOutcome, record_arrival
from platform_defs.arrivals.models import life
from tests.arrivals.world import add_model, logged_tasks, silent
from tests.lost_answers import losing_answer

pytestmark = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)

OP = "20251219"


def report(engine: Engine) -> ArrivalOutcome:
    return record_arrival(engine, Arrival("T", OP))


def begin(engine: Engine) -> lifecycle.Execution:
    task = logged_tasks(engine, "M", OP)[-1]
    return lifecycle.start_queued_execution(engine, ("M", OP), task.work_id, task.run_id, datetime.now(UTC))


def launch(engine: Engine, run_id: str) -> lifecycle.Execution:
    return lifecycle.start_operator_execution(engine, "M", OP, run_id, datetime.now(UTC))


def statuses(engine: Engine) -> list[str]:
    return [task.status for task in logged_tasks(engine, "M", OP)]


def test_an_arrival_is_answered_with_the_task_that_it_queued_and_makes_the_batch_due_once(engine: Engine) -> None:
    add_model(engine, "M", ["T"])
    with losing_answer(engine):
        outcome = report(engine)
    task, *others = logged_tasks(engine, "M", OP)
    assert (others, outcome.queued, outcome.busy) == ([], {"M": task.id}, [])
    assert lifecycle.finish_execution(engine, begin(engine), TaskStatus.SUCCESS, silent) is None


def test_an_execution_that_succeeded_is_closed_once_and_tells_of_the_next_one(engine: Engine) -> None:
    add_model(engine, "M", ["T"])
    told = []

    def notify(connection: Connection, **about: Any) -> int:
        told.append(about["task_id"])
        return 1

    report(engine)
    begun = begin(engine)
    report(engine)
    with losing_answer(engine):
        next_task = lifecycle.finish_execution(engine, begun, TaskStatus.SUCCESS, notify)
    assert (told, statuses(engine)) == ([begun.task_id], ["SUCCESS", "RUNNING"])
    assert next_task == logged_tasks(engine, "M", OP)[-1].id


def test_an_execution_whose_source_was_down_is_tried_again_once(engine: Engine) -> None:
    add_model(engine, "M", ["T"])
    report(engine)
    begun = begin(engine)
    with losing_answer(engine):
        lifecycle.finish_execution(engine, begun, TaskStatus.FAILED, silent, failure_code=FailureCode.SOURCE)
    assert statuses(engine) == ["FAILED", "RUNNING"]


def test_an_operators_execution_starts_in_its_own_run_alone(engine: Engine) -> None:
    add_model(engine, "M", ["T"])
    with losing_answer(engine):
        launched = launch(engine, "run-1")
    assert [task.id for task in logged_tasks(engine, "M", OP)] == [launched.task_id]
    with pytest.raises(lifecycle.AlreadyRunning):
        launch(engine, "run-2")


def test_a_model_is_renamed_and_deleted_once_and_says_what_was_deleted(engine: Engine) -> None:
    add_model(engine, "M", ["T"])
    with losing_answer(engine):
        life.rename(engine, "M", "N")
    with losing_answer(engine):
        assert life.remove(engine, "N", with_values=False).kpis == ("M-amount",)
    with pytest.raises(UnknownModel):
        life.remove(engine, "N", with_values=False)
