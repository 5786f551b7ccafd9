"""What the tables that a SQL statement reads have as columns."""

from collections.abc import Mapping

from sqlglot import exp

from platform_defs.lineage.extract.compute.sql_columns import (
    IDENTITY,
    Columns,
    Rest,
    Schemas,
    Source,
    TableName,
    same_table,
    unknown,
    without_sources,
)


def table_name(table: exp.Table) -> TableName:
    return tuple(part.name for part in table.parts)


class Tables:
    """The tables of one statement. spelling: names as its text spells them; normalising has changed their case."""

    def __init__(self, statement: exp.Expr, spelling: Mapping[str, str], schemas: Schemas) -> None:
        self._spelling = spelling
        self._schemas = schemas
        self._known: dict[TableName, Columns] = {}
        # names of CTEs that change tables; what they return is not looked at
        self._changing = {
            cte.alias.lower() for cte in statement.find_all(exp.CTE) if not isinstance(cte.this, exp.Query)
        }

    def of(self, table: exp.Table) -> Columns:
        if not all(isinstance(part, exp.Identifier) for part in table.parts):
            return without_sources(table.alias_column_names)  # a function
        name = tuple(self._spelling.get(part.lower(), part) for part in table_name(table))
        if len(name) == 1 and name[0].lower() in self._changing:
            return unknown()
        if name not in self._known:
            self._known[name] = self._of_schema(name)
        return self._known[name]

    def _of_schema(self, name: TableName) -> Columns:
        """Any column may be the table's, because an event may list only some; those that it lists certainly are."""
        schemas = [columns for full, columns in self._schemas if same_table(name, full)]
        listed = schemas[0] if len(schemas) == 1 else ()
        found = Columns(rest=[Rest(name)], counted=bool(listed), shifted=True)
        for column in listed:
            found.add(column.lower(), [Source(name, self._spelling.get(column.lower(), column), IDENTITY)])
        return found
