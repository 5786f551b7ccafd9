"""Where operators see what was terminated, given up or stuck: checks in Dagster, and /metrics."""

import logging
from datetime import UTC, datetime, timedelta

import pytest
from click.testing import CliRunner
from dagster import (
    AssetCheckEvaluation,
    AssetCheckKey,
    AssetKey,
    DagsterRunStatus,
    build_init_resource_context,
    build_sensor_context,
)
from dagster._core.test_utils import create_run_for_test
from sqlalchemy import update

from assets.selfcheck import nothing_stuck
from platform_defs.arrivals.executions import lifecycle
from platform_defs.arrivals.executions.task_log import TaskStatus
from platform_defs.arrivals.intake import Arrival, record_arrival
from platform_defs.cli import cli
from platform_defs.runner.closing import close_run_and_row
from platform_defs.store.engine import transact
from platform_defs.store.tables.work import work
from platform_defs.work import leases, rows
from platform_defs.work.rows import EndedBy
from resources.database import DatabaseResource
from sensors.arrivals import arrivals
from sensors.work import work_recovery
from tests.api.serving import serve_api
from tests.arrivals.conftest import Home
from tests.arrivals.world import add_model, logged_tasks

OP = "20251219"
STUCK = AssetCheckKey(AssetKey(["selfcheck", "work"]), "nothing_stuck")


def shown(home: Home, key: AssetCheckKey) -> tuple[bool, str]:
    """What Dagster shows of the check, after the sensors have ticked."""
    with build_sensor_context(instance=home.instance) as context:
        list(work_recovery(context))
    with build_sensor_context(instance=home.instance) as context:
        arrivals(context)
    record = home.instance.event_log_storage.get_latest_asset_check_execution_by_key([key])[key]
    assert isinstance(record.evaluation, AssetCheckEvaluation)
    return record.evaluation.passed, record.evaluation.description or ""


def begin(home: Home, model_id: str = "M") -> lifecycle.Execution:
    """The newest execution of the batch, begun as the process of its run does."""
    task = logged_tasks(home.engine, model_id, OP)[-1]
    create_run_for_test(home.instance, run_id=task.run_id, status=DagsterRunStatus.STARTED)
    leases.claim(home.engine, "runner", 1, only=["model_run"])
    return lifecycle.start_queued_execution(home.engine, (model_id, OP), task.work_id, task.run_id, datetime.now(UTC))


def nobody(*arguments: object, **named: object) -> int:
    return 0


def metrics(home: Home) -> list[str]:
    with serve_api(home.engine) as api:
        return [line for line in api.client.get("/metrics").text.splitlines() if "given_up{" in line]


def test_a_terminated_run_is_named_by_the_check_and_counted_until_its_batch_succeeds(
    home: Home, caplog: pytest.LogCaptureFixture
) -> None:
    add_model(home.engine, "M", ["A"])
    record_arrival(home.engine, Arrival("A", OP))
    terminated = begin(home)
    row = rows.get(home.engine, logged_tasks(home.engine, "M", OP)[0].work_id)
    rows.request_cancel(home.engine, row.run_id)
    close_run_and_row(home.instance, home.engine, row, "terminated", by=EndedBy.OPERATOR, canceled=True)
    key = AssetCheckKey(AssetKey(["models", "M"]), "executions_succeeded")
    with caplog.at_level(logging.ERROR):
        passed, said = shown(home, key)
    assert not passed
    assert said.startswith(f"batch {OP} failed (task {terminated.task_id}): operator: ")
    assert f"model M is not executed again for {OP}: operator: terminated" in caplog.text
    assert metrics(home) == ['platform_arrivals_given_up{model="M"} 1.0']
    record_arrival(home.engine, Arrival("A", OP))
    assert metrics(home) == [], "it is under way again"
    lifecycle.finish_execution(home.engine, begin(home), TaskStatus.SUCCESS, nobody)
    assert shown(home, key) == (True, "the last execution of every recent batch succeeded")


def test_what_is_stuck_is_a_failing_check_that_names_it_and_passes_once_it_is_released(home: Home) -> None:
    assert shown(home, STUCK) == (True, "ok")
    add_model(home.engine, "M", ["A"])
    record_arrival(home.engine, Arrival("A", OP))
    begin(home)
    task = logged_tasks(home.engine, "M", OP)[-1]
    # a runner of another machine claimed it and renews its lease, but no process began
    long_ago = datetime.now(UTC) - timedelta(minutes=9)
    claimed = {"lease_owner": "elsewhere:1:2", "claimed_at": long_ago, "created_at": long_ago}
    lost = update(work).where(work.c.id == task.work_id).values(claimed)
    transact(home.engine, lambda connection: connection.execute(lost))
    passed, said = shown(home, STUCK)
    assert not passed
    assert said.startswith(f"1 stuck: row of work {task.work_id} (model_run) has no process")
    with DatabaseResource().yield_for_execution(build_init_resource_context()) as database:
        checked = nothing_stuck(database)
    assert (checked.passed, checked.description) == (False, said), "an operator who evaluates it sees the same"
    freed = CliRunner().invoke(cli, ["runner", "release", str(task.work_id)])
    assert freed.exit_code == 0, freed.output
    assert shown(home, STUCK) == (True, "ok")
