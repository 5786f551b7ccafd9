"""Closes a run and its row of work when the process that should have closed them no longer can."""

from dagster import DagsterInstance, DagsterRunStatus
from sqlalchemy import Engine

from platform_defs.runner.recorded_runs import record_unstarted_run
from platform_defs.work import rows
from platform_defs.work.rows import EndedBy, Status, Work

# The status of a row of work for each final status of its run.
WORK_STATUS = {
    DagsterRunStatus.SUCCESS: Status.SUCCEEDED,
    DagsterRunStatus.FAILURE: Status.FAILED,
    DagsterRunStatus.CANCELED: Status.CANCELED,
}


def close_run_and_row(
    instance: DagsterInstance, engine: Engine, row: Work, reason: str, *, by: EndedBy, canceled: bool = False
) -> bool:
    """Returns whether the row was still open. Closes the run first, so that no closed row ever has an open run.

    `by` says who or what ended the run, unless somebody had asked to end it.
    """
    run = instance.get_run_by_id(row.run_id)
    if run is not None and run.status is DagsterRunStatus.SUCCESS:
        # The process died after the last event of the run: the work is done, only the row does not say so yet.
        return rows.finish(engine, row.id, Status.SUCCEEDED)
    if run is None:
        run = record_unstarted_run(instance, engine, row)
    canceled = canceled or (run is not None and run.status in (DagsterRunStatus.CANCELING, DagsterRunStatus.CANCELED))
    if run is not None and not run.is_finished:
        if canceled:
            instance.report_run_canceled(run, message=reason)
        else:
            instance.report_run_failed(run, message=reason)
    return rows.finish(engine, row.id, Status.CANCELED if canceled else Status.FAILED, error=reason, ended_by=by)
