"""The sensor of table arrival, for everything that no request brings, and its nightly schedule."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TypeVar
from zoneinfo import ZoneInfo

from dagster import (
    DagsterInstance,
    DagsterRunStatus,
    DefaultSensorStatus,
    Definitions,
    RunsFilter,
    SensorEvaluationContext,
    SkipReason,
    sensor,
)
from sqlalchemy import Engine

from assets.arrivals.jobs import arrivals_retention
from assets.arrivals.reports import add_partitions_of_period, report_arrivals, report_checks, report_executions
from platform_defs.arrivals.batches import Batch
from platform_defs.arrivals.checks import CheckRotation
from platform_defs.arrivals.errors import failure_text
from platform_defs.arrivals.executions import recovery
from platform_defs.arrivals.executions.recovery import DeadExecution, RecoveryResult, RunState
from platform_defs.arrivals.executions.source_watch import SourceWatch
from platform_defs.arrivals.executions.statements import end_left_statements
from platform_defs.arrivals.failed_batches import (
    EXECUTIONS_SUCCEEDED,
    FailedBatch,
    failed_outcome,
    find_failed_batches,
)
from platform_defs.arrivals.lateness import LateBatch, find_late_batches
from platform_defs.arrivals.models.catalog import used_periods
from platform_defs.arrivals.on_time import ON_TIME, check_outcome
from platform_defs.arrivals.sweep import sweep_arrivals
from platform_defs.settings import Settings
from platform_defs.sources.named import Sources
from platform_defs.store.engine import read
from platform_defs.webhooks import deliveries
from platform_defs.webhooks.kinds_of_work import WEBHOOK_SEND
from platform_defs.work import rows
from platform_defs.work.each import trace_of
from platform_defs.work.errors import TickFailed
from platform_defs.work.sensor_ticks import note_tick
from platform_defs.work.wake import wake
from resources.database import DatabaseResource
from sensors.nightly import nightly

T = TypeVar("T")

# An API process sends a due delivery within a second, so a delivery that is overdue for this long has no sender.
UNSENT = timedelta(seconds=30)
_LATE_ROTATION: CheckRotation[LateBatch] = CheckRotation()
_FAILED_ROTATION: CheckRotation[FailedBatch] = CheckRotation()
# The periods whose earlier batches this process has listed.
_LISTED_PERIODS: set[str] = set()
_SOURCE_WATCH = SourceWatch()
_log = logging.getLogger(__name__)


@sensor(
    minimum_interval_seconds=5,
    default_status=DefaultSensorStatus.RUNNING,
    description="Runs the models whose tables have arrived, recovers from crashes, and shows arrivals and late tables.",
)
def arrivals(context: SensorEvaluationContext) -> SkipReason:
    """Queues what ETL jobs made due, recovers from crashes, reports arrivals to Dagster and shows late tables."""
    steps = TickSteps()
    with DatabaseResource().open() as engine:
        done = _tick(context, engine, steps)
        note_tick(engine, arrivals.name, steps.failed[0] if steps.failed else None)
    steps.raise_first()
    return SkipReason(done)


def _tick(context: SensorEvaluationContext, engine: Engine, steps: "TickSteps") -> str:
    settings, now = Settings.load(), datetime.now(UTC)
    lookback, zone = timedelta(days=settings.arrivals_lookback_days), ZoneInfo(settings.zone)
    longest, instance = timedelta(seconds=settings.model_timeout_s), context.instance
    sources = Sources(engine, settings.sources)
    dead: list[DeadExecution] = steps.attempt(
        "look for ended runs", lambda: _dead_by_dagster(instance, engine, longest, now), []
    )
    settled = steps.attempt(
        "settle what died", lambda: recovery.settle_dead_executions(engine, now, dead), RecoveryResult()
    )
    steps.failed.extend(settled.failures)
    swept: dict[Batch, int] = steps.attempt("begin what is due", lambda: sweep_arrivals(engine, lookback, now), {})
    retried: dict[Batch, int] = steps.attempt(
        "begin what waits for a source", lambda: _SOURCE_WATCH.begin(engine, sources, lookback, now), {}
    )
    begun = settled.queued | swept | retried
    sending = steps.attempt("have webhooks sent", lambda: _send_overdue(engine, now), False)
    if begun or sending:
        wake(settings.home)
    # after the wake-up, because a source may take long to answer
    steps.attempt("end queries of closed executions", lambda: end_left_statements(engine, sources, now), None)
    told = steps.attempt("report arrivals", lambda: len(report_arrivals(instance, engine, now - lookback)), 0)
    told += steps.attempt("report executions", lambda: report_executions(instance, engine, now - lookback, now), 0)
    steps.attempt("tell what is late", lambda: _show_late(instance, engine, zone, now, lookback), None)
    steps.attempt("tell what failed", lambda: _show_failed(instance, engine, now - lookback), None)
    steps.attempt("list the batches of periods", lambda: _list_batches_of_periods(instance, engine), None)
    return f"begun {len(begun)}, closed {len(settled.closed)}, reported {told}"


@dataclass
class TickSteps:
    """The steps of a tick. Each is attempted even if an earlier one failed."""

    failed: list[str] = field(default_factory=list)

    def attempt(self, what: str, step: Callable[[], T], otherwise: T) -> T:
        """The result of the step; `otherwise` if it fails."""
        try:
            return step()
        except Exception as error:
            problem = f"could not {what}: {failure_text(error)}"
            _log.error("the tick %s; it goes on with the rest", problem, exc_info=trace_of(error))
            self.failed.append(problem)
            return otherwise

    def raise_first(self) -> None:
        """Fails the tick with the first error, so that the UI shows it. To be called after the last step."""
        if self.failed:
            others = f" (and {len(self.failed) - 1} more, see the log)" if len(self.failed) > 1 else ""
            raise TickFailed(f"{self.failed[0]}{others}")


def _dead_by_dagster(
    instance: DagsterInstance, engine: Engine, longest: timedelta, now: datetime
) -> list[DeadExecution]:
    """Dead executions whose run has no row of work, because Dagster launched it without our runner."""
    executions = read(engine, recovery.executions_without_work)
    if not executions:
        return []
    runs = [
        RunState(run.run_id, run.status.value, run.is_finished, run.status is DagsterRunStatus.CANCELED)
        for run in instance.get_runs(RunsFilter(run_ids=list(executions)))
    ]
    return recovery.executions_of_ended_runs(engine, executions, runs, now, longest)


def _send_overdue(engine: Engine, now: datetime) -> bool:
    """Queues a run that sends webhooks if deliveries are overdue because no API process is alive.

    At most one such row of work is open, and at most one is written per interval.
    """
    if not read(engine, lambda connection: deliveries.count_overdue(connection, UNSENT)):
        return False
    interval = int(now.timestamp() // UNSENT.total_seconds())
    rows.enqueue_unless_open(engine, WEBHOOK_SEND, key=f"{WEBHOOK_SEND}:{interval}")
    return True


def _show_late(instance: DagsterInstance, engine: Engine, zone: ZoneInfo, now: datetime, lookback: timedelta) -> None:
    """Reports evaluations here instead of returning them: a failed step makes Dagster drop the result of the tick."""
    late = read(engine, lambda connection: find_late_batches(connection, zone, now, lookback))
    chosen = _LATE_ROTATION.choose(late)
    report_checks(instance, ON_TIME, {model_id: check_outcome(found, zone) for model_id, found in chosen.items()})
    _LATE_ROTATION.note_shown(late)


def _show_failed(instance: DagsterInstance, engine: Engine, since: datetime) -> None:
    failed = read(engine, lambda connection: find_failed_batches(connection, since))
    chosen = _FAILED_ROTATION.choose(failed)
    outcomes = {model_id: failed_outcome(found) for model_id, found in chosen.items()}
    report_checks(instance, EXECUTIONS_SUCCEEDED, outcomes)
    _FAILED_ROTATION.note_shown(failed)


def _list_batches_of_periods(instance: DagsterInstance, engine: Engine) -> None:
    """Batches are listed under their period as they come; those from before are listed when a period is first used."""
    for period in read(engine, used_periods):
        if period not in _LISTED_PERIODS:
            add_partitions_of_period(instance, period)
            _LISTED_PERIODS.add(period)


def definitions() -> Definitions:
    return Definitions(
        sensors=[arrivals],
        schedules=[nightly(arrivals_retention, "11 3 * * *", "forgets what arrivals need no longer")],
    )
