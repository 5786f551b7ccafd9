"""Column lineage that an event's SQL text tells, between the tables that the event has as inputs and outputs."""

from collections.abc import Sequence

from platform_defs.lineage.events import Dataset, Event
from platform_defs.lineage.extract.columns import column_names
from platform_defs.lineage.extract.compute.column_lineage import ColumnSources
from platform_defs.lineage.extract.compute.engines import parser_dialect
from platform_defs.lineage.extract.compute.names import LogicalTables, sql_name
from platform_defs.lineage.extract.compute.sql import Output, SqlStatement, statements_of
from platform_defs.lineage.extract.compute.sql_columns import TableName, same_table
from platform_defs.lineage.facts import Ref


def sources_of_sql(event: Event, text: str, tables: LogicalTables) -> ColumnSources:
    """The column lineage in the SQL text, between tables that the event has as inputs and outputs."""
    inputs = {tables.of(dataset): _columns_of(dataset) for dataset in event.inputs}
    outputs = {tables.of(dataset): _columns_of(dataset) for dataset in event.outputs}
    schemas = tuple((sql_name(table), tuple(columns.values())) for table, columns in inputs.items())
    sources: ColumnSources = {}
    for statement, table in filled(statements_of(text, parser_dialect(event), schemas), list(outputs)):
        for output in statement.outputs:
            column = Ref("column", (*table.name, _output_column(statement, output, outputs[table])))
            for source in output.sources:
                origin = _find_table(source.table, list(inputs))
                if origin is not None:
                    name = inputs[origin].get(source.column.lower(), source.column)
                    key = (column, Ref("column", (*origin.name, name)))
                    sources.setdefault(key, []).append({"type": "DIRECT", "subtype": source.subtype})
    return sources


def filled(statements: Sequence[SqlStatement], outputs: Sequence[Ref]) -> list[tuple[SqlStatement, Ref]]:
    """The statements that fill outputs of the event, each with the output.

    A statement fills the output that it names. A temporary table is an output only if no other statement writes one of
    that name. If no statement names the only output of the event, its name differs from that in the text: dbt fills
    `orders__dbt_tmp` and renames it to `orders`, and Spark may name a path. Then a query that names no target fills the
    output, or else the one table that the text writes.
    """
    lasting = [statement for statement in statements if statement.target and not statement.temporary]
    temporary = [statement for statement in statements if statement.temporary]
    found = _naming(lasting, outputs)
    taken = {table for _, table in found}
    found += [(statement, table) for statement, table in _naming(temporary, outputs) if table not in taken]
    if found or len(outputs) != 1:
        return found
    queries = [statement for statement in statements if statement.outputs and not statement.target]
    candidates = [statement for statement in queries or lasting or temporary if statement.outputs]
    is_one = len({tuple(part.lower() for part in statement.target) for statement in candidates}) == 1
    return [(statement, outputs[0]) for statement in candidates] if is_one else []


def _naming(statements: Sequence[SqlStatement], outputs: Sequence[Ref]) -> list[tuple[SqlStatement, Ref]]:
    found = ((statement, _find_table(statement.target, outputs)) for statement in statements)
    return [(statement, table) for statement, table in found if table is not None]


def _columns_of(dataset: Dataset) -> dict[str, str]:
    """The names of the dataset's columns by their lower-case form."""
    return {name.lower(): name for name in column_names(dataset)}


def _output_column(statement: SqlStatement, output: Output, columns: dict[str, str]) -> str:
    """The output column's name. An INSERT that lists no columns fills by position; else the name in the text counts."""
    spelled = columns.get(output.column.lower())
    if spelled is not None or statement.named or not statement.target or statement.width != len(columns):
        return spelled or output.column
    return list(columns.values())[output.position]


def _find_table(written: TableName, tables: Sequence[Ref]) -> Ref | None:
    found = [table for table in tables if same_table(written, sql_name(table))]
    return found[0] if len(found) == 1 else None
