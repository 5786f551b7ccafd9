"""When ingest works by itself: due harvest windows, forgotten tasks, signals, a bucket of stale records a day."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta

from dagster import (
    AssetCheckEvaluation,
    AssetCheckKey,
    AssetKey,
    AssetSelection,
    DagsterInstance,
    DagsterRunStatus,
    DefaultScheduleStatus,
    DefaultSensorStatus,
    Definitions,
    RunRequest,
    RunsFilter,
    ScheduleDefinition,
    ScheduleEvaluationContext,
    SensorEvaluationContext,
    SkipReason,
    sensor,
)
from dagster._core.storage.tags import ASSET_PARTITION_RANGE_END_TAG, ASSET_PARTITION_RANGE_START_TAG
from sqlalchemy import Engine

from assets.ingest.complete import check_outcome
from assets.ingest.endpoint_assets import WINDOWS_PER_RUN
from assets.ingest.loading import load_endpoints
from assets.ingest.names import COMPLETE, ENDPOINT_TAG, GROUP, asset_key, endpoint_tag
from assets.ingest.partitions import bucket_partitions
from assets.ingest.reports import is_materialised, is_partition, materialization, partition_of
from assets.ingest.retention import ingest_retention
from assets.op_names import op_name
from assets.shown_checks import newest_evaluations
from platform_defs.ingest.codes import Operation
from platform_defs.ingest.cursors.catching_up import catch_up
from platform_defs.ingest.cursors.operations import read_plan_cursor, read_watermark
from platform_defs.ingest.kinds_of_work import INGEST_DRAIN
from platform_defs.ingest.ledger.forgotten import is_forgotten
from platform_defs.ingest.ledger.queue import buckets_begun_since, buckets_with_signals, waits_until
from platform_defs.ingest.ledger.reports import claim_report, mark_reported, unreported_plans
from platform_defs.ingest.ledger.windows import plan_report, was_begun, window_states
from platform_defs.ingest.planning.harvest_requests import TRY_AGAIN_AFTER, windows_to_request
from platform_defs.ingest.planning.windows import WindowGrid
from platform_defs.ingest.spec.compiler import compile_all
from platform_defs.ingest.spec.model import Spec
from platform_defs.ingest.tasks.blocks import list_blocks
from platform_defs.ingest.tasks.health import read_limits
from platform_defs.settings import Settings
from platform_defs.work import rows
from platform_defs.work.wake import wake
from resources.database import DatabaseResource
from sensors.nightly import nightly
from sensors.ticks import noted_tick

INTERVAL_S = 30
UPKEEP = "ingest_upkeep"
# The schedules of staleness, and so the jobs that Dagster makes of them, are called this and then by their endpoint.
STALENESS = "ingest_staleness__"
# An executor picks a task up within seconds: one that has been due for this long has none.
FORGOTTEN_AFTER = timedelta(seconds=60)
# A run tells Dagster of a window in the moment after it completed it.
REPORTED_AFTER = timedelta(seconds=60)
REPORTS_PER_TICK = 50
_UNFINISHED = [
    DagsterRunStatus.QUEUED,
    DagsterRunStatus.NOT_STARTED,
    DagsterRunStatus.STARTING,
    DagsterRunStatus.STARTED,
    DagsterRunStatus.CANCELING,
]


def plan_due_windows(
    context: SensorEvaluationContext, loaded: Mapping[AssetKey, Spec]
) -> Iterator[RunRequest | SkipReason]:
    """Requests the harvest windows between the watermark and now minus the safety lag, and buckets with signals.

    Only for assets that are `loaded`: one request for an asset or a partition that Dagster does not know, because the
    Registry has changed a moment ago, would stop those of all other endpoints.
    """
    now, asked, later = datetime.now(UTC), 0, ""
    with DatabaseResource().open() as engine:
        blocked = {(block.provenance_code, block.endpoint_name) for block in list_blocks(engine)}
        for operation, requests_of in ((Operation.HARVEST, _harvest_requests), (Operation.UPDATE, _signal_requests)):
            for spec in _specs(engine, now, operation):
                if (spec.provenance_code, spec.endpoint_name) in blocked or not _is_loaded(spec, loaded):
                    continue
                if (until := waits_until(engine, *_names(spec), now)) is not None:
                    later += f"; {endpoint_tag(*_names(spec))} waits until {until:%F %T} UTC, as its source demands"
                    continue
                for request in requests_of(context.instance, engine, spec, now):
                    asked += 1
                    yield request
    if not asked:
        waiting = "".join(
            f"; {code}/{endpoint} is blocked until `platform ingest unblock {code} {endpoint}`"
            for code, endpoint in sorted(blocked)
        )
        yield SkipReason(f"no window is due, or a run is at work on it; no record was asked for{later}{waiting}")


def keep_ingest_going(context: SensorEvaluationContext) -> SkipReason:
    """For the platform itself: has forgotten tasks drained, windows reported, and the check `complete` kept true."""
    now = datetime.now(UTC)
    with noted_tick(UPKEEP) as engine:
        draining = is_forgotten(engine, now, waiting_for=FORGOTTEN_AFTER)
        if draining:
            interval = int(now.timestamp() // FORGOTTEN_AFTER.total_seconds())
            rows.enqueue_unless_open(engine, INGEST_DRAIN, key=f"{INGEST_DRAIN}:{interval}")
            wake(Settings.load().home)
        reported = _report_completed(context.instance, engine, now)
        changed = _report_checks(context.instance, engine, now)
    return SkipReason(
        f"draining: {'yes' if draining else 'no'}, windows reported: {reported}, checks changed: {changed}"
    )


def staleness_schedule(spec: Spec) -> ScheduleDefinition:
    """One bucket a day: all stale records of the endpoint are looked at in turn."""

    def request_bucket(context: ScheduleEvaluationContext) -> RunRequest:
        day = context.scheduled_execution_time
        keys = bucket_partitions(spec).get_partition_keys()
        return _update_request(spec, keys[day.toordinal() % len(keys)], run_key=f"{day:%F}")

    return ScheduleDefinition(
        name=f"{STALENESS}{op_name(spec.provenance_code, spec.endpoint_name)}",
        execution_fn=request_bucket,
        target=AssetSelection.assets(asset_key(*_names(spec))),
        cron_schedule="17 4 * * *",
        execution_timezone="UTC",
        default_status=DefaultScheduleStatus.RUNNING,
        description=f"{spec.provenance_code}/{spec.endpoint_name}. {staleness_schedule.__doc__}",
    )


def definitions() -> Definitions:
    """Without an endpoint there is nothing to request: Dagster refuses a sensor that selects no asset."""
    upkeep = sensor(
        name=UPKEEP,
        minimum_interval_seconds=INTERVAL_S,
        default_status=DefaultSensorStatus.RUNNING,
        description=keep_ingest_going.__doc__,
    )(keep_ingest_going)
    retention = nightly(ingest_retention, "51 3 * * *", "forgets batches and cursor events that ended long ago")
    compiled = [found for endpoint in load_endpoints() for found in endpoint.specs.values()]
    if not compiled:
        return Definitions(sensors=[upkeep], schedules=[retention])
    selection = AssetSelection.groups(GROUP)
    loaded = {asset_key(*_names(each.spec)): each.spec for each in compiled}

    @sensor(
        name="ingest_planner",
        asset_selection=selection,
        minimum_interval_seconds=INTERVAL_S,
        default_status=DefaultSensorStatus.RUNNING,
        description="Requests due harvest windows, windows that failed a while ago, and buckets with signals.",
    )
    def planner(context: SensorEvaluationContext) -> Iterator[RunRequest | SkipReason]:
        yield from plan_due_windows(context, loaded)

    updates = [
        each.spec for each in compiled if each.spec.operation is Operation.UPDATE and each.spec.detail is not None
    ]
    return Definitions(
        sensors=[upkeep, planner], schedules=[retention, *(staleness_schedule(spec) for spec in updates)]
    )


def _names(spec: Spec) -> tuple[str, str, Operation]:
    return spec.provenance_code, spec.endpoint_name, spec.operation


def _specs(engine: Engine, now: datetime, operation: Operation) -> list[Spec]:
    found = [endpoint.specs.get(operation) for endpoint in compile_all(engine, now)]
    return [
        compiled.spec
        for compiled in found
        if compiled is not None and (operation is not Operation.UPDATE or compiled.spec.detail is not None)
    ]


def _is_loaded(spec: Spec, loaded: Mapping[AssetKey, Spec]) -> bool:
    """Whether Dagster has the asset, with the same partitions."""
    known = loaded.get(asset_key(*_names(spec)))
    if known is None or spec.operation is Operation.UPDATE:
        return known is not None and known.update_buckets == spec.update_buckets
    return WindowGrid.of(known.window) == WindowGrid.of(spec.window)


def _harvest_requests(instance: DagsterInstance, engine: Engine, spec: Spec, now: datetime) -> Iterator[RunRequest]:
    states = window_states(engine, *_names(spec))
    windows = windows_to_request(
        spec.window,
        read_watermark(engine, spec),
        states,
        now,
        most=WINDOWS_PER_RUN,
        is_in_trouble=_names(spec) in read_limits(engine, now),
    )
    if not windows or _is_at_work(instance, spec):
        return
    grid = WindowGrid.of(spec.window)
    first, last = grid.key_of(windows[0]), grid.key_of(windows[-1])
    attempts = max((states[window].plan_id for window in windows if window in states), default=0)
    yield RunRequest(
        # the plans that the windows have by now: windows that are tried again are another request
        run_key=f"{endpoint_tag(*_names(spec))}:{first}:{last}:{attempts}:{now:%Y%m%d%H%M}",
        asset_selection=[asset_key(*_names(spec))],
        tags={
            ASSET_PARTITION_RANGE_START_TAG: first,
            ASSET_PARTITION_RANGE_END_TAG: last,
            ENDPOINT_TAG: endpoint_tag(*_names(spec)),
        },
    )


def _signal_requests(instance: DagsterInstance, engine: Engine, spec: Spec, now: datetime) -> Iterator[RunRequest]:
    buckets = set(buckets_with_signals(engine, spec.provenance_code, spec.endpoint_name, spec.update_buckets))
    # what ended incomplete a moment ago would end so again
    buckets -= buckets_begun_since(engine, spec.provenance_code, spec.endpoint_name, now - TRY_AGAIN_AFTER)
    if not buckets or _is_at_work(instance, spec):
        return
    keys = bucket_partitions(spec).get_partition_keys()
    for bucket in sorted(buckets):
        run_key = f"{endpoint_tag(*_names(spec))}:{keys[bucket]}:{now:%Y%m%d%H%M}"
        yield _update_request(spec, keys[bucket], run_key=run_key)


def _update_request(spec: Spec, key: str, *, run_key: str) -> RunRequest:
    return RunRequest(
        run_key=run_key,
        asset_selection=[asset_key(*_names(spec))],
        partition_key=key,
        tags={ENDPOINT_TAG: endpoint_tag(*_names(spec))},
    )


def _is_at_work(instance: DagsterInstance, spec: Spec) -> bool:
    wanted = RunsFilter(tags={ENDPOINT_TAG: endpoint_tag(*_names(spec))}, statuses=_UNFINISHED)
    return bool(instance.get_run_records(wanted, limit=1))


def _report_completed(instance: DagsterInstance, engine: Engine, now: datetime) -> int:
    """Windows that an executor completed after their run had ended, or outside of Dagster, also if it died then."""
    specs = {
        (endpoint.provenance_code, endpoint.endpoint_name, operation): compiled.spec
        for endpoint in compile_all(engine, now)
        for operation, compiled in endpoint.specs.items()
    }
    reported = 0
    for plan_id in unreported_plans(engine, now, older_than=REPORTED_AFTER, limit=REPORTS_PER_TICK):
        if (claim := claim_report(engine, plan_id, now)) is None:
            continue
        catch_up(engine, plan_id, now)
        report = plan_report(engine, plan_id)
        spec = specs.get((report.provenance_code, report.endpoint_name, report.operation))
        if spec is not None and is_partition(report, spec):
            partition, after = partition_of(report, spec), read_plan_cursor(engine, spec, plan_id)
            if not (claim.may_be_told and is_materialised(instance, report, partition)):
                instance.report_runless_asset_event(materialization(report, partition, after=after))
        mark_reported(engine, [plan_id], now)
        reported += 1
    return reported


def _report_checks(instance: DagsterInstance, engine: Engine, now: datetime) -> int:
    changed = 0
    specs = [spec for operation in Operation for spec in _specs(engine, now, operation)]
    keys = [AssetCheckKey(asset_key(*_names(spec)), COMPLETE) for spec in specs]
    newest = newest_evaluations(instance, keys)
    for key, spec in zip(keys, specs, strict=True):
        outcome = check_outcome(engine, spec)
        evaluation, is_shown = newest.get(key, (None, False))
        if evaluation is None and not was_begun(engine, *_names(spec)):
            continue
        told = None if evaluation is None else (evaluation.passed, evaluation.description)
        if not is_shown or told != (outcome["passed"], outcome["description"]):
            instance.report_runless_asset_event(AssetCheckEvaluation(key.asset_key, COMPLETE, **outcome))
            changed += 1
    return changed
