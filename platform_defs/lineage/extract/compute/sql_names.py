"""What a name in a SQL statement may mean: a column, a field inside of a column, a table, or another word."""

from sqlglot import exp

from platform_defs.lineage.extract.compute.sql_columns import TableName, same_table
from platform_defs.lineage.extract.compute.sql_scopes import Origin
from platform_defs.lineage.extract.compute.sql_tables import table_name

# words without parentheses that some dialects take for functions; another dialect's parser takes them for columns
_NOT_COLUMNS = frozenset(
    {"current_date", "current_time", "current_timestamp", "current_user", "localtime", "localtimestamp", "rownum"}
    | {"session_user", "sysdate", "systimestamp", "true", "false", "user"}
)
_UNITS = frozenset(
    {"microsecond", "millisecond", "second", "minute", "hour", "day", "week", "month", "quarter", "year"}
)


def fields_inside(column: exp.Column) -> tuple[str, ...]:
    """The fields that the text names behind a column in the form of `(a).b`, or behind a name of four parts."""
    fields: list[str] = []
    node: exp.Expr = column
    while node.parent is not None:
        node, inner = node.parent, node
        if isinstance(node, exp.Dot) and node.this is inner and isinstance(node.expression, exp.Identifier):
            fields.append(node.expression.name.lower())
        elif not isinstance(node, exp.Paren):
            break
    return tuple(fields)


def is_column_or_field(expression: exp.Expr) -> bool:
    while isinstance(expression, exp.Dot) and isinstance(expression.expression, exp.Identifier):
        expression = expression.this.unnest()
    return isinstance(expression, exp.Column)


def is_called(origin: Origin, qualifier: TableName) -> bool:
    _, source = origin
    return isinstance(source, exp.Table) and table_name(source)[-len(qualifier) :] == qualifier


def may_be_called(origin: Origin, qualifier: TableName) -> bool:
    """The FROM may leave out the database that the qualifier names."""
    _, source = origin
    return isinstance(source, exp.Table) and same_table(qualifier, table_name(source))


def qualifier_of(column: exp.Column) -> TableName:
    """The parts of the name that may name a table: all if fields follow, as in `(t).a`."""
    parts = tuple(part.name for part in column.parts)
    return parts if fields_inside(column) else parts[:-1]


def is_other_word(column: exp.Column) -> bool:
    """Whether an unqualified name that no table lists is something else: a function, or the unit of a function."""
    name = column.name.lower()
    return name in _NOT_COLUMNS or (name in _UNITS and isinstance(column.parent, exp.Func))
