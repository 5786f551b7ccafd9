"""What a forked child does: makes its row of work a recorded Dagster run, executes it and writes the result."""

import importlib
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import yaml
from dagster import DagsterEvent, DagsterEventType, DagsterInstance, DagsterRun, DagsterRunStatus
from dagster._core.definitions.reconstruct import ReconstructableJob, ReconstructableRepository
from dagster._core.execution.plan.objects import StepFailureData
from dagster._core.origin import JobPythonOrigin
from dagster._core.remote_origin import GrpcServerCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin
from dagster._core.storage.tags import PARTITION_NAME_TAG
from dagster._grpc.impl import core_execute_run
from dagster._utils.hosted_user_process import recon_job_from_origin
from dagster._utils.interrupts import capture_interrupts

from platform_defs.dagster_instance import LOCATION, MODULE
from platform_defs.runner.kinds_of_work import job_launch
from platform_defs.settings import Settings
from platform_defs.store.engine import open_engine
from platform_defs.work import leases, rows
from platform_defs.work.jobs import WORK_TAG
from platform_defs.work.processes import ProcessId
from platform_defs.work.rows import Status

# what opening an instance and executing a run would otherwise import in every child
PRELOADED = (
    "dagster._core.execution.api",
    "dagster._core.storage.local_compute_log_manager",
    "dagster._core.storage.root",
    "dagster._core.run_coordinator",
    "platform_defs.dagster_storage.embedded",
    "platform_defs.dagster_storage.mysql",
    "platform_defs.runner.launcher",
)
RUNNER_TAG = "platform/runner"
PID_TAG = "platform/pid"
# the exit code of a child that could not close its run: the runner closes both
UNCLOSED = 3
_FINAL = {
    DagsterRunStatus.SUCCESS: Status.SUCCEEDED,
    DagsterRunStatus.CANCELED: Status.CANCELED,
}


def preload() -> None:
    """Called in the fork server: imports and resolves everything that every run would."""
    for module in PRELOADED:
        importlib.import_module(module)
    _repository().get_definition().get_all_jobs()


def main(order: dict[str, Any]) -> int:
    """Exit code 0 means that row and run are closed, whatever became of them."""
    random.seed()
    settings = Settings.load()
    engine = open_engine(settings.database_url, pool_size=2)
    if not leases.mark_started(engine, order["owner"], order["id"], ProcessId.current()):
        return 0  # the lease was lost between claim and fork: whoever has the row now will start it
    with DagsterInstance.get() as instance, capture_interrupts():
        run = _recorded_run(instance, settings, order)
        if run.is_finished:  # somebody ended it while it waited for a slot
            rows.finish(engine, order["id"], _FINAL.get(run.status, Status.FAILED))
            return 0
        instance.add_run_tags(run.run_id, {RUNNER_TAG: order["owner"], PID_TAG: str(os.getpid())})
        if order["notice"]:
            instance.report_engine_event(order["notice"], run)
        found, error = _execute(instance, run)
        closed = instance.get_run_by_id(run.run_id)
        if closed is not None and not closed.is_finished:
            return UNCLOSED
        status = _FINAL.get(closed.status, Status.FAILED) if closed else Status.FAILED
    rows.finish(engine, order["id"], status, result=found, error=error if status is Status.FAILED else None)
    engine.dispose()
    Path(order["log"]).unlink(missing_ok=True)
    return 0


def _recorded_run(instance: DagsterInstance, settings: Settings, order: dict[str, Any]) -> DagsterRun:
    existing = instance.get_run_by_id(order["run_id"])
    if existing is not None:
        return existing
    wanted = job_launch(order["kind"], order["payload"])
    job = _repository().get_reconstructable_job(wanted.job_name)
    partition = {PARTITION_NAME_TAG: wanted.partition_key} if wanted.partition_key else {}
    return instance.create_run_for_job(
        job.get_definition(),
        run_id=order["run_id"],
        run_config=wanted.run_config,
        tags={**wanted.tags, **partition, WORK_TAG: str(order["id"])},
        remote_job_origin=_origin(settings, wanted.job_name),
        job_code_origin=job.get_python_origin(),
    )


def _execute(instance: DagsterInstance, run: DagsterRun) -> tuple[dict[str, Any], str | None]:
    """What the run's assets and ops reported as metadata, and the first error."""
    found: dict[str, Any] = {}
    error: str | None = None
    job: ReconstructableJob = recon_job_from_origin(cast("JobPythonOrigin", run.job_code_origin))
    for event in _events(job, run, instance):
        if name_and_values := _reported(event):
            found.pop(str(event.step_key), None)  # an asset's name says more than its step's
            found.update([name_and_values])
        error = error or _failure(event)
    return found, error


def _events(job: ReconstructableJob, run: DagsterRun, instance: DagsterInstance) -> Iterator[DagsterEvent]:
    try:
        yield from core_execute_run(job, run, instance, inject_env_vars=True)
    except (Exception, KeyboardInterrupt):
        # it has written the failure into the event log before it raised
        return


def _reported(event: DagsterEvent) -> tuple[str, dict[str, Any]] | None:
    if event.event_type is DagsterEventType.ASSET_MATERIALIZATION and event.asset_key:
        metadata, name = event.step_materialization_data.materialization.metadata, "/".join(event.asset_key.path)
    elif event.event_type is DagsterEventType.STEP_OUTPUT and event.step_output_data.metadata:
        metadata, name = event.step_output_data.metadata, str(event.step_key)
    else:
        return None
    return name, {label: value.value for label, value in metadata.items() if _is_plain(value.value)}


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, str | int | float | bool | dict | list)


def _failure(event: DagsterEvent) -> str | None:
    if event.event_type in (DagsterEventType.STEP_FAILURE, DagsterEventType.RUN_FAILURE):
        data = event.event_specific_data
        info = data.error if isinstance(data, StepFailureData) else getattr(data, "error", None)
        # the user's own error stands behind Dagster's wrapping of it
        while info is not None and info.cause is not None:
            info = info.cause
        return info.message.strip() if info is not None else event.message
    return None


def _repository() -> ReconstructableRepository:
    return ReconstructableRepository.for_module(MODULE, "defs")


def _origin(settings: Settings, job_name: str) -> RemoteJobOrigin | None:
    """Where the UI finds the job: the code server of `platform up`; under another supervisor the UI asks by name."""
    path = settings.dagster_home / "workspace.yaml"
    if not path.exists():
        return None
    workspace = yaml.safe_load(path.read_text(encoding="utf-8"))
    server = workspace["load_from"][0]["grpc_server"]
    location = GrpcServerCodeLocationOrigin(server["host"], server["port"], location_name=LOCATION)
    return RemoteJobOrigin(RemoteRepositoryOrigin(location, "__repository__"), job_name)
