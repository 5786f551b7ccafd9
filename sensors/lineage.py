"""Triggers of the lineage system: the recovery sensor, the observation sensor and the nightly retention schedule."""

from datetime import UTC, datetime
from typing import Any

from dagster import (
    AssetCheckEvaluation,
    AssetKey,
    AssetObservation,
    DefaultSensorStatus,
    Definitions,
    MetadataValue,
    SensorEvaluationContext,
    SensorResult,
    SkipReason,
    TableColumn,
    TableSchema,
    sensor,
)
from sqlalchemy import Engine

from assets.lineage import LINEAGE_GRAPH, RECOVERS, lineage_retention, recovery_outcome
from platform_defs.lineage import observations
from platform_defs.lineage.kinds_of_work import LINEAGE_APPLY
from platform_defs.lineage.observations import Observation, Position
from platform_defs.lineage.tables.keys import asset_key_of
from platform_defs.lineage.upkeep import recovery_failures
from platform_defs.lineage.upkeep.recovery import is_recovery_needed
from platform_defs.settings import Settings
from platform_defs.work import rows
from resources.database import DatabaseResource
from sensors.nightly import nightly
from sensors.ticks import noted_tick

# At most one row of work per interval is written, and none while one is open, so that a store which keeps failing is
# tried again but not at every tick.
RECOVERY_INTERVAL_S = 30


@sensor(
    minimum_interval_seconds=10,
    default_status=DefaultSensorStatus.RUNNING,
    description="For the platform itself: has lineage events applied that the graph lacks, and graphs rebuilt.",
)
def lineage_recovery(context: SensorEvaluationContext) -> SkipReason:
    """Writes a row of work when raw events wait for the graph or a tenant's graph needs a rebuild."""
    with noted_tick(lineage_recovery.name) as engine:
        needed = is_recovery_needed(engine)
        if not needed:
            # A sender who sends again, or an operator's rebuild, may have done what the recovery had failed to do. No
            # recovery runs any more that could say so.
            recovery_failures.record_success(engine)
        _report_check(context, engine)
        if not needed:
            return SkipReason("the graph has all events")
        interval = int(datetime.now(UTC).timestamp() // RECOVERY_INTERVAL_S)
        row = rows.enqueue_unless_open(engine, LINEAGE_APPLY, key=f"{LINEAGE_APPLY}:{interval}")
    return SkipReason(f"work {row.id} applies what the graph lacks, as run {row.run_id}")


@sensor(
    minimum_interval_seconds=10,
    default_status=DefaultSensorStatus.RUNNING,
    description="Shows tables that lineage events name as observed assets.",
)
def lineage_observations(context: SensorEvaluationContext) -> SensorResult | SkipReason:
    """Turns new events into observations of external tables: one per table and tick, with the newest event."""
    settings = Settings.load()
    if not settings.lineage_observe:
        return SkipReason("PLATFORM_LINEAGE_OBSERVE is off")
    with DatabaseResource().open() as engine:
        before = Position.read(context.cursor)
        tick = observations.observe(engine, before, without=settings.unobserved_tenants)
        # Dagster keeps a tick's cursor only if the tick succeeds. So a tick that reports observations saves the
        # position before them; the next tick, which starts from this tick's cursor, saves the position after them.
        observations.save_position(engine, (before if tick.observations else tick.position).last_id)
    if tick.position == before:
        return SkipReason("no new events")
    return SensorResult(
        asset_events=[_asset_observation(found, settings.arrivals_namespace) for found in tick.observations],
        cursor=str(tick.position),
    )


def _report_check(context: SensorEvaluationContext, engine: Engine) -> None:
    """Reports whether the recovery works to its asset check, at the first tick and whenever the outcome changes."""
    outcome = recovery_outcome(engine)
    state = f"{outcome.passed}: {outcome.description}"
    if context.cursor != state:
        evaluation = AssetCheckEvaluation(
            LINEAGE_GRAPH, RECOVERS, outcome.passed, description=outcome.description, severity=outcome.severity
        )
        context.instance.report_runless_asset_event(evaluation)
        context.update_cursor(state)


def _asset_observation(found: Observation, namespace: str) -> AssetObservation:
    metadata: dict[str, Any] = {
        "namespace": found.table.namespace,
        "name": found.table.name,
        "tenant": f"{found.table.tenant_id} ({found.tenant_code})",
        "producing job" if found.written else "reading job": found.job or "none",
        "event type": found.event_type or "none",
        "event time": MetadataValue.timestamp(found.event_time),
        "events": found.events,
    }
    if found.run_id:
        metadata["run"] = found.run_id
    if found.columns:
        columns = [TableColumn(name, kind or "unknown") for name, kind in found.columns]
        metadata["dagster/column_schema"] = MetadataValue.table_schema(TableSchema(columns))
    return AssetObservation(AssetKey(asset_key_of(found.table, namespace)), metadata=metadata)


def definitions() -> Definitions:
    return Definitions(
        sensors=[lineage_recovery, lineage_observations],
        schedules=[nightly(lineage_retention, "41 2 * * *", "forgets lineage beyond its retention")],
    )
