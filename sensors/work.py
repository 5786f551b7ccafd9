"""Recovery for rows of work: while no runner of ours executes them, Dagster's own launcher does."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from dagster import (
    DagsterRun,
    DagsterRunStatus,
    DefaultSensorStatus,
    Definitions,
    RunRequest,
    RunsFilter,
    SensorEvaluationContext,
    SkipReason,
    sensor,
)
from sqlalchemy import Engine

from assets.arrivals import arrival_report, model_run, webhook_send
from assets.lineage import lineage_apply
from assets.selfcheck import selfcheck
from platform_defs.runner.closing import close
from platform_defs.runner.kinds_of_work import job_launch
from platform_defs.runner.launcher import WarmRunLauncher
from platform_defs.work import rows, runners
from platform_defs.work.errors import WorkError
from platform_defs.work.jobs import WORK_TAG
from platform_defs.work.rows import Status, Work
from resources.database import DatabaseResource

# A runner looks every second; what still waits after this is nobody's.
PATIENCE = timedelta(seconds=5)
# From handing a row over to seeing its run; beyond it the request was lost and the row waits again.
HANDOVER = timedelta(minutes=2)
# A supervisor brings a runner back within seconds; a run that waits longer would wait for ever.
COMES_BACK = timedelta(minutes=2)
# Ticks that are further apart saw nothing of what was in between.
APART = timedelta(minutes=1)
ROWS_A_TICK = 50
_OUTCOMES = {
    DagsterRunStatus.SUCCESS: Status.SUCCEEDED,
    DagsterRunStatus.FAILURE: Status.FAILED,
    DagsterRunStatus.CANCELED: Status.CANCELED,
}


@sensor(
    # every job that a kind of work names
    jobs=[arrival_report, lineage_apply, model_run, selfcheck, webhook_send],
    minimum_interval_seconds=5,
    default_status=DefaultSensorStatus.RUNNING,
)
def work_recovery(context: SensorEvaluationContext) -> Iterator[RunRequest | SkipReason]:
    """Closes rows whose handed-over run has ended, then hands over what no runner takes."""
    with DatabaseResource().opened() as engine:
        _close_ended(context, engine)
        ours = isinstance(context.instance.run_launcher, WarmRunLauncher)
        if ours and runners.alive(engine):
            context.update_cursor("")
            yield SkipReason("a runner is alive and takes the rows itself")
            return
        if not ours:
            _close_stranded(context, engine, "the runner that it was launched for is not configured any more")
        elif _none_comes_back(context, datetime.now(UTC)):
            _close_stranded(context, engine, "no runner has come back to execute it")
        for row in _unclaimed(engine):
            try:
                yield _request(row)
            except WorkError as error:  # one row that cannot be executed must not keep the others
                rows.finish(engine, row.id, Status.FAILED, error=str(error))


def _none_comes_back(context: SensorEvaluationContext, now: datetime) -> bool:
    """The cursor holds since when ticks have found no runner, and the last of them."""
    since, _, last = (context.cursor or "").partition(" ")
    if not last or now - datetime.fromisoformat(last) > APART:
        since = now.isoformat()
    context.update_cursor(f"{since} {now.isoformat()}")
    return now - datetime.fromisoformat(since) > COMES_BACK


def _close_stranded(context: SensorEvaluationContext, engine: Engine, reason: str) -> None:
    """Runs that Dagster launched: a sensor cannot hand them to a launcher, so whoever wants one launches it again."""
    for row in rows.claim(engine, rows.LAUNCHER, ROWS_A_TICK, lease=None, waiting_for=PATIENCE, only=rows.DAGSTER_RUN):
        close(context.instance, engine, row, f"Not started: {reason}.")


def _unclaimed(engine: Engine) -> list[Work]:
    """What Dagster itself launched is not among it: its run exists, and only waits for a runner."""
    return rows.claim(engine, rows.LAUNCHER, ROWS_A_TICK, lease=None, waiting_for=PATIENCE, without=rows.DAGSTER_RUN)


def _request(row: Work) -> RunRequest:
    wanted = job_launch(row.kind, row.payload)
    return RunRequest(
        run_key=f"work-{row.id}-{row.attempts}",
        job_name=wanted.job_name,
        run_config=dict(wanted.run_config),
        tags={**wanted.tags, WORK_TAG: str(row.id)},
        partition_key=wanted.partition_key,
    )


def _close_ended(context: SensorEvaluationContext, engine: Engine) -> None:
    handed_over = rows.handed_over(engine)
    if not handed_over:
        return
    wanted = RunsFilter(tags={WORK_TAG: [str(row.id) for row in handed_over]})
    runs: dict[str, DagsterRun] = {run.tags[WORK_TAG]: run for run in context.instance.get_runs(wanted)}
    for row in handed_over:
        run = runs.get(str(row.id))
        if run is not None and run.status in _OUTCOMES:
            error = None if run.status is DagsterRunStatus.SUCCESS else f"run {run.run_id} is {run.status.value}"
            rows.finish(engine, row.id, _OUTCOMES[run.status], error=error, run_id=run.run_id)
        elif run is None and row.heartbeat_at and datetime.now(UTC) - row.heartbeat_at > HANDOVER:
            rows.give_back(engine, rows.LAUNCHER, [row.id])


def definitions() -> Definitions:
    return Definitions(sensors=[work_recovery])
