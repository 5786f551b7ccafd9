"""What Dagster shows of executions: failed partitions, why a run was made, periods, and the check of failed batches."""

import importlib
from datetime import UTC, datetime, timedelta

import pytest
from dagster import AssetCheckEvaluation, AssetCheckKey, AssetKey, DagsterRunStatus, SkipReason, build_sensor_context
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.execution.api import execute_run
from dagster._core.storage.partition_status_cache import AssetPartitionStatus
from sqlalchemy import func, select, update

import platform_defs.definitions
from assets.arrivals import model_assets
from assets.arrivals.jobs import model_run
from assets.arrivals.names import OP_TIMES, batches_of
from platform_defs.arrivals.intake import Arrival, record_arrival
from platform_defs.arrivals.partitions import partition_of, partitions_by_name
from platform_defs.arrivals.sweep import sweep_arrivals
from platform_defs.runner.closing import close_run_and_row
from platform_defs.runner.kinds_of_work import job_launch
from platform_defs.runner.recorded_runs import record_plan, trigger_of
from platform_defs.store.engine import read, transact
from platform_defs.store.tables.arrivals import metrics_model, metrics_task_log
from platform_defs.store.tables.work import work
from platform_defs.work import rows
from platform_defs.work.jobs import TRIGGER_TAG
from platform_defs.work.rows import EndedBy
from sensors.arrivals import arrivals
from tests.arrivals.conftest import Home
from tests.arrivals.world import add_model, logged_tasks, work_of, write_arrival

pytestmark = pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run:DeprecationWarning")
OP = "20251219"
KEY = AssetKey(["models", "M"])
BROKEN = "SELECT ${dimGroup}, ${kpis} FROM absent WHERE op_time = ${op_time} GROUP BY ${dimGroup}"


def partition_status(home: Home, op_time: str = OP) -> AssetPartitionStatus | None:
    return (home.instance.get_status_by_partition(KEY, [op_time], OP_TIMES) or {}).get(op_time)


def triggers(home: Home, model_id: str = "M") -> list[str]:
    return [job_launch("model_run", work_of(home.engine, task).payload).trigger for task in _tasks(home, model_id)]


def _tasks(home: Home, model_id: str) -> list[object]:
    return [task for op_time in (OP, "20251220") for task in logged_tasks(home.engine, model_id, op_time)]


def execute(home: Home, op_time: str = OP) -> bool:
    """Executes the last task of the batch as the forked process of a run does: the plan first, then the job."""
    task = logged_tasks(home.engine, "M", op_time)[-1]
    launch = job_launch("model_run", work_of(home.engine, task).payload)
    tags = launch.run_tags(task.work_id)
    # in this process: the definitions that the platform loads have such an executor, a job by itself has not
    config = {**launch.run_config, "execution": {"config": {"in_process": {}}}}
    run = home.instance.create_run_for_job(model_run, run_id=task.run_id, run_config=config, tags=tags)
    record_plan(home.instance, home.engine, run)
    return execute_run(InMemoryJob(model_run), run, home.instance).success


def test_a_run_that_was_given_up_before_it_was_recorded_is_a_failed_run_of_a_failed_partition(home: Home) -> None:
    add_model(home.engine, "M", ["A"])
    record_arrival(home.engine, Arrival("A", OP))
    [task] = logged_tasks(home.engine, "M", OP)
    row = rows.get(home.engine, task.work_id)
    assert home.instance.get_run_by_id(row.run_id) is None
    assert close_run_and_row(home.instance, home.engine, row, "process 7 was killed by SIGKILL", by=EndedBy.DEATH)
    run = home.instance.get_run_by_id(row.run_id)
    assert run is not None
    assert (run.status, run.job_name) == (DagsterRunStatus.FAILURE, "model_run")
    assert run.tags[TRIGGER_TAG] == "arrival of A"
    messages = [entry.message for entry in home.instance.all_logs(run.run_id)]
    assert "process 7 was killed by SIGKILL" in messages
    assert partition_status(home) is AssetPartitionStatus.FAILED


def test_a_row_of_a_kind_that_this_version_lacks_is_closed_without_a_run(home: Home) -> None:
    row = rows.enqueue(home.engine, "kind of another version", {})
    assert close_run_and_row(home.instance, home.engine, row, "unknown kind", by=EndedBy.DEATH)
    assert home.instance.get_run_by_id(row.run_id) is None


def test_every_execution_says_why_it_was_made(home: Home) -> None:
    add_model(home.engine, "M", ["A", "B"], published=False)
    write_arrival(home.engine, "A", OP)
    write_arrival(home.engine, "B", OP)
    published = {"state": "1", "published_at": datetime.now(UTC) + timedelta(seconds=1)}
    transact(home.engine, lambda connection: connection.execute(update(metrics_model).values(published)))
    sweep_arrivals(home.engine, timedelta(days=7), datetime.now(UTC))
    assert triggers(home) == ["published"]
    assert execute(home)
    record_arrival(home.engine, Arrival("B", OP))
    assert triggers(home) == ["published", "re-arrival"]
    record_arrival(home.engine, Arrival("B", "20251220"))
    record_arrival(home.engine, Arrival("A", "20251220"))
    assert triggers(home)[-1] == "arrival of A"
    add_model(home.engine, "N", ["C"])
    write_arrival(home.engine, "C", OP, datetime.now(UTC) + timedelta(seconds=2))
    sweep_arrivals(home.engine, timedelta(days=7), datetime.now(UTC))
    assert triggers(home, "N") == ["arrival of C"]


def test_a_run_of_dagster_says_who_launched_it(home: Home) -> None:
    def made_with(**tags: str) -> str:
        names = {name.replace("__", "/"): value for name, value in tags.items()}
        return trigger_of(home.instance.create_run_for_job(model_run, tags=names, run_config=CONFIG))

    assert made_with() == "operator"
    assert made_with(dagster__sensor_name="plan") == "sensor plan"
    assert made_with(dagster__schedule_name="nightly") == "schedule nightly"
    assert made_with(dagster__backfill="abcd", dagster__sensor_name="x") == "operator"
    assert made_with(platform__trigger="recovery") == "recovery"


CONFIG = job_launch("model_run", {"model_id": "M", "op_time": OP}).run_config


def test_a_failed_batch_stays_in_the_check_while_other_batches_succeed(home: Home) -> None:
    add_model(home.engine, "M", ["A"], sql=BROKEN)
    record_arrival(home.engine, Arrival("A", OP))
    assert not execute(home)
    assert partition_status(home) is AssetPartitionStatus.FAILED
    working = {"source_sql": BROKEN.replace("absent", "orders")}
    transact(home.engine, lambda connection: connection.execute(update(metrics_model).values(working)))
    record_arrival(home.engine, Arrival("A", "20251220"))
    assert execute(home, "20251220")
    assert partition_status(home, "20251220") is AssetPartitionStatus.MATERIALIZED
    failed = logged_tasks(home.engine, "M", OP)[0]
    [shown] = tick(home)
    assert not shown.passed
    assert shown.description == f"batch {OP} failed (task {failed.id}): no such table: absent"
    assert "Failed and missing" in str(shown.metadata["what to do"].value)
    record_arrival(home.engine, Arrival("A", OP))
    # Dagster's times have whole seconds: an evaluation in the second of a materialisation is repeated by the next tick
    again = tick(home)
    assert {each.description for each in again} <= {shown.description}, "an execution that is under way changes nothing"
    assert execute(home)
    assert tick(home)[-1].passed
    assert partition_status(home) is AssetPartitionStatus.MATERIALIZED


def tick(home: Home) -> list[AssetCheckEvaluation]:
    """Runs one tick; returns the new evaluations of the check."""
    before = len(_evaluations(home))
    with build_sensor_context(instance=home.instance) as context:
        assert isinstance(arrivals(context), SkipReason)
    return _evaluations(home)[before:]


def _evaluations(home: Home) -> list[AssetCheckEvaluation]:
    key = AssetCheckKey(KEY, "executions_succeeded")
    history = home.instance.event_log_storage.get_asset_check_execution_history(key, limit=50)
    return [record.evaluation for record in reversed(history) if isinstance(record.evaluation, AssetCheckEvaluation)]


def test_a_failure_before_the_lookback_is_not_in_the_check(home: Home) -> None:
    add_model(home.engine, "M", ["A"], sql=BROKEN)
    record_arrival(home.engine, Arrival("A", OP))
    execute(home)
    long_ago = {"start_time": datetime.now(UTC) - timedelta(days=8)}
    transact(home.engine, lambda connection: connection.execute(update(metrics_task_log).values(long_ago)))
    [shown] = tick(home)
    assert shown.passed


def test_a_model_with_a_period_has_those_batches_alone_and_runs_the_others_without_a_partition(home: Home) -> None:
    add_model(home.engine, "M", ["A"])
    home.instance.add_dynamic_partitions("op_time", ["20251101", "202511", "text"])
    monthly = {"period": "month"}
    transact(home.engine, lambda connection: connection.execute(update(metrics_model).values(monthly)))
    [asset] = [each for each in model_assets.definitions().assets or [] if getattr(each, "keys", None) == {KEY}]
    assert asset.partitions_def == batches_of("month")  # type: ignore[union-attr]
    tick(home)
    assert home.instance.get_dynamic_partitions("op_time_month") == ["202511"], "what was known before is listed"
    for op_time in ("202512", OP):
        record_arrival(home.engine, Arrival("A", op_time))
        assert execute(home, op_time)
    assert home.instance.get_dynamic_partitions("op_time_month") == ["202511", "202512"]
    events = home.instance.fetch_materializations(KEY, limit=5).records
    assert [event.partition_key for event in events] == [None, "202512"]


@pytest.mark.parametrize(
    ("op_time", "names"),
    [
        ("2025", {"op_time", "op_time_year"}),
        ("20251219", {"op_time", "op_time_day"}),
        ("20251399", {"op_time"}),
        ("2025121923", {"op_time", "op_time_hour"}),
        ("2025-Q4", {"op_time"}),
        ("a,b", set()),
    ],
)
def test_a_batch_is_listed_with_all_batches_and_with_those_of_its_period(op_time: str, names: set[str]) -> None:
    assert partitions_by_name([op_time]).keys() == names
    assert partition_of(op_time, "month") is None


def test_ticks_without_arrivals_write_no_run_and_no_event(home: Home) -> None:
    sensors = importlib.reload(platform_defs.definitions).defs.get_repository_def().sensor_defs
    assert len(sensors) >= 6
    for _ in range(3):
        for each in sensors:
            with build_sensor_context(instance=home.instance) as context:
                assert each.evaluate_tick(context).run_requests == []
    assert read(home.engine, lambda connection: connection.scalar(select(func.count()).select_from(work))) == 0
    assert home.instance.get_runs_count() == 0
    assert home.instance.all_asset_keys() == []
