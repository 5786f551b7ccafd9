"""The logical tables that an event reads and writes."""

from collections.abc import Iterator
from dataclasses import dataclass

from platform_defs.access.principal import SourceType
from platform_defs.lineage.events import Dataset, Event
from platform_defs.lineage.extract.compute.names import LogicalTables
from platform_defs.lineage.extract.facts_of import facts_of
from platform_defs.lineage.extract.gravitino.names import ref_of
from platform_defs.lineage.extract.gravitino.operations import operation_of
from platform_defs.lineage.facts import Ref, Renamed


@dataclass(frozen=True, slots=True)
class TableInEvent:
    """ref: the table by its logical name, after the event if the event renames it."""

    ref: Ref
    dataset: Dataset
    written: bool


def tables_in(event: Event, source_type: str | None, tables: LogicalTables) -> Iterator[TableInEvent]:
    """Inputs come first: of a table that is read and written, the last one found is the one that is written."""
    is_gravitino = source_type == SourceType.GRAVITINO
    renamed: dict[Ref, Ref] = {}
    if is_gravitino:
        operation = operation_of(event) or ""
        # Gravitino also sends catalogs, schemas, metrics and tags as datasets, which are no tables
        if not operation.endswith("_table"):
            return
        if operation == "alter_table":
            facts = facts_of(event, SourceType.GRAVITINO).facts
            renamed = {fact.ref: fact.new for fact in facts if isinstance(fact, Renamed)}
    single = () if event.dataset is None else (event.dataset,)
    for written, datasets in ((False, event.inputs), (True, (*event.outputs, *single))):
        for dataset in datasets:
            ref = (ref_of("table", dataset) if is_gravitino else None) or tables.of(dataset)
            yield TableInEvent(renamed.get(ref, ref), dataset, written)
