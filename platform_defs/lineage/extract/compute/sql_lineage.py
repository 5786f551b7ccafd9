"""Column lineage that an event's SQL text tells, between the tables that the event has as inputs and outputs."""

from collections.abc import Sequence

from platform_defs.lineage.events import Dataset, Event
from platform_defs.lineage.extract.columns import column_names
from platform_defs.lineage.extract.compute.column_lineage import ColumnSources
from platform_defs.lineage.extract.compute.engines import parser_dialect
from platform_defs.lineage.extract.compute.names import LogicalTables, sql_name
from platform_defs.lineage.extract.compute.sql import Output, column_outputs
from platform_defs.lineage.extract.compute.sql_columns import same_table
from platform_defs.lineage.facts import Ref


def sources_of_sql(event: Event, text: str, tables: LogicalTables) -> ColumnSources:
    """The column lineage in the SQL text, between tables that the event has as inputs and outputs."""
    inputs = {tables.of(dataset): _columns_of(dataset) for dataset in event.inputs}
    outputs = {tables.of(dataset): _columns_of(dataset) for dataset in event.outputs}
    schemas = tuple((sql_name(table), tuple(columns.values())) for table, columns in inputs.items())
    sources: ColumnSources = {}
    for output in column_outputs(text, parser_dialect(event), schemas):
        table = _target(output, list(outputs))
        if table is None:
            continue
        column = Ref("column", (*table.name, _output_column(output, outputs[table])))
        for source in output.sources:
            origin = _find_table(source.table, list(inputs))
            if origin is not None:
                name = inputs[origin].get(source.column.lower(), source.column)
                key = (column, Ref("column", (*origin.name, name)))
                sources.setdefault(key, []).append({"type": "DIRECT", "subtype": source.subtype})
    return sources


def _columns_of(dataset: Dataset) -> dict[str, str]:
    """The names of the dataset's columns by their lower-case form."""
    return {name.lower(): name for name in column_names(dataset)}


def _output_column(output: Output, columns: dict[str, str]) -> str:
    """The output column's name. An INSERT that lists no columns fills by position; else the name in the text counts."""
    spelled = columns.get(output.column.lower())
    if spelled is not None or output.named or not output.target or output.width != len(columns):
        return spelled or output.column
    return list(columns.values())[output.position]


def _target(output: Output, tables: Sequence[Ref]) -> Ref | None:
    """The output table. If the event has only one, the text filled it, even if the text spells its name differently."""
    return (_find_table(output.target, tables) if output.target else None) or (tables[0] if len(tables) == 1 else None)


def _find_table(written: tuple[str, ...], tables: Sequence[Ref]) -> Ref | None:
    found = [table for table in tables if same_table(written, sql_name(table))]
    return found[0] if len(found) == 1 else None
