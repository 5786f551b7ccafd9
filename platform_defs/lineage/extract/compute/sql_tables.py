"""What the tables that a SQL statement reads have as columns."""

from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.optimizer.scope import Scope

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


@dataclass(frozen=True, slots=True)
class Made:
    """A table that a statement has made, with the columns of other tables that its columns derive from."""

    columns: Columns
    temporary: bool


class Tables:
    """The tables of one statement.

    spelling: names as its text spells them, by their lower-case form; normalising has changed their case. schemas: all
    tables that the event names as inputs. made: tables that earlier statements have made, by their lower-case name.
    What reads one of these that is no input derives from what that one derives from.
    """

    def __init__(
        self, root: Scope, spelling: Mapping[str, str], schemas: Schemas, made: Mapping[TableName, Made]
    ) -> None:
        self.spelling = spelling
        self._schemas = schemas
        self._made = made
        self._known: dict[TableName, Columns] = {}
        # names of CTEs that change tables; what they return is not looked at
        self._changing = {
            cte.alias.lower() for cte in root.expression.find_all(exp.CTE) if not isinstance(cte.this, exp.Query)
        }

    def of(self, table: exp.Table) -> Columns:
        if not all(isinstance(part, exp.Identifier) for part in table.parts):
            return without_sources(table.alias_column_names)  # a function
        name = tuple(self.spelling.get(part.lower(), part) for part in table_name(table))
        if len(name) == 1 and name[0].lower() in self._changing:
            return unknown()
        if name not in self._known:
            self._known[name] = self._of_made(name) or self._of_schema(name)
        return self._known[name]

    def _of_made(self, name: TableName) -> Columns | None:
        made = self._made.get(tuple(part.lower() for part in name))
        if made is None or (not made.temporary and any(same_table(name, full) for full, _ in self._schemas)):
            return None
        return made.columns

    def _of_schema(self, name: TableName) -> Columns:
        """Any column may be the table's, because an event may list only some; those that it lists certainly are."""
        schemas = [columns for full, columns in self._schemas if same_table(name, full)]
        listed = schemas[0] if len(schemas) == 1 else ()
        found = Columns(rest=[Rest(name)], counted=bool(listed), shifted=True)
        for column in listed:
            found.add(column.lower(), [Source(name, self.spelling.get(column.lower(), column), IDENTITY)])
        return found
