"""Column lineage that an event's SQL text tells, between the tables that the event has as inputs and outputs."""

from collections.abc import Sequence
from dataclasses import replace

from platform_defs.lineage.events import Dataset, Event
from platform_defs.lineage.extract.columns import nested_column_names
from platform_defs.lineage.extract.compute.column_lineage import ColumnSources
from platform_defs.lineage.extract.compute.engines import parser_dialect
from platform_defs.lineage.extract.compute.names import LogicalTables, sql_name
from platform_defs.lineage.extract.compute.sql import Output, SqlStatement, statements_of
from platform_defs.lineage.extract.compute.sql_columns import (
    IDENTITY,
    TRANSFORMATION,
    Source,
    TableName,
    at_least,
    same_table,
)
from platform_defs.lineage.facts import Ref


class _Names:
    """The columns that an event names for a table. rows: those of its rows, in order; others are inside of these."""

    def __init__(self, dataset: Dataset) -> None:
        nested = nested_column_names(dataset)
        self.rows = list(nested)
        self._inside = {name.lower(): inner for name, inner in nested.items()}
        self._spelled = {name.lower(): name for outer, inner in nested.items() for name in (outer, *inner)}

    def spelled(self, name: str) -> str:
        return self._spelled.get(name.lower(), name)

    def holding(self, source: Source) -> Source:
        """The most deeply nested column of the event that contains the field.

        If that is not the field itself, the copy is a TRANSFORMATION.
        """
        path = (source.column, *source.fields)
        lengths = range(len(path), 1, -1)
        length = next((length for length in lengths if ".".join(path[:length]).lower() in self._spelled), 1)
        found = replace(source, column=self.spelled(".".join(path[:length])), fields=path[length:])
        return at_least(found, TRANSFORMATION) if found.fields else found

    def inside(self, row: str, column: str) -> list[str]:
        """What follows the column's name, with a dot, in those of columns inside of it. row: it, or one around it."""
        names = self._inside.get(row.lower(), ())
        return [name[len(column) :] for name in names if name.lower().startswith(f"{column.lower()}.")]

    def may_have(self, column: str) -> bool:
        return not self.rows or column.lower() in self._spelled


def sources_of_sql(event: Event, text: str, tables: LogicalTables) -> ColumnSources:
    """The column lineage in the SQL text, between tables that the event has as inputs and outputs."""
    inputs = {tables.of(dataset): _Names(dataset) for dataset in event.inputs}
    outputs = {tables.of(dataset): _Names(dataset) for dataset in event.outputs}
    schemas = tuple((sql_name(table), tuple(names.rows)) for table, names in inputs.items())
    sources: ColumnSources = {}
    for statement, table in filled(statements_of(text, parser_dialect(event), schemas), list(outputs)):
        for output in statement.outputs:
            column = _output_column(statement, output, outputs[table])
            for source in output.sources if column else ():
                origin = _find_table(source.table, list(inputs))
                if origin is None:
                    continue
                read = inputs[origin].holding(source)
                # what is inside of a column that is copied as it is comes along
                inner = inputs[origin].inside(source.column, read.column) if read.subtype == IDENTITY else []
                for suffix in ("", *(part for part in inner if outputs[table].may_have(column + part))):
                    written = Ref("column", (*table.name, outputs[table].spelled(column + suffix)))
                    key = (written, Ref("column", (*origin.name, read.column + suffix)))
                    known = sources.setdefault(key, [])
                    if (how := {"type": "DIRECT", "subtype": read.subtype}) not in known:
                        known.append(how)
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


def _output_column(statement: SqlStatement, output: Output, names: _Names) -> str:
    """The name of the column that the output fills; empty if nobody can tell.

    An INSERT that lists no columns fills the target's columns in their order, whatever the query calls its own. That
    order is known if the event names as many columns as the query has. If it names another number, its list is partial
    or the text was misread. If it names none, the query's names count, which are mostly those of the target.
    """
    if not statement.by_position or not names.rows:
        return output.column
    chosen = [name for name in names.rows if name.lower() not in statement.partitions]
    chosen += [name for name in names.rows if statement.partitions.get(name.lower()) is False]
    return chosen[output.position] if len(chosen) == statement.width else ""


def _find_table(written: TableName, tables: Sequence[Ref]) -> Ref | None:
    found = [table for table in tables if same_table(written, sql_name(table))]
    return found[0] if len(found) == 1 else None
