"""Dagster jobs that keep lineage in order: `lineage_apply` after failures, `lineage_retention` every night."""

from datetime import UTC, datetime

from dagster import (
    AssetCheckResult,
    AssetKey,
    AssetSpec,
    Definitions,
    OpExecutionContext,
    asset_check,
    job,
    op,
)
from sqlalchemy import Engine

from assets.retention import tell_deleted
from platform_defs.lineage.upkeep import recovery_failures
from platform_defs.lineage.upkeep.recovery import recover
from platform_defs.lineage.upkeep.retention import Retention, delete_expired
from platform_defs.settings import Settings
from resources.database import DatabaseResource
from resources.graph import GraphResource


@op
def apply_waiting_events(context: OpExecutionContext, database: DatabaseResource, graph: GraphResource) -> None:
    """Applies raw events that the graph lacks, oldest first, then rebuilds the graphs that need it."""
    report = recover(database.engine, graph.graph)
    done = f"applied {report.applied} events, rebuilt the graphs of {len(report.rebuilt)} tenants"
    nothing = report.applied == report.refused == report.waiting == 0 and not report.rebuilt
    context.log.info("nothing to do: the graph has all events" if nothing else done)
    if report.refused:
        context.log.warning(f"{report.refused} events can never be applied: they are dead letters now")
    if report.waiting:
        context.log.error(f"{report.waiting} events could not be applied and wait for the next try: {report.why}")
    context.add_output_metadata(
        {
            "applied": report.applied,
            "refused": report.refused,
            "waiting": report.waiting,
            "rebuilt": ", ".join(map(str, report.rebuilt)) or "none",
        }
    )


# The job binds its resources here and not through the Definitions object. For a sensor that targets a job, the
# Definitions object would have to copy the job with a parameter of Dagster that is still beta.
_DATABASE = DatabaseResource()


@job(
    description="For the platform itself: applies lineage events that the graph lacks, rebuilds graphs that need it.",
    resource_defs={"database": _DATABASE, "graph": GraphResource(database=_DATABASE)},
)
def lineage_apply() -> None:
    apply_waiting_events()


@op
def forget_old_lineage(context: OpExecutionContext, database: DatabaseResource, graph: GraphResource) -> None:
    """Deletes raw events, counted runs, dead letters and tombstones that are older than their retention."""
    settings = Settings.load()
    retention = Retention(
        events=settings.lineage_retention_days,
        tombstones=settings.lineage_tombstone_days,
        dead_letters=settings.lineage_dead_letter_days,
    )
    report = delete_expired(database.engine, graph.graph, retention, datetime.now(UTC))
    tell_deleted(context, report)


@job(description="For the platform itself: deletes lineage events and tombstones that are older than their retention.")
def lineage_retention() -> None:
    forget_old_lineage()


LINEAGE_GRAPH = AssetKey("lineage_graph")
RECOVERS = "recovery_works"


def recovery_outcome(engine: Engine) -> AssetCheckResult:
    """Passes unless the recovery keeps failing; then it says since when and why."""
    failures = recovery_failures.read_failures(engine)
    if failures is None or not failures.is_degraded:
        return AssetCheckResult(passed=True, description="events that the graph lacks are brought into it")
    since = failures.since.isoformat(timespec="seconds")
    return AssetCheckResult(passed=False, description=f"the recovery fails since {since}: {failures.error}")


@asset_check(
    asset=LINEAGE_GRAPH, name=RECOVERS, description="The recovery of the lineage graphs does not keep failing."
)
def recovery_works(database: DatabaseResource) -> AssetCheckResult:
    return recovery_outcome(database.engine)


def definitions() -> Definitions:
    graph = AssetSpec(
        LINEAGE_GRAPH,
        description="The asset graphs of all tenants, which the lineage sink keeps.",
        group_name="platform",
    )
    return Definitions(assets=[graph], asset_checks=[recovery_works], jobs=[lineage_apply, lineage_retention])
