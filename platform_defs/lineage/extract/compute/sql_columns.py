"""Tells which columns of tables the columns of a query derive from, by the names in the text of the query."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from sqlglot import exp
from sqlglot.optimizer.scope import Scope

MAX_STEPS = 20_000
MAX_DEPTH = 64

IDENTITY, TRANSFORMATION, AGGREGATION = "IDENTITY", "TRANSFORMATION", "AGGREGATION"
# words without parentheses that some dialects take for functions; another dialect's parser takes them for columns
_NOT_COLUMNS = frozenset(
    {"current_date", "current_time", "current_timestamp", "current_user", "localtime", "localtimestamp", "rownum"}
    | {"session_user", "sysdate", "systimestamp", "true", "false", "user"}
)
_UNITS = frozenset(
    {"microsecond", "millisecond", "second", "minute", "hour", "day", "week", "month", "quarter", "year"}
)
_RANK = {IDENTITY: 0, TRANSFORMATION: 1, AGGREGATION: 2}

# a table's name as the SQL text spells it, with one to three parts
TableName = tuple[str, ...]
# the known columns of tables: pairs of a table's full name and its columns
Schemas = tuple[tuple[TableName, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class Source:
    """A column that an output column is computed from. subtype: IDENTITY, TRANSFORMATION or AGGREGATION."""

    table: TableName
    column: str
    subtype: str


class TooMuch(Exception):
    """The statement takes more work than its lineage is worth."""


def table_name(table: exp.Table) -> TableName:
    return tuple(part.name for part in table.parts)


def same_table(written: TableName, full: TableName) -> bool:
    """Whether a name in SQL text, which may lack the database or schema, can mean the table with that full name."""
    pairs = zip(reversed(written), reversed(full), strict=False)
    return bool(written) and all(mine.lower() == theirs.lower() for mine, theirs in pairs)


@dataclass(slots=True)
class Columns:
    """The output columns of a scope, in order and by lower-case name.

    open: tables of which all columns are selected (`*`) although their columns are not known. partial: tables of which
    all columns are selected, and only some may be known.
    """

    columns: list[tuple[str, list[Source]]] = field(default_factory=list)
    open: list[exp.Table] = field(default_factory=list)
    partial: list[exp.Table] = field(default_factory=list)
    by_name: dict[str, list[Source]] = field(default_factory=dict)

    def add(self, name: str, sources: list[Source]) -> None:
        self.columns.append((name, sources))
        self.by_name.setdefault(name, sources)


class Resolver:
    """Follows columns through subqueries, CTEs and unions down to tables."""

    def __init__(self, spelling: dict[str, str], schemas: Schemas) -> None:
        self._spelling = spelling
        self._schemas = schemas
        self._steps = 0
        self._known: dict[int, Columns] = {}

    def outputs(self, scope: Scope, depth: int) -> Columns:
        known = self._known.get(id(scope))
        if known is None:
            self._spend(1, depth)
            # a recursive CTE finds its own unfinished entry here, and so adds nothing to itself
            known = self._known[id(scope)] = Columns()
            if scope.set_operation_scopes:
                self._add_set_operation(known, scope, depth)
            else:
                self._add_selects(known, scope, depth)
        return known

    def _add_set_operation(self, known: Columns, scope: Scope, depth: int) -> None:
        first, *others = (self.outputs(branch, depth + 1) for branch in scope.set_operation_scopes)
        for position, (name, sources) in enumerate(first.columns):
            more = [
                source for other in others if position < len(other.columns) for source in other.columns[position][1]
            ]
            self._spend(len(sources) + len(more), depth)
            known.add(name, _merge_sources([*sources, *more]))

    def _add_selects(self, known: Columns, scope: Scope, depth: int) -> None:
        for select in scope.expression.selects if isinstance(scope.expression, exp.Query) else ():
            if select.is_star:
                self._add_star(known, scope, select, depth)
            else:
                sources = self._of_expression(known, scope, select.unalias(), depth)
                known.add(select.alias_or_name.lower(), _merge_sources(sources))

    def _add_star(self, known: Columns, scope: Scope, star: exp.Expr, depth: int) -> None:
        table = star.table if isinstance(star, exp.Column) else ""
        origins = [scope.sources.get(table)] if table else [source for _, source in scope.selected_sources.values()]
        for origin in origins:
            if isinstance(origin, Scope):
                inner = self.outputs(origin, depth + 1)
                # nested stars can multiply columns without bound while the text stays short
                self._spend(len(inner.columns) + len(inner.open), depth)
                for name, sources in inner.columns:
                    known.add(name, sources)
                known.open.extend(inner.open)
                known.partial.extend(inner.partial)
            elif isinstance(origin, exp.Table):
                columns = self._columns_of(origin)
                self._spend(len(columns), depth)
                for name in columns:
                    known.add(name.lower(), [self._source(origin, name)])
                (known.partial if columns else known.open).append(origin)

    def _of_expression(self, known: Columns, scope: Scope, expression: exp.Expr, depth: int) -> Iterator[Source]:
        subtype = IDENTITY
        if not isinstance(expression, exp.Column):
            subtype = AGGREGATION if expression.find(exp.AggFunc) else TRANSFORMATION
        for node in expression.walk(prune=lambda node: isinstance(node, exp.Query)):
            found: list[Source] = []
            if isinstance(node, exp.Column):
                found = self._of_column(known, scope, node, depth)
            elif isinstance(node, exp.Query):
                found = self._of_subquery(scope, node.unnest(), depth)
            self._spend(len(found), depth)
            yield from (_at_least(source, subtype) for source in found)

    def _of_column(self, known: Columns, scope: Scope, column: exp.Column, depth: int) -> list[Source]:
        self._spend(1, depth)
        name = column.name.lower()
        if column.table:
            around: Scope | None = scope
            while around is not None and column.table not in around.sources:
                around = around.parent  # a correlated subquery may refer to tables of the query around it
            return [] if around is None else self._in(around.sources[column.table], name, depth)[1]
        found = [self._in(source, name, depth) for _, source in scope.selected_sources.values()]
        sure = [sources for is_sure, sources in found if is_sure]
        if sure:  # more than one table has the column if the tables are joined with USING
            return [source for sources in sure for source in sources]
        if name in known.by_name:  # an alias of the select list that a later expression uses
            return known.by_name[name]
        possible = [sources for _, sources in found if sources]
        return possible[0] if len(possible) == 1 and not _is_other_word(column) else []

    def _in(self, origin: exp.Expr | Scope, name: str, depth: int) -> tuple[bool, list[Source]]:
        """Whether the origin certainly has the column, and the sources of that column."""
        if isinstance(origin, Scope):
            inner = self.outputs(origin, depth + 1)
            if name in inner.by_name:
                return True, inner.by_name[name]
            whole = [*inner.open, *inner.partial]
            return False, [self._source(whole[0], name)] if len(whole) == 1 else []
        if not isinstance(origin, exp.Table):
            return False, []
        columns = self._columns_of(origin)
        if columns:
            # an event may list only some of the table's columns, so the table can have one that is not listed
            return any(column.lower() == name for column in columns), [self._source(origin, name)]
        return False, [self._source(origin, name)]

    def _of_subquery(self, scope: Scope, query: exp.Expr, depth: int) -> list[Source]:
        inner = next((inner for inner in scope.subquery_scopes if inner.expression is query), None)
        return (
            [] if inner is None else [source for _, found in self.outputs(inner, depth + 1).columns for source in found]
        )

    def _columns_of(self, table: exp.Table) -> tuple[str, ...]:
        name = table_name(table)
        return next((columns for full, columns in self._schemas if same_table(name, full)), ())

    def _source(self, table: exp.Table, column: str) -> Source:
        """The column with its names spelled as in the text; normalising has changed their case."""
        names = tuple(self._spelling.get(part.lower(), part) for part in table_name(table))
        return Source(names, self._spelling.get(column.lower(), column), IDENTITY)

    def _spend(self, steps: int, depth: int) -> None:
        self._steps += steps
        if self._steps > MAX_STEPS or depth > MAX_DEPTH:
            raise TooMuch


def _is_other_word(column: exp.Column) -> bool:
    """Whether an unqualified name that no table lists is something else: a function, or the unit of a function."""
    name = column.name.lower()
    return name in _NOT_COLUMNS or (name in _UNITS and isinstance(column.parent, exp.Func))


def _at_least(source: Source, subtype: str) -> Source:
    return source if _RANK[source.subtype] >= _RANK[subtype] else Source(source.table, source.column, subtype)


def _merge_sources(sources: Iterable[Source]) -> list[Source]:
    """Each source column once, with the strongest of its subtypes, in order of appearance."""
    found: dict[tuple[TableName, str], Source] = {}
    for source in sources:
        key = (source.table, source.column)
        found[key] = _at_least(found[key], source.subtype) if key in found else source
    return list(found.values())
