"""Dagster's own tables stay bounded: old runs and events go, the last result of every partition stays."""

import gc
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from dagster import (
    AssetCheckEvaluation,
    AssetCheckKey,
    AssetKey,
    AssetMaterialization,
    DagsterInstance,
    DynamicPartitionsDefinition,
    OpExecutionContext,
    RunsFilter,
    job,
    op,
)
from dagster._core.execution.backfill import BulkActionStatus, PartitionBackfill
from dagster._core.storage.event_log.schema import SqlEventLogStorageTable
from dagster._core.storage.partition_status_cache import AssetPartitionStatus
from dagster._core.storage.runs.schema import RunsTable, SnapshotsTable
from dagster._serdes import serialize_value
from sqlalchemy import func, insert, select, update
from sqlalchemy.engine import URL

from assets.upkeep import dagster_retention
from platform_defs import dagster_instance
from platform_defs.dagster_storage import unused_records
from platform_defs.dagster_storage.retention import Pruned, prune
from platform_defs.settings import Settings
from tests.conftest import STORES

KEY, TABLE = AssetKey(["models", "M"]), AssetKey(["tables", "T"])
OP_TIMES = DynamicPartitionsDefinition(name="op_time")
NOW = datetime.now(UTC)
# Dagster tells the processes that copied a run's output to end, and forgets them before they have.
pytestmark = pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")


@op
def materialize(context: OpExecutionContext) -> None:
    if context.run.tags["partition"] == "broken":
        raise RuntimeError("broken")
    context.log_event(AssetMaterialization(KEY, partition=context.run.tags["partition"]))


@job
def model() -> None:
    materialize()


@job
def another() -> None:
    materialize()


@pytest.fixture
def instance(tmp_path: Path, database_url: URL, monkeypatch: pytest.MonkeyPatch) -> Iterator[DagsterInstance]:
    monkeypatch.setenv("PLATFORM_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PLATFORM_DB_URL", database_url.render_as_string(hide_password=False))
    settings = Settings.load()
    dagster_instance.prepare(settings)
    for name, value in dagster_instance.environment(settings).items():
        monkeypatch.setenv(name, value)
    with DagsterInstance.get() as instance:
        yield instance
    gc.collect()  # here, where the warning about Dagster's processes is ignored


def execute(instance: DagsterInstance, partition: str) -> str:
    instance.add_dynamic_partitions("op_time", [partition])
    return model.execute_in_process(instance=instance, tags={"partition": partition}, raise_on_error=False).run_id


def count_events(instance: DagsterInstance) -> int:
    with instance.event_log_storage.index_connection() as connection:  # type: ignore[attr-defined]
        return int(connection.scalar(select(func.count()).select_from(SqlEventLogStorageTable)))


def make_old(instance: DagsterInstance) -> None:
    long_ago = (NOW - timedelta(days=100)).replace(tzinfo=None)
    with instance.run_storage.connect() as connection:  # type: ignore[attr-defined]
        connection.execute(update(RunsTable).values(update_timestamp=long_ago))
    with instance.event_log_storage.index_connection() as connection:  # type: ignore[attr-defined]
        connection.execute(update(SqlEventLogStorageTable).values(timestamp=long_ago))


@pytest.mark.parametrize("database_url", STORES, indirect=True)
def test_old_runs_and_events_go_and_every_partition_keeps_its_last_result(instance: DagsterInstance) -> None:
    first, again, once = execute(instance, "20250101"), execute(instance, "20250101"), execute(instance, "20250102")
    failed = execute(instance, "broken")
    for _ in range(2):
        instance.report_runless_asset_event(AssetMaterialization(TABLE, partition="20250101"))
        instance.report_runless_asset_event(AssetCheckEvaluation(KEY, "on_time", passed=True))
    instance.report_runless_asset_event(AssetMaterialization(TABLE, partition="20250102"))
    make_old(instance)
    recent = execute(instance, "20250103")
    events_of_recent = len(instance.all_logs(recent))
    assert prune(instance, days=0, at=NOW) == Pruned()
    pruned = prune(instance, days=90, at=NOW)
    assert pruned.runs == 4
    assert [run.run_id for run in instance.get_runs()] == [recent]
    # the last results of the model's two old partitions and of the table's two
    assert count_events(instance) == events_of_recent + 4
    statuses = instance.get_status_by_partition(KEY, ["20250101", "20250102", "20250103"], OP_TIMES)
    assert set((statuses or {}).values()) == {AssetPartitionStatus.MATERIALIZED}
    kept = instance.fetch_materializations(KEY, limit=10).records
    assert [record.run_id for record in kept] == [recent, once, again]
    assert instance.get_materialized_partitions(TABLE) == {"20250101", "20250102"}
    assert prune(instance, days=90, at=NOW) == Pruned()
    for run_id in (first, again, once, failed):
        assert instance.get_run_by_id(run_id) is None


def test_of_old_evaluations_of_a_check_the_last_one_stays(instance: DagsterInstance) -> None:
    for passed in (False, False, True):
        instance.report_runless_asset_event(AssetCheckEvaluation(KEY, "on_time", passed=passed))
    assert prune(instance, days=1, at=NOW + timedelta(days=2)).checks == 2
    key = AssetCheckKey(KEY, "on_time")
    [last] = instance.event_log_storage.get_asset_check_execution_history(key, limit=9)
    assert isinstance(last.evaluation, AssetCheckEvaluation)
    assert last.evaluation.passed


def test_the_nightly_job_prunes_by_the_setting_and_ticks_are_left_to_dagster(
    instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = execute(instance, "20250101")
    make_old(instance)
    monkeypatch.setenv("PLATFORM_DAGSTER_RETENTION_DAYS", "200")
    assert dagster_retention.execute_in_process(instance=instance).success
    assert instance.get_run_by_id(old) is not None
    monkeypatch.setenv("PLATFORM_DAGSTER_RETENTION_DAYS", "30")
    assert dagster_retention.execute_in_process(instance=instance).success
    assert instance.get_run_by_id(old) is None
    assert not Path(os.environ["DAGSTER_HOME"], "storage", old).exists()
    retention = dagster_instance.instance_config(Settings.load())["retention"]
    assert retention["sensor"]["purge_after_days"] == {"skipped": 1, "started": 30, "success": 30, "failure": 30}


def snapshots(instance: DagsterInstance) -> set[str]:
    with instance.run_storage.connect() as connection:  # type: ignore[attr-defined]
        return set(connection.scalars(select(SnapshotsTable.c.snapshot_id)))


@pytest.mark.parametrize("database_url", STORES, indirect=True)
def test_snapshots_and_backfills_go_once_no_run_refers_to_them(
    instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(instance, "20250101")
    used = snapshots(instance)
    tags = {"partition": "20250102", "dagster/backfill": "with-run"}
    unused_job = another.execute_in_process(instance=instance, tags=tags).dagster_run.job_snapshot_id
    assert unused_job is not None
    long_ago = (NOW - timedelta(days=100)).timestamp()
    for name, status in (("done", "COMPLETED_SUCCESS"), ("open", "REQUESTED"), ("with-run", "FAILED")):
        backfill = PartitionBackfill(
            name, BulkActionStatus(status), False, tags={"a": name}, backfill_timestamp=long_ago
        )
        instance.add_backfill(backfill)
    assert prune(instance, days=90, at=NOW) == Pruned(backfills=1)
    make_old(instance)
    recent = execute(instance, "20250103")
    assert prune(instance, days=90, at=NOW).snapshots == 0, "they were in use when it began"
    assert {backfill.backfill_id for backfill in instance.get_backfills()} == {"open"}
    assert len(snapshots(instance) - used) == 2, "of the job and of its plan"

    def begin(seconds: float) -> None:
        """A run whose snapshot was found stored just before it was deleted."""
        (missing,) = instance.get_runs(filters=RunsFilter([recent]))
        body = serialize_value(missing._replace(run_id="late", job_snapshot_id=unused_job))
        with instance.run_storage.connect() as connection:  # type: ignore[attr-defined]
            connection.execute(insert(RunsTable).values(run_id="late", run_body=body, status="STARTED"))

    monkeypatch.setattr(unused_records.time, "sleep", begin)
    assert prune(instance, days=90, at=NOW) == Pruned(snapshots=1)
    assert snapshots(instance) == used | {unused_job}
    assert instance.get_job_snapshot(unused_job).name == "another"
    assert another.execute_in_process(instance=instance, tags=tags).success
