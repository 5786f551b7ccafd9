"""Tables and models in Dagster: the definitions built from the database, and what a run leaves there and in Dagster."""

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from dagster import (
    AssetCheckKey,
    AssetKey,
    DagsterEventType,
    Definitions,
    ExecuteInProcessResult,
    ReexecutionOptions,
    execute_job,
    reconstructable,
)
from sqlalchemy import text, update

from assets.arrivals import model_assets
from assets.arrivals.jobs import arrival_report, model_run
from assets.arrivals.names import OP_TIMES, op_of_model, tables_text
from platform_defs.arrivals.executions import lifecycle
from platform_defs.arrivals.intake import Arrival, record_arrival
from platform_defs.arrivals.partitions import partition_of
from platform_defs.errors import PlatformError
from platform_defs.runner.kinds_of_work import job_launch
from platform_defs.store.engine import transact
from platform_defs.store.tables.arrivals import metrics_model
from platform_defs.work import leases
from platform_defs.work.jobs import WORK_TAG
from resources import definitions as resources
from tests.arrivals.conftest import Home
from tests.arrivals.world import add_model, logged_tasks, work_of, write_arrival

# Dagster itself causes this warning if a resource depends on another resource.
pytestmark = pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run:DeprecationWarning")
OP = "20251219"
TABLES = ["DW.A", "DW-A", "DW_A", "订单 表/x", "T_yyyymmdd"]


def load_definitions() -> Definitions:
    return Definitions.merge(model_assets.definitions(), resources())


def launch(home: Home, model_id: str, op_time: str = OP) -> ExecuteInProcessResult:
    """Launches the model's partition as the UI does, in the job of all assets."""
    home.instance.add_dynamic_partitions("op_time", [op_time])
    job = load_definitions().resolve_implicit_global_asset_job_def()
    return job.execute_in_process(
        instance=home.instance,
        partition_key=op_time,
        asset_selection=[AssetKey(["models", model_id])],
        raise_on_error=False,
    )


def execute(home: Home, task: Any) -> ExecuteInProcessResult:
    """Executes the row of work of a task as Dagster does if there is no runner."""
    leases.claim(home.engine, leases.DAGSTER, 1, lease=None)
    row = work_of(home.engine, task)
    wanted = job_launch(row.kind, row.payload)
    return model_run.execute_in_process(
        instance=home.instance,
        run_config=wanted.run_config,
        tags={**wanted.tags, WORK_TAG: str(row.id)},
        raise_on_error=False,
    )


def failure(result: ExecuteInProcessResult) -> str:
    [event] = [event for event in result.all_events if event.event_type is DagsterEventType.STEP_FAILURE]
    return str(event.step_failure_data.user_failure_data.description)  # type: ignore[union-attr]


def test_published_models_and_their_tables_are_assets_of_one_partition_space(home: Home) -> None:
    add_model(home.engine, "a.b", TABLES)
    add_model(home.engine, "a-b", ["DW.A"])
    add_model(home.engine, "NEW", ["UNSEEN"], published=False)
    due = update(metrics_model).where(metrics_model.c.model_id == "a.b").values(due="08:30")
    transact(home.engine, lambda connection: connection.execute(due))
    graph = load_definitions().resolve_asset_graph()
    assert {key.path[-1] for key in graph.get_all_asset_keys() if key.path[0] == "tables"} == set(TABLES)
    assert graph.materializable_asset_keys == {AssetKey(["models", "a.b"]), AssetKey(["models", "a-b"])}
    parents = graph.get(AssetKey(["models", "a.b"])).parent_keys
    assert parents == {AssetKey(["tables", table]) for table in TABLES}
    waits = f"Runs by itself once its tables have arrived: {', '.join(TABLES)}."
    assert (graph.get(AssetKey(["models", "a.b"])).description or "").endswith(waits)
    assert graph.get(AssetKey(["tables", "DW.A"])).description == "A source table. Models that wait for it: a-b, a.b."
    assert {graph.get(key).partitions_def for key in graph.get_all_asset_keys()} == {OP_TIMES}
    assert graph.asset_check_keys == {
        AssetCheckKey(AssetKey(["models", "a.b"]), "on_time"),
        AssetCheckKey(AssetKey(["models", "a.b"]), "executions_succeeded"),
        AssetCheckKey(AssetKey(["models", "a-b"]), "executions_succeeded"),
    }


def test_ops_of_two_models_never_share_a_name() -> None:
    ids = ["a.b", "a-b", "a_b", "a_2e_b", "a__b", "a_b_"]
    assert len({op_of_model(model_id) for model_id in ids}) == len(ids)
    assert all(op_of_model(model_id).replace("_", "").isalnum() for model_id in ids)


@pytest.mark.parametrize("op_time", ["1...2", "a,b", "x" * 65, "", "20251219\n", "批次"])
def test_a_batch_that_cannot_be_a_partition_is_none(op_time: str) -> None:
    assert partition_of(op_time) is None
    assert partition_of("2025-12-19") == "2025-12-19"


def test_without_a_database_there_are_no_models_and_none_comes_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLATFORM_HOME", str(tmp_path / "nothing"))
    assert model_assets.load_published_models().models == []
    assert not (tmp_path / "nothing").exists()


def test_a_database_that_is_behind_or_away_fails_the_load_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLATFORM_HOME", str(tmp_path))
    (tmp_path / "platform.db").touch()
    with pytest.raises(PlatformError, match=r"run `platform db upgrade`"):
        model_assets.definitions()
    monkeypatch.setenv("PLATFORM_DB_URL", "mysql://root@127.0.0.1:1/away")
    with pytest.raises(PlatformError, match=r"the database does not answer: [^\n]+$"):
        model_assets.definitions()


def test_loading_leaves_no_connection_for_a_fork_to_copy(home: Home) -> None:
    add_model(home.engine, "M", ["A"])
    home.engine.dispose()
    assert [model.model_id for model in model_assets.load_published_models().models] == ["M"]
    descriptors = [os.readlink(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd") if _is_open(number)]
    assert not [path for path in descriptors if "platform.db" in path]


def _is_open(number: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{number}")


def test_a_triggered_model_is_a_run_with_its_counts_in_the_models_partition(home: Home) -> None:
    add_model(home.engine, "M-1", ["A"])
    record_arrival(home.engine, Arrival("A", OP))
    [task] = logged_tasks(home.engine, "M-1", OP)
    result = execute(home, task)
    assert result.success
    [ended] = logged_tasks(home.engine, "M-1", OP)
    assert (ended.status, ended.trigger_code, ended.run_id) == ("SUCCESS", "ARRIVAL", result.run_id)
    assert ended.reported_at is not None
    [event] = result.get_asset_materialization_events() or [
        event for event in result.all_events if event.event_type is DagsterEventType.ASSET_MATERIALIZATION
    ]
    assert (event.asset_key, event.partition) == (AssetKey(["models", "M-1"]), OP)
    assert {label: value.value for label, value in event.materialization.metadata.items()} == {
        "computeCount": 2,
        "storageCount": 2,
        "dagster/row_count": 2,
        "missing tables": "none",
        "task": ended.id,
        "task command": f"platform models tasks M-1 --op-time {OP}",
        "task page": f"http://127.0.0.1:8000/api/open/kpi/tasks/{ended.id}",
        "M-1-amount total": 12.0,
    }
    assert home.instance.has_dynamic_partition("op_time", OP)


def test_a_model_that_fails_fails_its_run_with_the_databases_message(home: Home) -> None:
    sql = "SELECT ${dimGroup}, ${kpis} FROM absent WHERE op_time = ${op_time} GROUP BY ${dimGroup}"
    add_model(home.engine, "M", ["A"], sql=sql)
    record_arrival(home.engine, Arrival("A", OP))
    [task] = logged_tasks(home.engine, "M", OP)
    result = execute(home, task)
    [ended] = logged_tasks(home.engine, "M", OP)
    assert not result.success
    assert (ended.status, ended.message) == ("FAILED", "no such table: absent")
    assert failure(result) == "no such table: absent"
    # The row of work is executed a second time, as if its run had been requested twice.
    assert f"work {task.work_id} has no execution to make" in failure(execute(home, task))


def test_a_failed_run_that_is_re_executed_in_the_ui_is_the_operators_launch(home: Home) -> None:
    sql = "SELECT ${dimGroup}, ${kpis} FROM later WHERE op_time = ${op_time} GROUP BY ${dimGroup}"
    add_model(home.engine, "M", ["A"], sql=sql)
    record_arrival(home.engine, Arrival("A", OP))
    failed = execute(home, logged_tasks(home.engine, "M", OP)[0])
    with home.engine.begin() as connection:
        connection.execute(text("CREATE TABLE later AS SELECT * FROM orders"))
    parent = failed.dagster_run
    # The UI re-executes with the configuration and the tags of the parent run, also the tag of its row of work.
    with execute_job(
        reconstructable(model_run),
        home.instance,
        run_config={**parent.run_config, "execution": {"config": {"in_process": {}}}},
        tags=dict(parent.tags),
        reexecution_options=ReexecutionOptions(parent.run_id),
    ) as result:
        assert result.success
        again = result.run_id
    ended = [(task.status, task.trigger_code, task.run_id) for task in logged_tasks(home.engine, "M", OP)]
    assert ended == [("FAILED", "ARRIVAL", failed.run_id), ("SUCCESS", "OPERATOR", again)]
    assert home.instance.get_materialized_partitions(AssetKey(["models", "M"])) == {OP}


@pytest.mark.parametrize("op_time", ["2025-12-19", "2025", "batch"])
def test_a_launch_from_the_launchpad_is_the_operators_and_only_for_a_batch_as_arrivals_are_recorded(
    home: Home, op_time: str
) -> None:
    add_model(home.engine, "M", ["A"])
    result = model_run.execute_in_process(
        instance=home.instance,
        run_config=job_launch("model_run", {"model_id": "M", "op_time": op_time}).run_config,
        raise_on_error=False,
    )
    tasks_made = [(task.status, task.trigger_code) for task in logged_tasks(home.engine, "M", op_time)]
    if op_time == "2025":
        assert tasks_made == [("SUCCESS", "OPERATOR")]
    else:
        assert failure(result).startswith("opTime: ")
        assert failure(launch(home, "M", op_time)) == failure(result)
        assert tasks_made == []


def test_a_launch_in_the_ui_executes_whether_or_not_all_tables_arrived_and_says_so(home: Home) -> None:
    add_model(home.engine, "M.1", ["A", "B"])
    write_arrival(home.engine, "A", OP)
    result = launch(home, "M.1")
    assert result.success
    [task] = logged_tasks(home.engine, "M.1", OP)
    assert (task.status, task.trigger_code, task.missing_tables) == ("SUCCESS", "OPERATOR", ["B"])
    [event] = result.get_asset_materialization_events()
    assert (event.partition, event.materialization.metadata["missing tables"].value) == (OP, "B")
    assert task.reported_at is not None


def test_a_launch_beside_a_running_execution_fails_with_the_seeds_words(home: Home) -> None:
    add_model(home.engine, "M", ["A"])
    lifecycle.start_operator_execution(home.engine, "M", OP, "0" * 36, datetime.now(UTC))
    assert failure(launch(home, "M")) == "任务正在执行中"
    assert [task.status for task in logged_tasks(home.engine, "M", OP)] == ["RUNNING"]


def test_arrivals_become_materialisations_of_the_tables_partition_once(home: Home) -> None:
    add_model(home.engine, "M", ["A", "B_yyyymmdd"])
    for op_time in ("20251218", OP, "no,partition"):
        write_arrival(home.engine, "A", op_time)
    write_arrival(home.engine, f"B_{OP}", OP)
    for expected in (4, 0):
        result = arrival_report.execute_in_process(instance=home.instance)
        [output] = [event for event in result.all_events if event.event_type is DagsterEventType.STEP_OUTPUT]
        assert output.step_output_data.metadata["arrivals"].value == expected
        run = home.instance.get_run_by_id(result.run_id)
        assert run is not None
        assert run.tags.get("platform/tables") == (f"A, B_{OP}" if expected else None)
    assert home.instance.get_materialized_partitions(AssetKey(["tables", "A"])) == {"20251218", OP}
    assert home.instance.get_materialized_partitions(AssetKey(["tables", "B_yyyymmdd"])) == {OP}
    event = home.instance.get_latest_materialization_event(AssetKey(["tables", "B_yyyymmdd"]))
    assert event is not None
    assert event.asset_materialization is not None
    assert event.asset_materialization.metadata["arrived as"].value == f"B_{OP}"
    assert sorted(home.instance.get_dynamic_partitions("op_time")) == ["20251218", OP]


def test_a_run_that_reported_many_tables_names_some_and_how_many_more() -> None:
    assert tables_text({f"T{number:02d}" for number in range(12)}).endswith("T08, T09 and 2 more")


def test_an_arrival_with_a_time_that_nobody_can_read_is_reported_without_it_and_keeps_no_other(home: Home) -> None:
    add_model(home.engine, "M", ["A"])
    written = "INSERT INTO metrics_etl_log (table_name, op_time, arrival_time) VALUES ('A', '20251218', 'yesterday')"
    with home.engine.begin() as connection:
        connection.execute(text(written))
    write_arrival(home.engine, "A", OP)
    assert arrival_report.execute_in_process(instance=home.instance).success
    assert home.instance.get_materialized_partitions(AssetKey(["tables", "A"])) == {"20251218", OP}
    assert arrival_report.execute_in_process(instance=home.instance).success
    assert len(home.instance.fetch_materializations(AssetKey(["tables", "A"]), limit=5).records) == 2


def test_the_check_evaluated_by_hand_names_what_is_late(home: Home) -> None:
    add_model(home.engine, "M", ["A", "B"])
    values = {"due": "00:00", "published_at": datetime(2025, 1, 1, tzinfo=UTC)}
    transact(home.engine, lambda connection: connection.execute(update(metrics_model).values(values)))
    today = f"{datetime.now(UTC):%Y%m%d}"
    write_arrival(home.engine, "A", today)
    job = load_definitions().resolve_implicit_global_asset_job_def()
    key = AssetCheckKey(AssetKey(["models", "M"]), "on_time")
    result = job.get_subset(asset_check_selection={key}, asset_selection=set()).execute_in_process(
        instance=home.instance
    )
    [evaluation] = result.get_asset_check_evaluations()
    assert not evaluation.passed
    assert (evaluation.metadata["opTime"].value, evaluation.metadata["tables"].value) == (today, "B")
