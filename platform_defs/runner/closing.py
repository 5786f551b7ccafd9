"""Closes a run and its row for the same reason, when the process that should have done it cannot any more."""

from dagster import DagsterInstance, DagsterRunStatus
from sqlalchemy import Engine

from platform_defs.work import rows
from platform_defs.work.rows import Status, Work


def close(instance: DagsterInstance, engine: Engine, row: Work, reason: str, *, canceled: bool = False) -> bool:
    """The run first, so that a row that says it is closed never has an open run; True if the row was still open."""
    run = instance.get_run_by_id(row.run_id)
    if run is not None and run.status is DagsterRunStatus.SUCCESS:
        # it died after the run's last event: the work is done, only the row does not know yet
        return rows.finish(engine, row.id, Status.SUCCEEDED)
    canceled = canceled or (run is not None and run.status in (DagsterRunStatus.CANCELING, DagsterRunStatus.CANCELED))
    if run is not None and not run.is_finished:
        if canceled:
            instance.report_run_canceled(run, message=reason)
        else:
            instance.report_run_failed(run, message=reason)
    return rows.finish(engine, row.id, Status.CANCELED if canceled else Status.FAILED, error=reason)
