"""Extracts the facts of one event: by operation if Gravitino sent it, by the OpenLineage model for compute engines."""

from dataclasses import dataclass

from platform_defs.access.principal import SourceType
from platform_defs.lineage.events import Event
from platform_defs.lineage.extract.compute.lineage import lineage_facts
from platform_defs.lineage.extract.gravitino.operations import changes_metadata, operation_facts, operation_of
from platform_defs.lineage.facts import Fact, Ref


@dataclass(frozen=True, slots=True)
class Extraction:
    """The facts of an event. sql: the SQL node that the event's run executed, whose executionCount grows."""

    facts: tuple[Fact, ...]
    operation: str | None = None
    unknown_operation: bool = False
    sql: Ref | None = None


def facts_of(event: Event, source_type: SourceType) -> Extraction:
    """The facts of an event. Never raises: parts that are not understood give no facts, and the raw event keeps them.

    SQL text that was not seen before takes tens of milliseconds.
    """
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
