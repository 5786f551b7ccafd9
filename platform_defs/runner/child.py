"""The forked process of one run: creates the Dagster run of a row of work, executes it and writes the result."""

import importlib
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from dagster import DagsterEvent, DagsterEventType, DagsterInstance, DagsterRun, DagsterRunStatus
from dagster._core.definitions.reconstruct import ReconstructableJob, ReconstructableRepository
from dagster._core.execution.plan.objects import StepFailureData
from dagster._core.origin import JobPythonOrigin
from dagster._core.storage.event_log.sql_event_log import SqlEventLogStorage
from dagster._core.storage.runs.sql_run_storage import SqlRunStorage
from dagster._grpc.impl import core_execute_run
from dagster._utils.hosted_user_process import recon_job_from_origin
from dagster._utils.interrupts import capture_interrupts

from platform_defs.dagster_instance import FOLDER, MODULE
from platform_defs.dagster_storage import engines
from platform_defs.runner import parking
from platform_defs.runner.closing import WORK_STATUS
from platform_defs.runner.kinds_of_work import job_launch
from platform_defs.runner.recorded_runs import record_plan, record_run, trigger_of
from platform_defs.settings import Settings
from platform_defs.store import migrate
from platform_defs.store.engine import open_engine
from platform_defs.work import leases, rows
from platform_defs.work.definition_versions import leave_out_shown
from platform_defs.work.jobs import PID_TAG, RUNNER_TAG, TRIGGER_TAG
from platform_defs.work.processes import ProcessId
from platform_defs.work.rows import EndedBy, Status

# Modules that every forked process would otherwise import when it opens the instance and executes its run.
PRELOADED = (
    "_strptime",
    "dagster._core.execution.api",
    "dagster._core.execution.plan.active",
    "dagster._core.executor.in_process",
    "dagster._core.instance.factory",
    "dagster._core.instance.runs.run_domain",
    "dagster._core.secrets.env_file",
    "dagster._core.system_config.composite_descent",
    "fsspec.implementations.local",
    "sqlglot.dialects.mysql",
    "sqlglot.dialects.postgres",
    "sqlglot.dialects.sqlite",
    "upath.implementations.local",
    "dagster._core.storage.local_compute_log_manager",
    "dagster._core.storage.root",
    "dagster._core.run_coordinator",
    "platform_defs.dagster_storage.embedded",
    "platform_defs.dagster_storage.mysql",
    "platform_defs.runner.launcher",
)
# Exit code of a process that could not close its run: the runner then closes run and row.
UNCLOSED = 3


def preload() -> None:
    """Called in the fork server: imports the modules and builds the jobs that every run needs."""
    leave_out_shown()
    for module in PRELOADED:
        importlib.import_module(module)
    for job in _repository().get_definition().get_all_jobs():
        job.get_job_snapshot_id()
    migrate.known_revisions()
    _open_instance()


_instance: DagsterInstance | None = None


def _open_instance() -> None:
    """Opens the instance for all forked processes. They inherit what it has read, but none of its connections."""
    global _instance
    _instance = DagsterInstance.get()
    nobody = "00000000-0000-0000-0000-000000000000"
    _instance.get_run_by_id(nobody)
    _instance.get_dynamic_partitions(nobody)
    runs, events = _instance.run_storage, _instance.event_log_storage
    if isinstance(runs, SqlRunStorage) and isinstance(events, SqlEventLogStorage):
        runs.has_run_stats_index_cols()
        events.has_asset_key_index_cols()
        events.has_table("dynamic_partitions")
    engines.close_connections()


def main(order: dict[str, Any]) -> int:
    """Returns the exit code. 0 means that row and run are closed, whether or not the run succeeded."""
    random.seed()
    settings = Settings.load()
    engine = open_engine(settings.database_url, pool_size=2)
    if not leases.mark_started(engine, order["owner"], order["id"], ProcessId.current()):
        return 0  # The lease was lost between claim and fork: whoever has the row now starts the run.
    parking.allow()
    with _instance or DagsterInstance.get() as instance, capture_interrupts():
        tags = {RUNNER_TAG: order["owner"], PID_TAG: str(os.getpid())}
        run = instance.get_run_by_id(order["run_id"])
        if run is None:
            launch = job_launch(order["kind"], order["payload"])
            run = record_run(instance, engine, settings, order, launch, tags)
        if run.is_finished:  # Somebody ended the run while it waited for a slot.
            rows.finish(engine, order["id"], WORK_STATUS.get(run.status, Status.FAILED), ended_by=EndedBy.OPERATOR)
            return 0
        if not tags.items() <= run.tags.items():
            instance.add_run_tags(run.run_id, {**tags, TRIGGER_TAG: trigger_of(run)})
        record_plan(instance, engine, run)
        if order["notice"]:
            instance.report_engine_event(order["notice"], run)
        ended = _execute(instance, run)
        if ended is None:
            return 0  # The run gave its slot back: its row is queued again, and its Dagster run goes on later.
        metadata, error = ended
        closed = instance.get_run_by_id(run.run_id)
        if closed is not None and not closed.is_finished:
            return UNCLOSED
        status = WORK_STATUS.get(closed.status, Status.FAILED) if closed else Status.FAILED
    rows.finish(engine, order["id"], status, result=metadata, error=error if status is Status.FAILED else None)
    engine.dispose()
    Path(order["log"]).unlink(missing_ok=True)
    return 0


def _execute(instance: DagsterInstance, run: DagsterRun) -> tuple[dict[str, Any], str | None] | None:
    """Returns the metadata that assets and ops reported, by their name, and the message of the first error.

    None if the run was left in the middle, to be continued by another process.
    """
    found: dict[str, Any] = {}
    error: str | None = None
    job: ReconstructableJob = recon_job_from_origin(cast("JobPythonOrigin", run.job_code_origin))
    execution = _execute_job(job, run, instance)
    for event in execution:
        if parking.leaves(event, execution):
            return None
        if name_and_values := _reported_metadata(event):
            found.pop(str(event.step_key), None)  # The name of an asset says more than that of its step.
            found.update([name_and_values])
        error = error or _error_message(event)
    return found, error


def _execute_job(job: ReconstructableJob, run: DagsterRun, instance: DagsterInstance) -> Iterator[DagsterEvent]:
    try:
        # A run that has started and whose row was queued again was left by the process before this one.
        is_continued = run.status is DagsterRunStatus.STARTED
        yield from core_execute_run(job, run, instance, inject_env_vars=True, resume_from_failure=is_continued)
    except (Exception, KeyboardInterrupt):
        # Dagster has written the failure into the event log before it raised.
        return


def _reported_metadata(event: DagsterEvent) -> tuple[str, dict[str, Any]] | None:
    if event.event_type is DagsterEventType.ASSET_MATERIALIZATION and event.asset_key:
        metadata, name = event.step_materialization_data.materialization.metadata, "/".join(event.asset_key.path)
    elif event.event_type is DagsterEventType.STEP_OUTPUT and event.step_output_data.metadata:
        metadata, name = event.step_output_data.metadata, str(event.step_key)
    else:
        return None
    return name, {label: value.value for label, value in metadata.items() if _is_json(value.value)}


def _is_json(value: object) -> bool:
    return value is None or isinstance(value, str | int | float | bool | dict | list)


def _error_message(event: DagsterEvent) -> str | None:
    if event.event_type in (DagsterEventType.STEP_FAILURE, DagsterEventType.RUN_FAILURE):
        data = event.event_specific_data
        info = data.error if isinstance(data, StepFailureData) else getattr(data, "error", None)
        # Dagster wraps the error of the user's code in errors of its own.
        while info is not None and info.cause is not None:
            info = info.cause
        return info.message.strip() if info is not None else event.message
    return None


def _repository() -> ReconstructableRepository:
    return ReconstructableRepository.for_module(MODULE, "defs", FOLDER)
