"""The assets of an endpoint: harvest and backfill by windows, update by buckets."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dagster import (
    AssetExecutionContext,
    AssetsDefinition,
    BackfillPolicy,
    DagsterExecutionInterruptedError,
    Failure,
    Nothing,
    Out,
    op,
)

from assets.ingest.complete import AGAIN, BEGIN_ANEW, GOES_ON
from assets.ingest.names import GROUP, PLAN_TAG, asset_key, plan_tag_of
from assets.ingest.partitions import bucket_partitions, partition_key, window_partitions
from assets.ingest.reports import is_materialised, materialization, partition_of
from assets.op_names import op_name
from platform_defs.ingest.codes import Operation, PlanStatus, Trigger
from platform_defs.ingest.errors import IngestError
from platform_defs.ingest.ledger.reports import claim_report, mark_reported
from platform_defs.ingest.materialisation import (
    IngestEnvironment,
    Listener,
    PartitionResult,
    materialise_bucket,
    materialise_windows,
)
from platform_defs.ingest.planning.planner import PlannedWork
from platform_defs.ingest.planning.schedule import TriggerContext
from platform_defs.ingest.planning.windows import Window, WindowGrid
from platform_defs.ingest.spec.model import CompiledSpec, Spec
from platform_defs.ingest.tasks.blocks import why_not_asked
from resources.ingest import IngestResource

# A backfill over a year is twelve runs, not one process a day.
WINDOWS_PER_RUN = 31
DESCRIPTIONS = {
    Operation.HARVEST: "New and changed records of {}, a window of time per partition. Fetched by itself when due.",
    Operation.BACKFILL: "Windows of {} that somebody wants to have fetched again; nothing does that by itself.",
    Operation.UPDATE: "Stored records of {}, fetched again by their ids: those that are stale or were read by older"
    " expressions, and those that somebody asked for.",
}


def window_asset(compiled: CompiledSpec) -> AssetsDefinition:
    spec = compiled.spec
    partitions, grid = window_partitions(spec), WindowGrid.of(spec.window)

    def fetch(context: AssetExecutionContext, environment: IngestEnvironment) -> list[PartitionResult]:
        windows = [grid.window_of_key(key) for key in sorted(context.partition_keys)]
        if spec.operation is Operation.BACKFILL:
            windows.reverse()
        return _fetch_windows(context, environment, spec, windows)

    return _asset(spec, partitions, fetch, BackfillPolicy.multi_run(WINDOWS_PER_RUN))


def bucket_asset(compiled: CompiledSpec) -> AssetsDefinition | None:
    """None where the endpoint cannot be asked for records by their ids."""
    spec = compiled.spec
    if spec.detail is None:
        return None

    def fetch(context: AssetExecutionContext, environment: IngestEnvironment) -> list[PartitionResult]:
        results = []
        for key in sorted(context.partition_keys):
            result = materialise_bucket(
                environment,
                spec.provenance_code,
                spec.endpoint_name,
                int(key),
                _trigger(context, [key]),
                listener=_listener(context, environment, spec),
            )
            results.append(result)
        return results

    return _asset(spec, bucket_partitions(spec), fetch, BackfillPolicy.multi_run(WINDOWS_PER_RUN))


def _asset(spec: Spec, partitions: Any, fetch: Any, policy: BackfillPolicy) -> AssetsDefinition:
    key = asset_key(spec.provenance_code, spec.endpoint_name, spec.operation)
    description = DESCRIPTIONS[spec.operation].format(f"{spec.provenance_code}/{spec.endpoint_name}")

    # the output is optional: each window is materialised by an event of its own, when it is complete
    @op(
        name=op_name(spec.provenance_code, spec.endpoint_name, spec.operation.lower()),
        out=Out(Nothing, is_required=False),
        tags={"platform/system": "ingest"},
    )
    def execute(context: AssetExecutionContext, ingest: IngestResource) -> Iterator[Any]:
        with ingest.opened() as environment:
            try:
                results = fetch(context, environment)
            except IngestError as error:
                raise Failure(str(error), allow_retries=False) from error
            except DagsterExecutionInterruptedError:
                context.log.warning(_what_goes_on(spec, sorted(context.partition_keys)))
                raise
            _fail_if_incomplete(environment, spec, results)
        yield from ()

    return AssetsDefinition(
        keys_by_input_name={},
        keys_by_output_name={"result": key},
        node_def=execute,
        partitions_def=partitions,
        group_names_by_key={key: GROUP},
        descriptions_by_key={key: description},
        backfill_policy=policy,
        can_subset=False,
    )


def _what_goes_on(spec: Spec, keys: Sequence[str]) -> str:
    """For somebody who terminates a run to stop a harvest: its tasks are in a queue, and the run is only one reader."""
    if spec.operation is Operation.UPDATE:
        which = f"--bucket {int(keys[0])}" if len(keys) == 1 else "--all"
    else:
        first, last = (WindowGrid.of(spec.window).window_of_key(key) for key in (keys[0], keys[-1]))
        which = f"--from {first.start:%FT%H:%M} --to {last.end:%FT%H:%M}"
    names = f"{spec.provenance_code} {spec.endpoint_name} --operation {spec.operation.lower()}"
    return (
        "this run was stopped. What it had planned and not fetched stays in the queue, and another run goes on with it"
        f" within a minute or two; `platform ingest cancel {names} {which}` takes it back"
    )


def _fail_if_incomplete(environment: IngestEnvironment, spec: Spec, results: Sequence[PartitionResult]) -> None:
    missing = [result for result in results if not result.is_complete]
    if not missing:
        return
    reasons = "; ".join(f"{partition_of(each.report, spec)}: {_reason(each)}" for each in missing[:10])
    advice = why_not_asked(environment.engine, spec.provenance_code, spec.endpoint_name) or _advice(spec, missing)
    count = f"{len(missing)} of {len(results)} partitions are incomplete"
    raise Failure(f"{count}: {reasons}. {advice}", allow_retries=False)


def _advice(spec: Spec, missing: Sequence[PartitionResult]) -> str:
    if all(each.report.is_under_way for each in missing):
        return GOES_ON
    is_cancelled = all(each.report.status is PlanStatus.CANCELLED for each in missing)
    return BEGIN_ANEW if is_cancelled else AGAIN[spec.operation]


def _fetch_windows(
    context: AssetExecutionContext, environment: IngestEnvironment, spec: Spec, windows: Sequence[Window]
) -> list[PartitionResult]:
    keys = [WindowGrid.of(spec.window).key_of(window) for window in windows]
    return materialise_windows(
        environment,
        spec.provenance_code,
        spec.endpoint_name,
        spec.operation,
        windows,
        _trigger(context, keys),
        listener=_listener(context, environment, spec),
    )


def _listener(context: AssetExecutionContext, environment: IngestEnvironment, spec: Spec) -> Listener:
    """The run's tags and events say what is planned, what goes wrong and how far it is."""

    def tag(planned: Mapping[Window | int, PlannedWork]) -> None:
        keys = {partition_key(spec, each): plan.plan_key for each, plan in planned.items()}
        is_single = len(context.partition_keys) == 1
        context.instance.add_run_tags(
            context.run_id, {PLAN_TAG if is_single else plan_tag_of(key): plan for key, plan in keys.items()}
        )

    return Listener(
        on_planned=tag,
        on_trouble=context.log.warning,
        on_progress=context.log.info,
        on_result=lambda result: _tell(context, environment, spec, result),
    )


def _tell(context: AssetExecutionContext, environment: IngestEnvironment, spec: Spec, result: PartitionResult) -> None:
    """Materialises a complete partition once, with its own metadata; an incomplete one only says why."""
    partition = partition_of(result.report, spec)
    if not result.is_complete:
        context.log.error(f"{partition} is incomplete: {_reason(result)}")
        return
    if (claim := claim_report(environment.engine, result.plan.plan_id, environment.clock())) is None:
        context.log.info(f"{partition} is complete, and was materialised when another executor had completed it")
        return
    before, after = result.cursor_before, result.cursor_after
    if not (claim.may_be_told and is_materialised(context.instance, result.report, partition)):
        context.log_event(materialization(result.report, partition, before=before, after=after))
    mark_reported(environment.engine, [result.plan.plan_id], environment.clock())


def _reason(result: PartitionResult) -> str:
    return "; ".join(result.report.unfinished[:5]) or f"its plan is {result.report.status}"


def _trigger(context: AssetExecutionContext, keys: Sequence[str]) -> TriggerContext:
    is_asked_by_sensor = "dagster/sensor_name" in context.run.tags or "dagster/schedule_name" in context.run.tags
    return TriggerContext(
        Trigger.SCHEDULE if is_asked_by_sensor else Trigger.MANUAL,
        "dagster",
        scheduler_job_id=context.job_name,
        scheduler_log_id=context.run_id,
        params={"partitions": list(keys)},
    )
