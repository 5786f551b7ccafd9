"""What one event says about the graph: by operation for Gravitino's events, by the OpenLineage model for all others."""

from dataclasses import dataclass

from platform_defs.access.principal import SourceType
from platform_defs.lineage.events import Event
from platform_defs.lineage.extract.compute.lineage import lineage_facts
from platform_defs.lineage.extract.gravitino.operations import changes_metadata, operation_facts, operation_of
from platform_defs.lineage.facts import Fact, Ref


@dataclass(frozen=True, slots=True)
class Extraction:
    """`sql` is the SQL node that a run of the event executed, for its executionCount."""

    facts: tuple[Fact, ...]
    operation: str | None = None
    unknown_operation: bool = False
    sql: Ref | None = None


def facts_of(event: Event, source_type: SourceType) -> Extraction:
    """Never raises: what cannot be understood says nothing, the raw event keeps it. May take tens of ms for new SQL."""
    if source_type is SourceType.COMPUTE:
        lineage = lineage_facts(event)
        return Extraction(lineage.facts, sql=lineage.sql)
    operation = operation_of(event)
    if not changes_metadata(event):
        return Extraction((), operation)
    found = operation_facts(operation, event)
    if found is None:
        return Extraction((), operation, unknown_operation=True)
    return Extraction(found.facts, operation, sql=found.sql)
