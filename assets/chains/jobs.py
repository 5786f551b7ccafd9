"""The generic job that drives a run of a chain under a launcher other than the runner, without showing its graph."""

from dagster import Config, Failure, Nothing, OpExecutionContext, Out, job, op
from dagster._utils.interrupts import check_captured_interrupt

from assets.chains.driving import opened_driver, opened_engine
from platform_defs.chains.kinds_of_work import CHAIN_RUN
from platform_defs.chains.runs.drives import Drive
from platform_defs.chains.runs.happenings import LineLogged, Parked
from platform_defs.chains.runs.queries import get_run, list_drives
from platform_defs.chains.states import RunStatus


class RunOfChain(Config):
    """`run_id` is the id of the run, as the API gave it."""

    run_id: str


@op(out=Out(Nothing))
def drive_run(context: OpExecutionContext, config: RunOfChain) -> None:
    """Drives a run until it ends or until all of its nodes wait; then its row of work asks for another Dagster run."""
    with opened_engine() as engine:
        newest = list_drives(engine, config.run_id)[-1]
        drive = Drive(newest.run_id, newest.drive_no, newest.work_id, newest.dagster_run_id)
        happening = None
        with opened_driver(engine, drive, interrupted=check_captured_interrupt, may_park=True) as driver:
            for happening in driver.drive():
                context.log.info(happening.text if isinstance(happening, LineLogged) else str(happening))
        run = get_run(engine, config.run_id)
        if not isinstance(happening, Parked) and run.status in (RunStatus.FAILED, RunStatus.STOPPED):
            raise Failure(f"run {run.run_id} of {run.job_name} is {run.status}", allow_retries=False)


@job(
    name=CHAIN_RUN,
    description="For the platform itself: drives a run of a chain if another launcher executes runs.",
)
def chain_run() -> None:
    drive_run()
