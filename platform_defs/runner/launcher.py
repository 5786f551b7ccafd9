"""The run launcher of the platform's Dagster instance: hands every run to the runner as a row of work."""

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from dagster import DagsterInstance, DagsterRun, DefaultRunLauncher
from dagster._core.launcher.base import CheckRunHealthResult, LaunchRunContext, RunLauncher, WorkerStatus
from dagster._core.remote_origin import GrpcServerCodeLocationOrigin
from dagster._core.storage.tags import GRPC_INFO_TAG
from dagster._serdes import ConfigurableClass, ConfigurableClassData
from sqlalchemy import Engine

from platform_defs.ingest.kinds_of_work import ASSET_PREFIX
from platform_defs.runner.closing import close_run_and_row
from platform_defs.runner.launched_runs import launch_payload, source_of_run
from platform_defs.runner.recorded_runs import trigger_of
from platform_defs.settings import Settings
from platform_defs.store.engine import open_engine, read
from platform_defs.work import leases, rows, runners
from platform_defs.work.definition_versions import for_runs, read_versions
from platform_defs.work.jobs import CODE_SERVER_TAG, TRIGGER_TAG, WORK_TAG, tag_of
from platform_defs.work.processes import ProcessId, listener
from platform_defs.work.rows import DAGSTER_RUN, INGEST_RUN, EndedBy, Status
from platform_defs.work.wake import wake


@cache
def _engine_of(pid: int) -> Engine:
    return open_engine(Settings.load().database_url, pool_size=4)


def _is_of_ingest(run: DagsterRun) -> bool:
    """Whether the run materialises assets of ingest alone, whoever launched it: the UI, a backfill or a sensor."""
    keys = run.asset_selection or ()
    return bool(keys) and all(key.path[0] == ASSET_PREFIX for key in keys)


def _is_of_handed_over_row(run: DagsterRun) -> bool:
    """Whether Dagster made the run for a row of work. A re-execution, which has the same tags, is a new launch."""
    return tag_of(run.tags, WORK_TAG) is not None and run.parent_run_id is None


class WarmRunLauncher(RunLauncher[DagsterInstance], ConfigurableClass):
    """While no runner is alive, runs start in processes of the code server, as with Dagster's default launcher."""

    def __init__(self, inst_data: ConfigurableClassData | None = None) -> None:
        self._inst_data = inst_data
        self._cold = DefaultRunLauncher()
        super().__init__()  # type: ignore[no-untyped-call]

    @property
    def inst_data(self) -> ConfigurableClassData | None:
        return self._inst_data

    @classmethod
    def config_type(cls) -> dict[str, Any]:
        return {}

    @classmethod
    def from_config_value(
        cls, inst_data: ConfigurableClassData | None, config_value: Mapping[str, Any]
    ) -> "WarmRunLauncher":
        return cls(inst_data=inst_data)

    def register_instance(self, instance: DagsterInstance) -> None:
        super().register_instance(instance)
        self._cold.register_instance(instance)

    @property
    def _engine(self) -> Engine:
        return _engine_of(os.getpid())

    def launch_run(self, context: LaunchRunContext) -> None:
        """Writes a row of work for the run, or gives the run to its row. Launching it again does nothing."""
        run = context.dagster_run
        home = Settings.load().home
        if not self._has_runner(home):
            why = runners.why_none_is_alive(self._engine)
            message = f"This run starts cold, in a process of the code server: {why}."
            self._instance.report_engine_event(message, run, cls=type(self))
            self._note_code_server(run)
            self._cold.launch_run(context)
            return
        if _is_of_handed_over_row(run) and self._give_to_its_row(run):
            wake(home)
            return
        if tag_of(run.tags, TRIGGER_TAG) != (trigger := trigger_of(run)):
            # A run that waits for a slot for long, or is ended meanwhile, shows who asked for it, too.
            self._instance.add_run_tags(run.run_id, {TRIGGER_TAG: trigger})
        # The run needs definitions at least as new as they are now: its user may have just published what it executes.
        payload = launch_payload(for_runs(read(self._engine, read_versions)))
        kind = INGEST_RUN if _is_of_ingest(run) else DAGSTER_RUN
        rows.enqueue(
            self._engine,
            kind,
            payload,
            key=f"run:{run.run_id}",
            run_id=run.run_id,
            resource=read(self._engine, lambda connection: source_of_run(connection, run)),
        )
        wake(home)

    def _has_runner(self, home: Path) -> bool:
        """Whether a runner will take a row. One that hangs listens, too; one that has just begun has no record yet."""
        known = runners.all_runners(self._engine)
        if any(runner.is_alive() for runner in known):
            return True
        return wake(home) and not any(runner.hangs() for runner in known)

    def _give_to_its_row(self, run: DagsterRun) -> bool:
        """Queues the row for which Dagster made the run, with this run; False if the row does not wait for one."""
        work_id = int(tag_of(run.tags, WORK_TAG) or 0)
        before = rows.get(self._engine, work_id).run_id
        if leases.take_back_from_dagster(self._engine, work_id, run.run_id) is None:
            return False
        superseded = None if before == run.run_id else self._instance.get_run_by_id(before)
        if superseded is not None and not superseded.is_finished:
            reason = "Not started: another run was made for its row of work."
            self._instance.report_run_failed(superseded, message=reason)
        return True

    def _note_code_server(self, run: DagsterRun) -> None:
        """Notes who asked for a cold run, and which process of this machine will execute it, to notice its death."""
        origin = run.remote_job_origin
        location = None if origin is None else origin.repository_origin.code_location_origin
        port = location.port if isinstance(location, GrpcServerCodeLocationOrigin) else None
        server = None if port is None else listener(port)
        executed_by = {} if server is None else {CODE_SERVER_TAG: server.full_name}
        self._instance.add_run_tags(run.run_id, {TRIGGER_TAG: trigger_of(run), **executed_by})

    def terminate(self, run_id: str) -> bool:
        """Has a run ended: at once if it waits for a slot, else by its runner within seconds. False if it is over."""
        run = self._instance.get_run_by_id(run_id)
        if run is None or run.is_finished:
            return False
        if GRPC_INFO_TAG in run.tags:
            return bool(self._cold.terminate(run_id))  # type: ignore[no-untyped-call]
        row = rows.find_by_run_id(self._engine, run_id)
        if row is None or row.status.is_final:
            return False
        # First the run, then the process: Dagster would report the end of the process as a failure.
        self._instance.report_run_canceling(run)
        row = rows.request_cancel(self._engine, run_id)
        if row is None:
            return False
        if row.status is Status.QUEUED:
            reason = "Terminated while it waited for a slot."
            close_run_and_row(self._instance, self._engine, row, reason, by=EndedBy.OPERATOR, canceled=True)
        else:
            wake(Settings.load().home)
        return True

    @property
    def supports_check_run_worker_health(self) -> bool:
        return True

    def check_run_worker_health(self, run: DagsterRun) -> CheckRunHealthResult:
        """Asked by Dagster's daemon about every run that has begun; a run that it calls failed is closed as failed."""
        if GRPC_INFO_TAG in run.tags:
            # The process of a cold run belongs to the code server, which reports its end itself, unless it dies too.
            server = ProcessId.on_this_machine(tag_of(run.tags, CODE_SERVER_TAG) or "")
            if server is not None and not server.is_alive():
                return CheckRunHealthResult(WorkerStatus.FAILED, f"code server {server.pid}, which executed it, died")
            return CheckRunHealthResult(WorkerStatus.RUNNING, "cold run of the code server")
        row = rows.find_by_run_id(self._engine, run.run_id)
        if row is None:
            return CheckRunHealthResult(WorkerStatus.NOT_FOUND, "the runner has no row of work for this run")
        worker = None if row.process is None else str(row.process.pid)
        if row.status is Status.QUEUED:
            return CheckRunHealthResult(WorkerStatus.RUNNING, "waits for a slot")
        if row.status is Status.SUCCEEDED:
            return CheckRunHealthResult(WorkerStatus.SUCCESS, run_worker_id=worker)
        if row.status is not Status.RUNNING:
            return CheckRunHealthResult(WorkerStatus.FAILED, row.error or row.status.lower(), run_worker_id=worker)
        if row.process is None:
            return CheckRunHealthResult(WorkerStatus.RUNNING, "is about to start, or waits again if its runner is gone")
        if row.id in {item.id for item in leases.rows_with_expired_lease(self._engine)} and not row.is_alive_here:
            return CheckRunHealthResult(
                WorkerStatus.FAILED, f"the lease of runner {row.lease_owner} ran out", run_worker_id=worker
            )
        return CheckRunHealthResult(WorkerStatus.RUNNING, run_worker_id=worker)

    def get_run_worker_debug_info(self, run: DagsterRun, include_container_logs: bool | None = True) -> str | None:
        row = rows.find_by_run_id(self._engine, run.run_id)
        if row is None:
            return None
        return f"row of work {row.id}: {row.status}, runner {row.lease_owner or 'none yet'}" + (
            f", {row.error}" if row.error else ""
        )

    def dispose(self) -> None:
        self._cold.dispose()
