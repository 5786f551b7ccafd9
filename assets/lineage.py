"""Upkeep of the lineage sink: what a failure left undone is applied, what is too old is forgotten."""

from dataclasses import asdict
from datetime import UTC, datetime

from dagster import Definitions, OpExecutionContext, job, op

from platform_defs.lineage.upkeep.recovery import recover
from platform_defs.lineage.upkeep.retention import Retention, forget
from platform_defs.settings import Settings
from resources.database import DatabaseResource
from resources.graph import GraphResource


@op
def apply_waiting_events(context: OpExecutionContext, database: DatabaseResource, graph: GraphResource) -> None:
    """Raw events that the graph lacks, oldest first, then the graphs that need a rebuild."""
    recovered = recover(database.engine, graph.graph)
    context.log.info(f"applied {recovered.applied} events, rebuilt the graphs of {len(recovered.rebuilt)} tenants")
    context.add_output_metadata(
        {
            "applied": recovered.applied,
            "refused": recovered.refused,
            "rebuilt": ", ".join(map(str, recovered.rebuilt)) or "none",
        }
    )


# Bound here, not by the Definitions: a sensor that targets the job would be copied by a parameter that is still beta.
_DATABASE = DatabaseResource()


@job(
    description="Applies raw lineage events that the graph lacks and rebuilds the graphs that need it.",
    resource_defs={"database": _DATABASE, "graph": GraphResource(database=_DATABASE)},
)
def lineage_apply() -> None:
    apply_waiting_events()


@op
def forget_old_lineage(context: OpExecutionContext, database: DatabaseResource, graph: GraphResource) -> None:
    """Raw events, counted runs, dead letters and tombstones beyond their retention."""
    settings = Settings.load()
    retention = Retention(
        events=settings.lineage_retention_days,
        tombstones=settings.lineage_tombstone_days,
        dead_letters=settings.lineage_dead_letter_days,
    )
    forgotten = forget(database.engine, graph.graph, retention, datetime.now(UTC))
    context.log.info(f"forgot {forgotten}")
    context.add_output_metadata(asdict(forgotten))


@job(description="Forgets raw lineage events, refused events and tombstones beyond their retention.")
def lineage_retention() -> None:
    forget_old_lineage()


def definitions() -> Definitions:
    return Definitions(jobs=[lineage_apply, lineage_retention])
