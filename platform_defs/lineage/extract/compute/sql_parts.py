"""What a SQL statement writes, and by which query: its target table, the columns that it lists, and the query."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from sqlglot import exp

from platform_defs.lineage.extract.compute.sql_columns import TableName
from platform_defs.lineage.extract.compute.sql_tables import table_name

_OTHER_WRITES = (exp.Merge, exp.Update, exp.Delete, exp.Copy, exp.LoadData)


@dataclass(slots=True)
class Parts:
    """target: the table that is written, empty if the statement names none. makes: the target did not exist before.

    temporary: the target is gone after the session, so that no event knows it. columns: those that the statement lists.
    query: what fills the target; a statement may write in another way. by_position: the first column of the query fills
    the first one of the target, and so on, whatever they are called. partitions: the columns that a PARTITION clause
    names, in lower case, and whether it gives them a value: then they are not filled by the query, else they come last.
    """

    target: TableName = ()
    makes: bool = False
    temporary: bool = False
    columns: list[str] = field(default_factory=list)
    query: exp.Query | None = None
    by_position: bool = False
    partitions: dict[str, bool] = field(default_factory=dict)


def parts_of(statement: exp.Expr, dialect: str) -> Iterator[Parts]:
    """Nothing if the statement neither writes a table nor is a query; several if it writes several tables."""
    if isinstance(statement, exp.Query):
        yield _of_query(statement)
    elif isinstance(statement, exp.Create):
        yield from _of_create(statement, dialect)
    elif isinstance(statement, exp.Insert):
        yield _of_insert(statement)
    elif isinstance(statement, exp.MultitableInserts):  # which columns go into which table is not looked at
        targets = (_target(insert)[0] for insert in statement.find_all(exp.Insert))
        yield from (Parts(table_name(target)) for target in targets if target is not None)
    elif isinstance(statement, _OTHER_WRITES) and isinstance(statement.this, exp.Table):
        yield Parts(table_name(statement.this))


def _of_query(statement: exp.Query) -> Parts:
    into = statement.find(exp.Into)
    if into is None or not isinstance(into.this, exp.Table):
        return Parts(query=_unnested(statement))
    query = statement.copy()
    for found in list(query.find_all(exp.Into)):
        found.pop()  # else its table would count as one that the query reads
    return Parts(table_name(into.this), True, bool(into.args.get("temporary")), query=_unnested(query))


def _of_create(statement: exp.Create, dialect: str) -> Iterator[Parts]:
    target, columns = _target(statement)
    if target is None:  # a function, or something else with a body
        return
    if dialect == "mysql" and statement.this.find(exp.ColumnDef):
        columns = []  # MySQL's definitions of columns stand beside those of the query: it matches them by name
    properties = statement.args.get("properties")
    temporary = properties is not None and properties.find(exp.TemporaryProperty, exp.VolatileProperty) is not None
    yield Parts(table_name(target), True, temporary, columns, _query_of(statement))


def _of_insert(statement: exp.Insert) -> Parts:
    target, columns = _target(statement)
    if target is None:  # a directory, which has no columns to be filled by position
        return Parts(query=_query_of(statement))
    if "*" in columns:  # ClickHouse's `(* EXCEPT (…))`: nobody knows which columns these are
        return Parts(table_name(target))
    by_position = not columns and not statement.args.get("by_name")
    return Parts(
        table_name(target),
        columns=columns,
        query=_query_of(statement),
        by_position=by_position,
        partitions=_partitions(target) if by_position else {},
    )


def _partitions(target: exp.Table) -> dict[str, bool]:
    clause = target.args.get("partition")
    items = clause.expressions if isinstance(clause, exp.Partition) else ()
    return {(item.this if isinstance(item, exp.EQ) else item).name.lower(): isinstance(item, exp.EQ) for item in items}


def _target(statement: exp.Expr) -> tuple[exp.Table | None, list[str]]:
    target, columns = statement.this, list[str]()
    if isinstance(target, exp.Schema):
        columns = [_column_name(column) for column in target.expressions]
        target = target.this
    return target if isinstance(target, exp.Table) else None, columns


def _column_name(column: exp.Expr) -> str:
    if isinstance(column, exp.Dot):  # a field inside of a column
        return f"{column.this.name}.{column.expression.name}"
    return column.name


def _query_of(statement: exp.Insert | exp.Create) -> exp.Query | None:
    query = _unnested(statement.expression)
    above = statement.args.get("with_")
    if query is None or above is None:
        return query
    copy = query.copy()
    copy.set("with_", above.copy())
    return copy


def _unnested(query: object) -> exp.Query | None:
    inner = query.unnest() if isinstance(query, exp.Subquery) else query
    return inner if isinstance(inner, exp.Query) else None
