"""When table arrival needs work that no request brought: arrivals that ETL jobs wrote, crashes, lateness."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

from dagster import (
    AssetCheckEvaluation,
    AssetCheckKey,
    DagsterInstance,
    DagsterRunStatus,
    DefaultSensorStatus,
    Definitions,
    RunsFilter,
    SensorEvaluationContext,
    SkipReason,
    sensor,
)
from sqlalchemy import Engine, select
from sqlalchemy.exc import SQLAlchemyError

from assets.arrivals import repair, report
from assets.models import ON_TIME, judged, model_key
from platform_defs.arrivals import lateness, recovery
from platform_defs.arrivals.batches import Batch
from platform_defs.arrivals.execution import described
from platform_defs.arrivals.lateness import LateBatch
from platform_defs.arrivals.lateness_rotation import CheckRotation
from platform_defs.arrivals.recovery import DeadExecution, RecoveryResult
from platform_defs.errors import PlatformError
from platform_defs.settings import Settings
from platform_defs.store.engine import read
from platform_defs.store.tables.arrivals import metrics_task_log
from platform_defs.webhooks import deliveries
from platform_defs.webhooks.kinds_of_work import WEBHOOK_SEND
from platform_defs.work import rows
from platform_defs.work.wake import wake
from resources.database import DatabaseResource

T = TypeVar("T")

# An API process sends within a second; what waits this long waits for one that is not there.
UNSENT = timedelta(seconds=30)
_TURNS = CheckRotation()
_log = logging.getLogger(__name__)


@sensor(minimum_interval_seconds=5, default_status=DefaultSensorStatus.RUNNING)
def arrivals(context: SensorEvaluationContext) -> SkipReason:
    """Begins what ETL jobs made due, makes good for what crashed, reports arrivals and tells what is late."""
    settings, now = Settings.load(), datetime.now(UTC)
    lookback, zone = timedelta(days=settings.arrivals_lookback_days), ZoneInfo(settings.zone)
    longest, instance, parts = timedelta(seconds=settings.model_timeout_s), context.instance, Parts()
    with DatabaseResource().opened() as engine:
        ended: list[DeadExecution] = parts.attempt(
            "look for ended runs", lambda: _ended_runs(instance, engine, longest, now), []
        )
        settled = parts.attempt(
            "settle what died", lambda: recovery.settle_dead_executions(engine, now, ended), RecoveryResult()
        )
        begun: dict[Batch, int] = parts.attempt(
            "begin what is due", lambda: recovery.sweep_arrivals(engine, lookback, now), {}
        )
        sending = parts.attempt("have webhooks sent", lambda: _send_overdue(engine, now), False)
        if settled.begun or begun or sending:
            wake(settings.home)
        told = parts.attempt("report arrivals", lambda: report(instance, engine, now - lookback), 0)
        told += parts.attempt("report executions", lambda: repair(instance, engine, now - lookback, now), 0)
        parts.attempt("tell what is late", lambda: _tell_late(instance, engine, zone, now, lookback), None)
    parts.raise_first()
    return SkipReason(f"begun {len(settled.begun) + len(begun)}, closed {len(settled.closed)}, reported {told}")


class TickFailed(PlatformError):
    """A part of the tick failed; what the others did is done."""


@dataclass
class Parts:
    """The parts of a tick, each attempted whatever became of the ones before it."""

    failed: list[str] = field(default_factory=list)

    def attempt(self, what: str, part: Callable[[], T], otherwise: T) -> T:
        try:
            return part()
        except Exception as error:
            problem = f"could not {what}: {described(error)}"
            # a database that is away needs no stack, and a statement's parameters are not for the log
            is_expected = isinstance(error, (PlatformError, SQLAlchemyError))
            _log.error("the tick %s; it goes on with the rest", problem, exc_info=not is_expected)
            self.failed.append(problem)
            return otherwise

    def raise_first(self) -> None:
        """At the end, so that the UI shows it on the tick."""
        if self.failed:
            others = f" (and {len(self.failed) - 1} more, see the log)" if len(self.failed) > 1 else ""
            raise TickFailed(f"{self.failed[0]}{others}")


def _ended_runs(instance: DagsterInstance, engine: Engine, longest: timedelta, now: datetime) -> list[DeadExecution]:
    """Executions of runs that Dagster launched without us, and that are over."""
    running = read(engine, recovery.executions_without_work)
    if not running:
        return []
    runs = {run.run_id: run for run in instance.get_runs(RunsFilter(run_ids=list(running)))}
    ended = [
        replace(
            running[run_id],
            reason=f"its run is {run.status.value}",
            canceled_by_operator=run.status is DagsterRunStatus.CANCELED,
        )
        for run_id, run in runs.items()
        if run.is_finished
    ]
    # the process of a run that was deleted may be at work for as long as a query may take
    deleted = [dead for run_id, dead in running.items() if run_id not in runs]
    old = _started_before(engine, [dead.task_id for dead in deleted], now - 2 * longest)
    return ended + [replace(dead, reason="its run was deleted") for dead in deleted if dead.task_id in old]


def _started_before(engine: Engine, task_ids: Sequence[int], instant: datetime) -> set[int]:
    log = metrics_task_log.c
    query = select(log.id).where(log.id.in_(task_ids), log.start_time < instant)
    return set(read(engine, lambda connection: connection.execute(query).scalars().all())) if task_ids else set()


def _send_overdue(engine: Engine, now: datetime) -> bool:
    """A row of work at a time, and per interval, where webhooks wait and no API process is alive to send them."""
    if not read(engine, lambda connection: deliveries.count_overdue(connection, UNSENT)):
        return False
    interval = int(now.timestamp() // UNSENT.total_seconds())
    rows.enqueue_unless_open(engine, WEBHOOK_SEND, key=f"{WEBHOOK_SEND}:{interval}")
    return True


def _tell_late(instance: DagsterInstance, engine: Engine, zone: ZoneInfo, now: datetime, lookback: timedelta) -> None:
    """Told here and not by the tick's result, which a part that fails would take away."""
    late = read(engine, lambda connection: lateness.find_late_batches(connection, zone, now, lookback))
    for evaluation in _changed(instance, _TURNS.next(late), zone):
        instance.report_runless_asset_event(evaluation)
    _TURNS.shown(late)


def _changed(
    instance: DagsterInstance, late: Mapping[str, Sequence[LateBatch]], zone: ZoneInfo
) -> list[AssetCheckEvaluation]:
    """An evaluation where the check shows something else than what is the case, or nothing."""
    keys = [AssetCheckKey(model_key(model_id), ON_TIME) for model_id in late]
    shown = _shown(instance, keys)
    evaluations = []
    for key, (model_id, found) in zip(keys, late.items(), strict=True):
        outcome, before = judged(found, zone), shown.get(key)
        if before is None or not before.is_current or not _says(before.evaluation, outcome):
            evaluations.append(AssetCheckEvaluation(key.asset_key, ON_TIME, **outcome))
        if not _says(before.evaluation, outcome) if before else found:
            _log.warning("model %s: %s", model_id, outcome["description"])
    return evaluations


@dataclass(frozen=True)
class Shown:
    evaluation: AssetCheckEvaluation
    # the UI forgets an evaluation from before the asset's last materialisation
    is_current: bool


def _shown(instance: DagsterInstance, keys: Sequence[AssetCheckKey]) -> dict[AssetCheckKey, Shown]:
    if not keys:
        return {}
    made = {
        record.asset_entry.asset_key: record.asset_entry.last_materialization_record
        for record in instance.get_asset_records([key.asset_key for key in keys])
    }
    found = {}
    for key, record in instance.event_log_storage.get_latest_asset_check_execution_by_key(keys).items():
        last = made.get(key.asset_key)
        # while a run evaluates the check, its record holds a plan and no outcome
        if isinstance(record.evaluation, AssetCheckEvaluation):
            found[key] = Shown(record.evaluation, last is None or last.timestamp < record.create_timestamp)
    return found


def _says(evaluation: AssetCheckEvaluation, outcome: Mapping[str, Any]) -> bool:
    return (evaluation.passed, evaluation.description) == (outcome["passed"], outcome["description"])


def definitions() -> Definitions:
    return Definitions(sensors=[arrivals])
