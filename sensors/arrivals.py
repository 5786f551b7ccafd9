"""When table arrival needs work that no request brought: arrivals that ETL jobs wrote, crashes, lateness."""

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
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
    SensorResult,
    sensor,
)
from sqlalchemy import Engine, select

from assets.arrivals import report
from assets.models import ON_TIME, ROWS, judged, model_key
from platform_defs.arrivals import lateness, recovery
from platform_defs.arrivals.lateness import Late
from platform_defs.arrivals.recovery import Dead
from platform_defs.arrivals.webhooks import deliveries
from platform_defs.errors import PlatformError
from platform_defs.runner import work
from platform_defs.runner.arrivals import queue
from platform_defs.runner.fingerprint import rows_of
from platform_defs.runner.kinds import WEBHOOK_SEND
from platform_defs.runner.launcher import WarmRunLauncher
from platform_defs.runner.reload import CodeServer
from platform_defs.runner.wake import wake
from platform_defs.settings import Settings
from platform_defs.store.arrivals import metrics_task_log
from platform_defs.store.engine import read
from resources.database import DatabaseResource

# An API process sends within a second; what waits this long waits for one that is not there.
UNSENT = timedelta(seconds=30)
_RELOADING = threading.Lock()
_log = logging.getLogger(__name__)


@sensor(minimum_interval_seconds=5, default_status=DefaultSensorStatus.RUNNING)
def arrivals(context: SensorEvaluationContext) -> SensorResult:
    """Begins what ETL jobs made due, makes good for what crashed, reports arrivals and tells what is late."""
    settings, now = Settings.load(), datetime.now(UTC)
    lookback, zone = timedelta(days=settings.arrivals_lookback_days), ZoneInfo(settings.zone)
    with DatabaseResource().opened() as engine:
        ended = _ended_runs(context.instance, engine, timedelta(seconds=settings.model_timeout_s), now)
        settled = recovery.settle(engine, queue, now, ended)
        begun = recovery.sweep(engine, queue, lookback, now)
        sending = _send_overdue(engine, now)
        if settled.begun or begun or sending:
            wake(settings.home)
        told = report(context.instance, engine, now - lookback)
        late = read(engine, lambda connection: lateness.look(connection, zone, now, lookback))
        _reload_if_behind(context, CodeServer(settings, engine), read(engine, rows_of))
    return SensorResult(
        skip_reason=f"begun {len(settled.begun) + len(begun)}, closed {len(settled.closed)}, reported {told}",
        asset_events=_changed(context.instance, late, zone),
    )


def _ended_runs(instance: DagsterInstance, engine: Engine, longest: timedelta, now: datetime) -> list[Dead]:
    """Executions of runs that Dagster launched without us, and that are over."""
    running = read(engine, recovery.without_work)
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
    """A row of work per interval where webhooks wait and no API process is alive to send them."""
    if not read(engine, lambda connection: deliveries.overdue(connection, UNSENT)):
        return False
    interval = int(now.timestamp() // UNSENT.total_seconds())
    work.enqueue(engine, WEBHOOK_SEND, {}, key=f"{WEBHOOK_SEND}:{interval}")
    return True


def _reload_if_behind(context: SensorEvaluationContext, server: CodeServer, rows: str) -> None:
    """With a cluster's launcher no runner asks for a reload after a model was published: we do, and do not wait."""
    if isinstance(context.instance.run_launcher, WarmRunLauncher) or context.repository_def is None:
        return
    loaded = (context.repository_def.metadata or {}).get(ROWS)
    if loaded is not None and loaded.value != rows and _RELOADING.acquire(blocking=False):
        threading.Thread(target=_reload, args=(server,), name="reload", daemon=True).start()


def _reload(server: CodeServer) -> None:
    try:
        server.reload()
    except (PlatformError, OSError) as error:
        _log.error("the code server could not load what was published, and is asked again: %s", error)
    finally:
        _RELOADING.release()


def _changed(
    instance: DagsterInstance, late: Mapping[str, Sequence[Late]], zone: ZoneInfo
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
