"""The sensor for times without a runner: rows of work become ordinary Dagster runs, new definitions are loaded."""

import logging
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime, timedelta

from dagster import (
    AssetCheckEvaluation,
    AssetCheckKey,
    DagsterInstance,
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
from dagster._core.launcher.base import WorkerStatus
from dagster._core.storage.tags import GRPC_INFO_TAG, RUN_KEY_TAG
from sqlalchemy import Engine

from assets.arrivals.jobs import arrival_report, model_run
from assets.arrivals.model_assets import ROWS
from assets.chains.jobs import chain_run
from assets.ingest.jobs import ingest_drain
from assets.lineage import lineage_apply
from assets.selfcheck import NOTHING_STUCK, WORK, selfcheck, stuck_outcome
from assets.webhooks import webhook_send
from platform_defs.runner.closing import WORK_STATUS, close_run_and_row
from platform_defs.runner.code_server import CodeServer, request_reload
from platform_defs.runner.kinds_of_work import job_launch
from platform_defs.runner.launcher import WarmRunLauncher
from platform_defs.settings import Settings
from platform_defs.store.engine import read
from platform_defs.work import leases, rows, runners
from platform_defs.work.definition_versions import read_digest
from platform_defs.work.each import for_each
from platform_defs.work.errors import TickFailed, WorkError
from platform_defs.work.jobs import FORMER_TAGS, RUNNER_TAG, WORK_TAG
from platform_defs.work.rows import LAUNCHED_RUNS, EndedBy, Status, Work
from platform_defs.work.sensor_ticks import note_tick
from platform_defs.work.stuck import HANDOVER
from resources.database import DatabaseResource

# A living runner looks every second: a row that is still queued after this time has no runner.
PATIENCE = timedelta(seconds=5)
# The same if a runner is alive again, which could start the run at once.
HANDOVER_WITH_RUNNER = timedelta(seconds=20)
# A supervisor starts a runner again within seconds; without one for this long, waiting runs are failed.
WITHOUT_RUNNER = timedelta(minutes=2)
# After a longer pause between two ticks nobody knows whether a runner was alive in the meantime.
LONGEST_PAUSE = timedelta(minutes=1)
ROWS_PER_TICK = 50
_log = logging.getLogger(__name__)


@sensor(
    # Must list the job of every kind of work: Dagster refuses a request for any other job.
    jobs=[arrival_report, chain_run, ingest_drain, lineage_apply, model_run, selfcheck, webhook_send],
    minimum_interval_seconds=5,
    default_status=DefaultSensorStatus.RUNNING,
    description="For the platform itself: requests runs for rows of work that no runner takes.",
)
def work_recovery(context: SensorEvaluationContext) -> Iterator[RunRequest | SkipReason]:
    """Closes rows of work whose Dagster run has ended, then requests a run for each row that no runner takes."""
    with DatabaseResource().open() as engine:
        failures: list[str] = []
        requests = 0
        for request in _tick(context, engine, failures):
            requests += isinstance(request, RunRequest)
            yield request
        note_tick(engine, work_recovery.name, failures[0] if failures else None)
        _show_stuck(context.instance, engine)
        # Dagster would drop the requests of a failed tick, although their rows are claimed: then only the log tells.
        if failures and not requests:
            raise TickFailed(failures[0])


def _tick(context: SensorEvaluationContext, engine: Engine, failures: list[str]) -> Iterator[RunRequest | SkipReason]:
    reload_if_behind(context, CodeServer(Settings.load(), engine), read(engine, read_digest))
    failures += _close_ended_rows(context, engine)
    uses_runner = isinstance(context.instance.run_launcher, WarmRunLauncher)
    if uses_runner and runners.living_runners(engine):
        context.update_cursor("")
        yield SkipReason("a runner is alive and takes the rows itself")
        return
    if not uses_runner:
        failures += _close_launched_runs(context, engine, "the runner that it was launched for is not configured")
    elif _is_long_without_runner(context, datetime.now(UTC)):
        failures += _close_launched_runs(context, engine, "no runner has come back to execute it")
    limit = ROWS_PER_TICK
    if uses_runner:
        # Cold runs take seconds of processor time each, and the runner may be back in a moment.
        limit = min(limit, Settings.load().runner_slots - len(leases.rows_handed_to_dagster(engine)))
    for row in _claim_waiting(engine, limit, without=LAUNCHED_RUNS):
        try:
            yield _run_request(row)
        except WorkError as error:  # A row that cannot be executed must not hold up the others.
            rows.finish(engine, row.id, Status.FAILED, error=str(error))


def _show_stuck(instance: DagsterInstance, engine: Engine) -> None:
    """Evaluates the check anew if Dagster shows another outcome."""
    key = AssetCheckKey(WORK.key, NOTHING_STUCK)
    shown = instance.event_log_storage.get_latest_asset_check_execution_by_key([key]).get(key)
    outcome = stuck_outcome(engine)
    before = None if shown is None else shown.evaluation
    if not isinstance(before, AssetCheckEvaluation) or before.description != outcome.description:
        instance.report_runless_asset_event(outcome)
        if not outcome.passed:
            _log.error("%s", outcome.description)


def reload_if_behind(context: SensorEvaluationContext, server: CodeServer, present: str) -> None:
    """Asks the code server to load definitions whose rows changed; only under a launcher other than ours.

    Under our launcher the runner asks. `present` is the digest of the present version counters.
    """
    if isinstance(context.instance.run_launcher, WarmRunLauncher) or context.repository_def is None:
        return
    loaded = (context.repository_def.metadata or {}).get(ROWS)
    if loaded is not None and loaded.value != present:
        request_reload(server)


def _is_long_without_runner(context: SensorEvaluationContext, now: datetime) -> bool:
    """The cursor holds two times: since when every tick found no runner, and the last of these ticks."""
    since, _, last = (context.cursor or "").partition(" ")
    if not last or now - datetime.fromisoformat(last) > LONGEST_PAUSE:
        since = now.isoformat()
    context.update_cursor(f"{since} {now.isoformat()}")
    return now - datetime.fromisoformat(since) > WITHOUT_RUNNER


def _close_launched_runs(context: SensorEvaluationContext, engine: Engine, reason: str) -> list[str]:
    """Fails runs that Dagster launched through our launcher. A sensor cannot launch an existing run a second time."""

    def close(row: Work) -> None:
        close_run_and_row(context.instance, engine, row, f"Not started: {reason}.", by=EndedBy.HOST)

    return for_each(
        _claim_waiting(engine, ROWS_PER_TICK, only=LAUNCHED_RUNS),
        close,
        lambda row: f"the run of work {row.id} cannot be failed",
    )


def _claim_waiting(
    engine: Engine, limit: int, *, only: Collection[str] | None = None, without: Collection[str] = ()
) -> list[Work]:
    if limit <= 0:
        return []
    return leases.claim(engine, leases.DAGSTER, limit, lease=None, waiting_for=PATIENCE, only=only, without=without)


def _run_request(row: Work) -> RunRequest:
    launch = job_launch(row.kind, row.payload)
    return RunRequest(
        run_key=_run_key(row),
        job_name=launch.job_name,
        run_config=dict(launch.run_config),
        tags=launch.run_tags(row.id),
        partition_key=launch.partition_key,
    )


def _close_ended_rows(context: SensorEvaluationContext, engine: Engine) -> list[str]:
    """Closes rows whose requested run has ended; rows whose run was never created or launched are queued again."""
    handed_over = leases.rows_handed_to_dagster(engine)
    if not handed_over:
        return []
    ids = [str(row.id) for row in handed_over]
    runs: dict[str, list[DagsterRun]] = defaultdict(list)
    for tag in (WORK_TAG, FORMER_TAGS[WORK_TAG]):
        for run in context.instance.get_runs(RunsFilter(tags={tag: ids})):
            # A re-execution has the tag of its parent, but is a launch of its own.
            if run.parent_run_id is None and not _is_left(run):
                runs[run.tags[tag]].append(run)

    patience = HANDOVER_WITH_RUNNER if runners.living_runners(engine) else HANDOVER

    def close(row: Work) -> None:
        _close_if_ended(context.instance, engine, row, runs[str(row.id)], patience)

    return for_each(handed_over, close, lambda row: f"work {row.id}, which has a run of Dagster, cannot be closed")


def _close_if_ended(
    instance: DagsterInstance, engine: Engine, row: Work, runs: Sequence[DagsterRun], patience: timedelta
) -> None:
    """`patience` is how long Dagster may take to create and launch a run."""
    is_late = row.heartbeat_at is not None and datetime.now(UTC) - row.heartbeat_at > patience
    waiting = [run for run in runs if _waits_for_launch(instance, run)]
    if is_late and all(run in waiting for run in runs if not _is_former(row, run)):
        for run in waiting:
            instance.report_run_failed(run, message="Not started: Dagster created this run and never launched it.")
        leases.give_back(engine, leases.DAGSTER, [row.id])
        return
    for run in runs:
        reason = _superseded(instance, row, run) or _death_of(instance, run)
        if reason is not None:
            instance.report_run_failed(run, message=reason)
        elif run.status not in WORK_STATUS and run not in waiting:
            leases.note_open_runs(engine, [row.id])
    has_run = any(not _is_former(row, run) for run in runs)
    if has_run and all(run.status in WORK_STATUS for run in runs):
        last = next((run for run in runs if run.status is DagsterRunStatus.SUCCESS), runs[0])
        error = None if last.status is DagsterRunStatus.SUCCESS else f"run {last.run_id} is {last.status.value}"
        by = EndedBy.OPERATOR if last.status is DagsterRunStatus.CANCELED else EndedBy.HOST
        _end_left(instance, row, last.run_id)
        rows.finish(engine, row.id, WORK_STATUS[last.status], error=error, run_id=last.run_id, ended_by=by)


def _superseded(instance: DagsterInstance, row: Work, run: DagsterRun) -> str | None:
    """Why nobody will start a run that was made when the row was handed over before; None if somebody may.

    Our launcher had given that run to the row, but the runner was gone again before it could execute it.
    """
    if _is_former(row, run) and _waits_for_launch(instance, run):
        return "Not started: another run was made for its row of work."
    return None


def _waits_for_launch(instance: DagsterInstance, run: DagsterRun) -> bool:
    """Whether nobody has begun to execute the run of a row that Dagster has.

    Our launcher gives the run back to the row or starts it cold, which the run's tags show. So a run that is STARTING
    without either was left by a process that died while it launched the run.
    """
    if run.status is DagsterRunStatus.STARTING and isinstance(instance.run_launcher, WarmRunLauncher):
        return GRPC_INFO_TAG not in run.tags
    return run.status in (DagsterRunStatus.NOT_STARTED, DagsterRunStatus.QUEUED)


def _is_former(row: Work, run: DagsterRun) -> bool:
    """Whether the run was made when the row was handed over before, and not this time."""
    return run.tags.get(RUN_KEY_TAG, _run_key(row)) != _run_key(row)


def _is_left(run: DagsterRun) -> bool:
    """Whether a runner had begun the run of a row that Dagster has: it gave its slot back, and the runner went away.

    If a runner is back before the work is done, it goes on with that run; so the run stays open until then.
    """
    return RUNNER_TAG in run.tags and GRPC_INFO_TAG not in run.tags


def _end_left(instance: DagsterInstance, row: Work, done_by: str) -> None:
    """Ends the run with which a runner began the work of the row, now that another run has done it."""
    left = instance.get_run_by_id(row.run_id)
    if left is not None and _is_left(left) and not left.is_finished:
        message = f"It gave its slot back, and no runner was alive to go on with it: run {done_by} did its work."
        instance.report_run_failed(left, message=message)


def _run_key(row: Work) -> str:
    return f"work-{row.id}-{row.attempts}"


def _death_of(instance: DagsterInstance, run: DagsterRun) -> str | None:
    """Why a run that started without the runner is dead although nobody said so; None if it may be at work.

    Dagster's own monitoring looks only at runs that have begun, and not at those that never will.
    """
    launcher = instance.run_launcher
    if run.is_finished or GRPC_INFO_TAG not in run.tags or not launcher.supports_check_run_worker_health:
        return None
    health = launcher.check_run_worker_health(run)
    return f"Not finished: {health.msg}." if health.status is WorkerStatus.FAILED else None


def definitions() -> Definitions:
    return Definitions(sensors=[work_recovery])
