"""The sensor of table arrival: unreported arrivals, dead executions, late tables and overdue webhooks."""

import logging
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest
from dagster import (
    AssetCheckEvaluation,
    AssetCheckKey,
    AssetKey,
    AssetMaterialization,
    DagsterEvent,
    DagsterEventType,
    DagsterInstance,
    DagsterRunStatus,
    RunRequest,
    SkipReason,
    build_sensor_context,
)
from dagster._core.definitions.asset_checks.asset_check_evaluation import AssetCheckEvaluationPlanned
from dagster._core.events import StepMaterializationData
from dagster._core.test_utils import create_run_for_test
from sqlalchemy import insert, select, text, update

from assets.arrivals import model_assets, reports
from assets.arrivals.jobs import model_run
from assets.arrivals.names import OP_TIMES
from platform_defs.arrivals.executions import lifecycle
from platform_defs.arrivals.executions.model_run import ExecutionEnvironment, run_for_work
from platform_defs.arrivals.intake import Arrival, record_arrival
from platform_defs.errors import PlatformError
from platform_defs.runner.code_server import CodeServer
from platform_defs.settings import Settings
from platform_defs.sources.named import Sources
from platform_defs.store.engine import read, transact
from platform_defs.store.tables.arrivals import metrics_model, metrics_task_log
from platform_defs.store.tables.webhooks import metrics_webhook_delivery
from platform_defs.store.tables.work import work as work_table
from platform_defs.work import wake
from platform_defs.work.definition_versions import bump, read_digest
from platform_defs.work.jobs import WORK_TAG
from sensors.arrivals import arrivals
from sensors.work import reload_if_behind, work_recovery
from tests.arrivals.conftest import Home
from tests.arrivals.world import add_model, logged_tasks, silent, write_arrival
from tests.waiting import until

# Dagster itself causes this warning if a resource depends on another resource.
pytestmark = pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run:DeprecationWarning")
OP = "20251219"


def tick(home: Home) -> list[AssetCheckEvaluation]:
    """Runs one tick; returns the new evaluations of the check of model M."""
    before = len(evaluations(home))
    with build_sensor_context(instance=home.instance) as context:
        assert isinstance(arrivals(context), SkipReason)
    return evaluations(home)[before:]


def evaluations(home: Home) -> list[AssetCheckEvaluation]:
    key = AssetCheckKey(AssetKey(["models", "M"]), "on_time")
    history = home.instance.event_log_storage.get_asset_check_execution_history(key, limit=50)
    return [record.evaluation for record in reversed(history) if isinstance(record.evaluation, AssetCheckEvaluation)]


def statuses(home: Home) -> list[tuple[str, str]]:
    return [(task.status, task.trigger_code) for task in logged_tasks(home.engine, "M", OP)]


@pytest.fixture
def woken(home: Home) -> Iterator[Callable[[], bool]]:
    """Listens in place of a runner; the function tells whether it was woken since the last call."""
    with wake.open_listener(home.path) as listener:

        def was_woken() -> bool:
            try:
                return bool(listener.recv(16))
            except BlockingIOError:
                return False

        yield was_woken


def test_an_arrival_that_an_etl_job_wrote_runs_its_model_and_shows_as_a_partition(
    home: Home, woken: Callable[[], bool]
) -> None:
    add_model(home.engine, "M", ["A", "B_yyyymmdd"])
    write_arrival(home.engine, "A", OP)
    tick(home)
    assert statuses(home) == []
    assert not woken()
    assert home.instance.get_materialized_partitions(AssetKey(["tables", "A"])) == {OP}
    write_arrival(home.engine, f"B_{OP}", OP)
    tick(home)
    assert statuses(home) == [("RUNNING", "SENSOR")]
    assert woken()
    assert home.instance.get_materialized_partitions(AssetKey(["tables", "B_yyyymmdd"])) == {OP}
    tick(home)
    assert len(statuses(home)) == 1
    assert len(home.instance.fetch_materializations(AssetKey(["tables", "A"]), limit=5).records) == 1


def test_what_came_half_by_request_and_half_with_dashes_is_one_partition_and_one_execution(home: Home) -> None:
    add_model(home.engine, "M", ["A", "B"])
    record_arrival(home.engine, Arrival("A", OP))
    write_arrival(home.engine, "B", "2025-12-19")
    tick(home)
    [task] = logged_tasks(home.engine, "M", OP)
    environment = ExecutionEnvironment(home.engine, Sources(home.engine, {}), timeout_s=60, notify=silent)
    assert run_for_work(environment, "M", OP, task.work_id, task.run_id).counts.computed == 2
    tick(home)
    assert statuses(home) == [("SUCCESS", "SENSOR")]
    assert home.instance.get_materialized_partitions(AssetKey(["tables", "B"])) == {OP}
    assert home.instance.get_dynamic_partitions(str(OP_TIMES.name)) == [OP]


def _launch_and_die(home: Home, status: DagsterRunStatus | None) -> None:
    """Leaves an operator's launch whose process is gone. Its run has this status in Dagster, or was deleted if None."""
    add_model(home.engine, "M", ["A"])
    write_arrival(home.engine, "A", OP)
    run_id = str(uuid.uuid4()) if status is None else create_run_for_test(home.instance, status=status).run_id
    lifecycle.start_operator_execution(home.engine, "M", OP, run_id, datetime.now(UTC))


def test_a_launch_whose_run_failed_without_a_word_is_closed_and_made_again(
    home: Home, woken: Callable[[], bool]
) -> None:
    _launch_and_die(home, DagsterRunStatus.FAILURE)
    tick(home)
    assert statuses(home) == [("FAILED", "OPERATOR"), ("RUNNING", "RECOVERY")]
    assert logged_tasks(home.engine, "M", OP)[0].message == "death: its run is FAILURE"
    assert woken()


def test_a_launch_that_the_operator_ended_is_closed_and_not_made_again(home: Home) -> None:
    _launch_and_die(home, DagsterRunStatus.CANCELED)
    tick(home)
    tick(home)
    assert statuses(home) == [("FAILED", "OPERATOR")]


def test_a_launch_that_goes_on_is_left_alone(home: Home) -> None:
    _launch_and_die(home, DagsterRunStatus.STARTED)
    tick(home)
    assert statuses(home) == [("RUNNING", "OPERATOR")]


def test_a_launch_whose_run_was_deleted_is_given_the_time_that_a_query_may_take(home: Home) -> None:
    _launch_and_die(home, None)
    tick(home)
    assert statuses(home) == [("RUNNING", "OPERATOR")]
    hours_ago = update(metrics_task_log).values(start_time=datetime.now(UTC) - timedelta(hours=1))
    transact(home.engine, lambda connection: connection.execute(hours_ago))
    tick(home)
    assert statuses(home) == [("FAILED", "OPERATOR"), ("RUNNING", "RECOVERY")]


def test_what_is_late_fails_the_check_once_and_passes_when_it_arrived(
    home: Home, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # what another test of this process has found is no longer known
    monkeypatch.setattr(reports, "_found", {})
    caplog.set_level(logging.INFO)
    add_model(home.engine, "M", ["A", "B"])
    values = {"due": "00:00", "published_at": datetime(2025, 1, 1, tzinfo=UTC)}
    transact(home.engine, lambda connection: connection.execute(update(metrics_model).values(values)))
    today = f"{datetime.now(UTC):%Y%m%d}"
    [failed] = tick(home)
    assert (failed.asset_key, failed.check_name, failed.passed) == (AssetKey(["models", "M"]), "on_time", False)
    assert (failed.metadata["opTime"].value, failed.metadata["tables"].value) == (today, "A, B")
    assert "srcTableComplete" in str(failed.metadata["what to do"].value)
    assert tick(home) == []
    write_arrival(home.engine, "A", today)
    [fewer] = tick(home)
    assert (fewer.passed, fewer.metadata["tables"].value) == (False, "B")
    # Dagster shows no result while a run is going to evaluate the check: the same one comes once more, without a line
    planned = AssetCheckEvaluationPlanned(asset_key=AssetKey(["models", "M"]), check_name="on_time")
    kind = DagsterEventType.ASSET_CHECK_EVALUATION_PLANNED.value
    run = create_run_for_test(home.instance)
    home.instance.report_dagster_event(DagsterEvent(kind, run.job_name, event_specific_data=planned), run.run_id)
    assert [evaluation.passed for evaluation in tick(home)] == [False]
    write_arrival(home.engine, "B", today)
    [passed] = tick(home)
    assert passed.passed
    assert tick(home) == []
    # The UI does not show an evaluation that is older than the last materialisation of another run.
    made = StepMaterializationData(AssetMaterialization(AssetKey(["models", "M"])), [])
    kind = DagsterEventType.ASSET_MATERIALIZATION.value
    home.instance.report_dagster_event(DagsterEvent(kind, run.job_name, event_specific_data=made), run.run_id)
    assert [evaluation.passed for evaluation in tick(home)] == [True]
    # Dagster's SQLite storage keeps whole seconds.
    until("the evaluation to be newer than the materialisation", lambda: tick(home) == [])
    said = [record for record in caplog.records if record.name == "assets.arrivals.reports"]
    assert [(record.levelname, record.message.split(",")[0]) for record in said] == [
        ("WARNING", f"model M: batch {today} lacks A"),
        ("WARNING", f"model M: batch {today} lacks B"),
        ("INFO", "model M: all tables that are due have arrived"),
    ]


def test_webhooks_that_nobody_sends_become_work_once_an_interval(home: Home, woken: Callable[[], bool]) -> None:
    at = datetime.now(UTC) - timedelta(minutes=2)
    row = {
        "webhook_id": "msg_1",
        "task_id": 1,
        "group_hash": "0" * 64,
        "model_id": "M",
        "op_time": OP,
        "callback_url": "https://example.org/",
        "subscription_ids": [1],
        "retry_num": 3,
        "body": "{}",
        "event_time": at,
        "status": "PENDING",
        "next_attempt_at": at,
    }
    transact(home.engine, lambda connection: connection.execute(insert(metrics_webhook_delivery).values(row)))
    tick(home)
    assert woken()
    tick(home)
    kinds = read(home.engine, lambda connection: connection.execute(select(work_table.c.kind)).scalars().all())
    # Two ticks may fall into two intervals, each with a row of work of its own.
    assert set(kinds) == {"webhook_send"}
    assert len(kinds) <= 2


def test_without_a_runner_the_row_of_a_model_becomes_a_run_of_dagsters_own_launcher(home: Home) -> None:
    add_model(home.engine, "M", ["A"])
    write_arrival(home.engine, "A", OP)
    tick(home)
    minute_ago = update(work_table).values(created_at=datetime.now(UTC) - timedelta(minutes=1))
    transact(home.engine, lambda connection: connection.execute(minute_ago))
    with build_sensor_context(instance=home.instance) as context:
        [request] = work_recovery(context)
    assert isinstance(request, RunRequest)
    assert (request.job_name, request.tags[WORK_TAG]) == (
        "model_run",
        str(logged_tasks(home.engine, "M", OP)[0].work_id),
    )
    assert request.job_name in {job.name for job in work_recovery.jobs}
    result = model_run.execute_in_process(
        instance=home.instance, run_config=request.run_config, tags=dict(request.tags), raise_on_error=False
    )
    assert result.success
    [task] = logged_tasks(home.engine, "M", OP)
    assert (task.status, task.run_id) == ("SUCCESS", result.run_id)


def test_with_another_launcher_the_sensor_itself_asks_for_a_reload_after_a_model_was_published(home: Home) -> None:
    class Server(CodeServer):
        asked = 0

        def reload(self) -> None:
            self.asked += 1

    server = Server(Settings.load(), home.engine)
    loaded = model_assets.definitions().get_repository_def()

    def look(instance: DagsterInstance) -> None:
        with build_sensor_context(instance=instance, repository_def=loaded) as context:
            reload_if_behind(context, server, read(home.engine, read_digest))

    with DagsterInstance.ephemeral() as other:
        look(other)
        transact(home.engine, lambda connection: bump(connection, "models"))
        look(home.instance)  # whose runner does it
        assert server.asked == 0
        look(other)
        until("the reload", lambda: server.asked == 1)


def test_a_run_that_died_between_its_task_and_its_event_leaves_no_gap_in_the_models_partitions(home: Home) -> None:
    add_model(home.engine, "M", ["A"])
    write_arrival(home.engine, "A", OP)
    tick(home)
    [task] = logged_tasks(home.engine, "M", OP)
    environment = ExecutionEnvironment(home.engine, Sources(home.engine, {}), timeout_s=60, notify=silent)
    run_for_work(environment, "M", OP, task.work_id, task.run_id)
    tick(home)
    key = AssetKey(["models", "M"])
    assert home.instance.get_materialized_partitions(key) == set()  # its run may be about to tell
    minute_ago = update(metrics_task_log).values(end_time=datetime.now(UTC) - timedelta(minutes=1))
    transact(home.engine, lambda connection: connection.execute(minute_ago))
    tick(home)
    tick(home)
    [record] = home.instance.fetch_materializations(key, limit=5).records
    assert record.partition_key == OP
    assert record.asset_materialization is not None
    assert record.asset_materialization.metadata["computeCount"].value == 2


def test_a_part_that_fails_fails_the_tick_after_all_others_were_done(
    home: Home, woken: Callable[[], bool], caplog: pytest.LogCaptureFixture
) -> None:
    add_model(home.engine, "M", ["A"])
    values = {"due": "00:00", "published_at": datetime(2025, 1, 1, tzinfo=UTC)}
    transact(home.engine, lambda connection: connection.execute(update(metrics_model).values(values)))
    write_arrival(home.engine, "A", OP)
    with home.engine.begin() as connection:
        connection.execute(text("ALTER TABLE metrics_model_running RENAME TO away"))
        connection.execute(text("ALTER TABLE metrics_webhook_delivery RENAME TO gone"))
    with pytest.raises(PlatformError, match=r"^could not look for ended runs: .*metrics_model_running \(and 4 more"):
        tick(home)
    assert home.instance.get_materialized_partitions(AssetKey(["tables", "A"])) == {OP}
    assert [evaluation.passed for evaluation in evaluations(home)] == [False]
    said = [record.message for record in caplog.records if record.levelname == "ERROR"]
    assert [line.partition("no such table: ")[2].partition(";")[0] for line in said] == [
        *["metrics_model_running"] * 4,
        "metrics_webhook_delivery",
    ]
    with home.engine.begin() as connection:
        connection.execute(text("ALTER TABLE away RENAME TO metrics_model_running"))
    with pytest.raises(PlatformError, match=r"^could not have webhooks sent: [^(]*metrics_webhook_delivery[^(]*$"):
        tick(home)
    assert statuses(home) == [("RUNNING", "SENSOR")]
    assert woken()
