"""The Dagster run of a row of work: records it, and what it is going to materialise, before anything executes.

The jobs that execute models are generic: Dagster does not know from them which asset a run materialises. The plan that
is written here lets the UI show the partition as in progress, and as failed if the run fails.
"""

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import yaml
from dagster import AssetKey, DagsterEvent, DagsterInstance, DagsterRun, DagsterRunStatus
from dagster._core.definitions.reconstruct import ReconstructableJob, ReconstructableRepository
from dagster._core.events import AssetMaterializationPlannedData
from dagster._core.execution.api import create_execution_plan
from dagster._core.remote_origin import GrpcServerCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin
from dagster._core.storage.tags import BACKFILL_ID_TAG, PARTITION_NAME_TAG, SCHEDULE_NAME_TAG, SENSOR_NAME_TAG
from sqlalchemy import Engine

from platform_defs.arrivals.kinds_of_work import MODEL_RUN, MODEL_TAG, OP_TIME_TAG
from platform_defs.arrivals.models.catalog import find_period
from platform_defs.arrivals.partitions import MODEL_PREFIX, planned_model
from platform_defs.dagster_instance import FOLDER, LOCATION, MODULE
from platform_defs.runner.kinds_of_work import job_launch
from platform_defs.settings import Settings
from platform_defs.store.engine import read
from platform_defs.work.errors import UnknownKind
from platform_defs.work.jobs import OPERATOR, TRIGGER_TAG, JobLaunch, tag_of
from platform_defs.work.rows import LAUNCHED_RUNS, Work


@dataclass(frozen=True)
class PreparedRun:
    """The run of a row whose job is built for this run alone. Steps that are not listed are shown, but not executed."""

    job: ReconstructableJob
    job_name: str
    tags: Mapping[str, str]
    step_keys: Sequence[str] | None = None
    parent_run_id: str | None = None
    root_run_id: str | None = None


# What the function of JobLaunch.prepared_by is: from instance, database and payload to the run.
PrepareRun: TypeAlias = Callable[[DagsterInstance, Engine, Mapping[str, Any]], PreparedRun]


def record_run(
    instance: DagsterInstance,
    engine: Engine,
    settings: Settings,
    order: Mapping[str, Any],
    launch: JobLaunch,
    process_tags: Mapping[str, str],
) -> DagsterRun:
    """Creates the Dagster run of a row of work, so that the UI shows it. `process_tags` say who executes it."""
    if launch.prepared_by is None:
        repository = ReconstructableRepository.for_module(MODULE, "defs", FOLDER)
        prepared = PreparedRun(repository.get_reconstructable_job(launch.job_name), launch.job_name, {})
    else:
        module, _, function = launch.prepared_by.partition(":")
        prepare: PrepareRun = getattr(importlib.import_module(module), function)
        prepared = prepare(instance, engine, order["payload"])
    definition = prepared.job.get_definition()
    run_config = launch.run_config if launch.prepared_by is None else {}
    plan = None
    if prepared.step_keys is not None:
        plan = create_execution_plan(definition, run_config, step_keys_to_execute=list(prepared.step_keys))
    return instance.create_run_for_job(
        definition,
        execution_plan=plan,
        run_id=order["run_id"],
        run_config=run_config,
        tags={**launch_tags(launch, order["id"]), **prepared.tags, **process_tags},
        parent_run_id=prepared.parent_run_id,
        root_run_id=prepared.root_run_id,
        remote_job_origin=remote_origin(settings, prepared.job_name),
        job_code_origin=prepared.job.get_python_origin(),
    )


def launch_tags(launch: JobLaunch, work_id: int) -> dict[str, str]:
    partition = {PARTITION_NAME_TAG: launch.partition_key} if launch.partition_key else {}
    return {**launch.run_tags(work_id), **partition}


def trigger_of(run: DagsterRun) -> str:
    """Why the run was made, for runs whose launch does not say it: Dagster's own tags tell."""
    if run.parent_run_id is not None:
        return OPERATOR  # re-executed in the UI, with the tags of its parent
    said = tag_of(run.tags, TRIGGER_TAG)
    if said is not None:
        return said
    if BACKFILL_ID_TAG in run.tags:
        return OPERATOR
    for tag, what in ((SENSOR_NAME_TAG, "sensor"), (SCHEDULE_NAME_TAG, "schedule")):
        if tag in run.tags:
            return f"{what} {run.tags[tag]}"
    return OPERATOR


def record_plan(instance: DagsterInstance, engine: Engine, run: DagsterRun) -> None:
    """Adds the partition of a model's batch, and notes in the run that it is going to be materialised."""
    if run.job_name != MODEL_RUN or not {MODEL_TAG, OP_TIME_TAG} <= run.tags.keys():
        return
    model_id, op_time = run.tags[MODEL_TAG], run.tags[OP_TIME_TAG]
    planned = planned_model(model_id, op_time, read(engine, lambda connection: find_period(connection, model_id)))
    if planned.partition is not None:
        instance.add_dynamic_partitions(planned.partitions_name, [planned.partition])
    data = AssetMaterializationPlannedData(AssetKey([MODEL_PREFIX, model_id]), partition=planned.partition)
    event = DagsterEvent.build_asset_materialization_planned_event(run.job_name, "execute_model", data)
    instance.report_dagster_event(event, run.run_id)


def record_unstarted_run(instance: DagsterInstance, engine: Engine, row: Work) -> DagsterRun | None:
    """Records the run of a row that is given up before its process recorded one, so that the UI can show it as failed.

    Returns None if there is no such run: Dagster deletes runs, and a row may be of a kind that this version lacks.
    """
    if row.kind in LAUNCHED_RUNS:
        return None
    try:
        launch = job_launch(row.kind, row.payload)
    except UnknownKind:
        return None
    run = instance.add_run(
        DagsterRun(
            job_name=launch.job_name,
            run_id=row.run_id,
            run_config=launch.run_config,
            tags=launch_tags(launch, row.id),
            status=DagsterRunStatus.NOT_STARTED,
            remote_job_origin=remote_origin(Settings.load(), launch.job_name),
        )
    )
    record_plan(instance, engine, run)
    return run


def remote_origin(settings: Settings, job_name: str) -> RemoteJobOrigin | None:
    """Where the UI finds the job: in the code server of `platform up`. Without one, the UI looks the job up by name."""
    path = settings.dagster_home / "workspace.yaml"
    try:
        changed = path.stat().st_mtime_ns
    except FileNotFoundError:
        return None
    server = _grpc_server(path, changed)
    location = GrpcServerCodeLocationOrigin(server["host"], server["port"], location_name=LOCATION)
    return RemoteJobOrigin(RemoteRepositoryOrigin(location, "__repository__"), job_name)


@lru_cache(maxsize=1)
def _grpc_server(path: Path, changed: int) -> dict[str, Any]:
    """Cached per version of the file, because the YAML parser takes a millisecond."""
    server: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))["load_from"][0]["grpc_server"]
    return server
