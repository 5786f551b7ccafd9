"""Extracts the facts of one event: by operation if Gravitino sent it, by the OpenLineage model for compute engines."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from platform_defs.access.principal import SourceType
from platform_defs.lineage.events import Event
from platform_defs.lineage.extract.compute.names import LogicalTables
from platform_defs.lineage.extract.compute.recent import compute_facts
from platform_defs.lineage.extract.gravitino.operations import changes_metadata, operation_facts, operation_of
from platform_defs.lineage.facts import Fact, Ref


@dataclass(frozen=True, slots=True)
class Extraction:
    """The facts of an event. sql: the SQL node that the event's run executed, whose executionCount grows.

    symlinks: tables by the names that the event links to them. plain_names: other names of tables that the event uses.
    """

    facts: tuple[Fact, ...]
    operation: str | None = None
    unknown_operation: bool = False
    sql: Ref | None = None
    symlinks: Mapping[Ref, Ref] = field(default_factory=dict)
    plain_names: frozenset[Ref] = frozenset()


_NOTHING_LINKED: Mapping[Ref, Ref] = {}


def facts_of(event: Event, source_type: SourceType, linked: Mapping[Ref, Ref] = _NOTHING_LINKED) -> Extraction:
    """The facts of an event. Never raises: parts that are not understood give no facts, and the raw event keeps them.

    linked: what names mean by the symlinks of other events.

    SQL text that was not seen before takes tens of milliseconds.
    """
    if source_type is SourceType.COMPUTE:
        found = compute_facts(event, linked)
        # an event without a run is a run of its own
        facts = found.of_run(event.run_id or event.payload_hash)
        return Extraction(facts, sql=found.sql, symlinks=found.symlinks, plain_names=found.plain_names)
    operation = operation_of(event)
    if not changes_metadata(event):
        return Extraction((), operation)
    tables = LogicalTables(event, linked)
    changes = operation_facts(operation, event, tables)
    if changes is None:
        return Extraction((), operation, unknown_operation=True)
    if changes.sql is None:
        # the catalog speaks of its own tables, by their own names
        return Extraction(changes.facts, operation)
    names = frozenset(tables.plain)
    return Extraction(changes.facts, operation, sql=changes.sql, symlinks=tables.symlinks, plain_names=names)
