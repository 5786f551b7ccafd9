"""The names that operators, links and run keys rely on: changing one is a decision, not an accident."""

import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from dagster import AssetKey, DagsterInstance, DagsterRunStatus, Definitions

import platform_defs.definitions
from platform_defs.runner.kinds_of_work import KINDS_OF_WORK, job_launch

ASSETS = ["lineage_graph", "selfcheck/database", "selfcheck/graph", "selfcheck/side_by_side"]
JOBS = [
    "arrival_report",
    "arrivals_retention",
    "chain_run",
    "chains_retention",
    "dagster_retention",
    "ingest_drain",
    "lineage_apply",
    "lineage_retention",
    "model_run",
    "selfcheck",
    "webhook_send",
]
SENSORS = ["arrivals", "chains", "ingest_upkeep", "lineage_observations", "lineage_recovery", "work_recovery"]
SCHEDULES = [
    "arrivals_retention_nightly",
    "chains_retention_nightly",
    "dagster_retention_nightly",
    "lineage_retention_nightly",
]
RESOURCES = ["database", "graph", "http", "ingest", "model_execution"]


@pytest.fixture(scope="module")
def defs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Definitions]:
    """Built where no database is: a developer's own models must not count."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("PLATFORM_HOME", str(tmp_path_factory.mktemp("home")))
        yield importlib.reload(platform_defs.definitions).defs


def test_the_names_of_all_definitions_are_as_recorded_here(defs: Definitions) -> None:
    repository = defs.get_repository_def()
    assert sorted(key.to_user_string() for key in repository.assets_defs_by_key) == ASSETS
    assert sorted(job.name for job in repository.get_all_jobs() if not job.name.startswith("__")) == JOBS
    assert sorted(sensor.name for sensor in repository.sensor_defs) == SENSORS
    assert sorted(schedule.name for schedule in repository.schedule_defs) == SCHEDULES
    assert sorted(repository.get_top_level_resources()) == RESOURCES


def test_every_asset_and_job_explains_itself_in_the_ui(defs: Definitions) -> None:
    repository = defs.get_repository_def()
    for name in JOBS:
        assert repository.get_job(name).description
    for name in ASSETS:
        key = AssetKey(name.split("/"))
        assert repository.assets_defs_by_key[key].descriptions_by_key[key]


def test_every_kind_of_work_is_a_job_that_the_recovery_may_launch(defs: Definitions) -> None:
    payload = {"model_id": "M", "op_time": "20251219", "run_id": "R"}
    jobs = {job_launch(kind, payload).job_name for kind in KINDS_OF_WORK}
    assert {job.name for job in defs.get_repository_def().get_sensor_def("work_recovery").jobs} == jobs


def test_a_job_fails_in_one_line_on_a_database_that_is_behind(
    defs: Definitions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLATFORM_HOME", str(tmp_path))
    (tmp_path / "platform.db").touch()
    with DagsterInstance.ephemeral() as instance:
        result = defs.resolve_job_def("selfcheck").execute_in_process(instance=instance, raise_on_error=False)
        run = instance.get_run_by_id(result.run_id)
        assert run is not None
        assert run.status is DagsterRunStatus.FAILURE
        messages = "\n".join(record.message for record in instance.all_logs(result.run_id))
        errors = "\n".join(str(event.event_specific_data) for event in result.all_events)
    assert "run `platform db upgrade`" in messages + errors
