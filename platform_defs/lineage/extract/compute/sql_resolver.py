"""Follows the columns of a query through subqueries, CTEs, set operations and stars down to columns of tables.

A source column that the statement qualifies, or that only one table in scope can have, is found; anything else is not.
A name with dots means a column of a table if its first parts name a table, and else a field inside of a column.
What a scope knows least about may have any column: a table without a schema, a function, a query with a star over them.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.optimizer.scope import Scope, ScopeType

from platform_defs.lineage.extract.compute.sql_columns import (
    AGGREGATION,
    IDENTITY,
    TRANSFORMATION,
    Columns,
    Found,
    Holds,
    Rest,
    Source,
    TableName,
    at_least,
    field_of,
    merge_sources,
    unknown,
    without_sources,
)
from platform_defs.lineage.extract.compute.sql_names import (
    fields_inside,
    is_called,
    is_column_or_field,
    is_other_word,
    may_be_called,
    qualifier_of,
)
from platform_defs.lineage.extract.compute.sql_scopes import (
    Origin,
    around,
    has_natural_join,
    merged_by_using,
    names_beside_tables,
    origins,
    star_changes,
)
from platform_defs.lineage.extract.compute.sql_tables import Tables

MAX_STEPS = 20_000
MAX_DEPTH = 64
# a name in lower case, and the fields inside of it that the text names
Path = tuple[str, ...]
_QUERIES_IN_FROM = frozenset({ScopeType.CTE, ScopeType.DERIVED_TABLE, ScopeType.UDTF})


class TooMuch(Exception):
    """The statement takes more work than its lineage is worth."""


class Resolver:
    """Resolves the names of one query."""

    def __init__(self, root: Scope, dialect: str, tables: Tables) -> None:
        self._root = root
        self._dialect = Dialect.get_or_raise(dialect)
        self._spelling = tables.spelling
        self._tables = tables
        self._steps = 0
        self._known: dict[int, Columns] = {}
        self._read: dict[int, Columns] = {}
        # A recursive CTE sees its first part as a scope that sqlglot leaves without tables: here is the same with them.
        self._complete = {id(scope.expression): scope for scope in root.traverse()}

    def of_root(self) -> Columns:
        return self._outputs(self._root, 0)

    def _outputs(self, scope: Scope, depth: int) -> Columns:
        scope = self._complete.get(id(scope.expression), scope)
        known = self._known.get(id(scope))
        if known is None:
            self._spend(1, depth)
            self._known[id(scope)] = unknown()  # for a query that refers to itself
            known = self._known[id(scope)] = self._of_query(scope, depth)
        return known

    def _of_query(self, scope: Scope, depth: int) -> Columns:
        query = scope.expression
        if isinstance(query, exp.Lateral) and len(scope.subquery_scopes) == 1:
            found = self._outputs(scope.subquery_scopes[0], depth + 1)
        elif isinstance(query, exp.UDTF):
            return self._of_function(query, scope.outer_columns)
        elif scope.set_operation_scopes:
            found = self._of_set_operation(scope, depth)
        else:
            found = self._of_selects(scope, query.selects, depth) if isinstance(query, exp.Query) else unknown()
        return found.renamed(scope.outer_columns) if scope.outer_columns else found

    def _of_set_operation(self, scope: Scope, depth: int) -> Columns:
        first, *others = (self._outputs(branch, depth + 1) for branch in scope.set_operation_scopes)
        if scope.expression.args.get("by_name"):
            return self._of_union_by_name([first, *others], depth)
        if isinstance(scope.expression, exp.Except):
            others = []  # what is taken away is in no row
        found = Columns(rest=list(first.rest), counted=first.counted)
        for position, (name, sources) in enumerate(first.listed):
            more = [source for other in others for source in other.at(position, first)]
            self._spend(len(sources) + len(more), depth)
            found.add(name, merge_sources([*sources, *more]))
        found.fixed = first.fixed
        return found

    def _of_union_by_name(self, branches: list[Columns], depth: int) -> Columns:
        sources: dict[str, list[Source]] = {}
        for branch in branches:
            self._spend(len(branch.listed) + len(branch.rest), depth)
            for name, more in branch.listed:
                sources[name] = merge_sources([*sources.get(name, ()), *more])
        found = Columns(rest=[rest for branch in branches for rest in branch.rest])
        found.counted = all(branch.counted for branch in branches)
        found.shifted = any(branch.fixed < len(branch.listed) for branch in branches) or not found.counted
        for name, merged in sources.items():
            found.add(name, merged)
        return found

    def _of_function(self, function: exp.Expr, names: list[str]) -> Columns:
        """Columns of what is no query: a function, UNNEST, VALUES."""
        found = without_sources(names)
        # In BigQuery UNNEST gives the fields of structs as columns, beside the name that an alias gives to the item.
        if isinstance(function, exp.Unnest) and (self._dialect.UNNEST_COLUMN_ONLY or function.args.get("offset")):
            found.add_unknown()
        elif isinstance(function, exp.Values):
            made_up = [name.name for name in self._dialect.generate_values_aliases(function)]
            if names == made_up:  # by sqlglot; each database makes up others
                found.by_name, found.rest = {}, [Rest()]
        return found

    def _of_selects(self, scope: Scope, selects: Iterable[exp.Expr], depth: int) -> Columns:
        found = Columns()
        aliases: dict[str, list[Source]] = {}
        for select in selects:
            expression = select.unalias()
            if select.is_star and not isinstance(expression, exp.Query):
                self._add_star(found, scope, select, depth)
            elif isinstance(expression, exp.Columns):
                found.add_unknown()
            else:
                sources = merge_sources(self._of_expression(aliases, scope, expression, depth))
                names = select.aliases if isinstance(select, exp.Aliases) else [select.alias_or_name]
                for name in names:
                    aliases.setdefault(str(name).lower(), sources)
                    found.add(str(name).lower(), sources)
        return found

    def _add_star(self, known: Columns, scope: Scope, star: exp.Expr, depth: int) -> None:
        known.shifted = True
        changes = star_changes(star)
        if changes is None:
            known.add_unknown()
            return
        merged: list[str] = []
        if isinstance(star, exp.Column):
            chosen = [self._named(scope, qualifier_of(star), depth) or unknown()]
        else:
            chosen = [self._of_origin(origin, depth) for origin in origins(scope).values()]
            merged = self._merged_names(scope, chosen)
        if not chosen or names_beside_tables(scope) != []:
            chosen.append(unknown())
        changed = {*changes.left_out, *changes.replaced, *changes.renamed}
        columns = [(name, self._in_scope(scope, (name,), depth)[1]) for name in merged]
        for origin in chosen:
            # nested stars can multiply columns without bound while the text stays short
            self._spend(len(origin.listed) + len(origin.rest), depth)
            columns += [(name, sources) for name, sources in origin.listed if name not in merged]
            known.rest += [replace(rest, without=rest.without | changed.union(merged)) for rest in origin.rest]
        # where joins merge columns, their order differs between dialects
        known.counted &= not merged and all(origin.counted for origin in chosen)
        names = {name for name, _ in columns}
        for name in (*changes.replaced, *changes.renamed):
            if name not in names:  # a column that no event lists: more columns may not be listed
                known.counted = False
                columns.append((name, self._any_of(chosen, name)))
        for name, sources in columns:
            if name in changes.replaced:
                sources = merge_sources(self._of_expression({}, scope, changes.replaced[name], depth))
            if name not in changes.left_out:
                known.add(changes.renamed.get(name, name), sources)

    def _any_of(self, chosen: list[Columns], name: str) -> list[Source]:
        found = [columns.find(name, self._spelling) for columns in chosen]
        possible = [sources for holds, sources in found if holds is not Holds.NO]
        return possible[0] if len(possible) == 1 else []

    def _merged_names(self, scope: Scope, chosen: list[Columns]) -> list[str]:
        """The columns that a star stands for only once, although several tables have them."""
        merged = dict.fromkeys(merged_by_using(scope))
        if has_natural_join(scope):
            names = [name for columns in chosen for name in columns.by_name]
            merged |= dict.fromkeys(name for name in names if names.count(name) > 1)
        return list(merged)

    def _of_expression(
        self, aliases: Mapping[str, list[Source]], scope: Scope, expression: exp.Expr, depth: int
    ) -> Iterator[Source]:
        subtype = IDENTITY
        if not is_column_or_field(expression):
            subtype = AGGREGATION if expression.find(exp.AggFunc) else TRANSFORMATION
        for node in expression.walk(prune=lambda node: isinstance(node, exp.Query)):
            found: list[Source] = []
            if isinstance(node, exp.Column):
                found = self._of_column(aliases, scope, node, depth)
            elif isinstance(node, exp.Query):
                found = self._of_subquery(scope, node.unnest(), depth)
            self._spend(len(found), depth)
            yield from (at_least(source, subtype) for source in found)

    def _of_column(
        self, aliases: Mapping[str, list[Source]], scope: Scope, column: exp.Column, depth: int
    ) -> list[Source]:
        self._spend(1, depth)
        if isinstance(column.this, exp.Star):  # a row as a whole, as in `struct(t.*)`
            return []
        qualifier = qualifier_of(column)
        path = (*(part.name.lower() for part in column.parts), *fields_inside(column))
        for length in range(len(qualifier), 0, -1):
            columns = self._named(scope, qualifier[:length], depth)
            holds, sources = (Holds.NO, []) if columns is None else columns.find_path(path[length:], self._spelling)
            if holds is not Holds.NO:
                is_around = length == 1 and qualifier[0] not in origins(scope)
                # The name may be a field of a column here or a column of an outer table. Databases differ, so it gives
                # no edge.
                is_unsure = is_around and self._in_scope(scope, path, depth)[0] is Holds.YES
                return [] if is_unsure else sources
        return self._unqualified(aliases, scope, column, path, depth)

    def _unqualified(
        self, aliases: Mapping[str, list[Source]], scope: Scope, column: exp.Column, path: Path, depth: int
    ) -> list[Source]:
        holds, sources = self._in_scope(scope, path, depth)
        if holds is Holds.YES:
            return sources
        if path[0] in aliases:  # an alias of the select list that a later expression uses
            return field_of(aliases[path[0]], path[1:])
        outside = around(scope)
        if holds is Holds.NO:
            return [] if outside is None else self._unqualified({}, outside, column, path, depth + 1)
        # Before a dot there may also be a sequence, or a database that the FROM leaves out: there a column has to be
        # one that is listed.
        is_unsure = column.table or is_other_word(column) or self._is_outside(outside, path, depth)
        return [] if is_unsure else sources

    def _is_outside(self, scope: Scope | None, path: Path, depth: int) -> bool:
        """Whether a query around a subquery certainly has the column, which the subquery's own table may lack."""
        while scope is not None:
            if self._in_scope(scope, path, depth)[0] is Holds.YES:
                return True
            scope = around(scope)
        return False

    def _in_scope(self, scope: Scope, path: Path, depth: int) -> Found:
        """Looks for an unqualified name, or a field inside of it, in all that the FROM offers."""
        name = path[0]
        beside = names_beside_tables(scope)
        if beside is not None and name in (other.lower() for other in beside):
            return Holds.YES, []
        offered = origins(scope)
        self._spend(1 + len(offered) // 16, depth)
        found = {
            alias: self._of_origin(origin, depth).find_path(path, self._spelling) for alias, origin in offered.items()
        }
        if beside is None:
            found[""] = (Holds.MAYBE, [])
        joined = merged_by_using(scope).get(name, set())
        before = [alias for alias, (holds, _) in found.items() if holds is not Holds.NO and alias not in joined]
        for alias in (*joined, *(before if len(before) == 1 else ())) if joined else ():
            if alias in found:  # what is joined USING a column has it, and so has one of the tables before
                found[alias] = (Holds.YES, found[alias][1])
        sure = [sources for holds, sources in found.values() if holds is Holds.YES]
        if len(sure) == 1 or (sure and (joined or has_natural_join(scope))):
            return Holds.YES, [source for sources in sure for source in sources]
        possible = sure or [sources for holds, sources in found.values() if holds is Holds.MAYBE]
        if not possible:
            return Holds.NO, []
        return Holds.MAYBE, possible[0] if len(possible) == 1 else []

    def _named(self, scope: Scope, qualifier: TableName, depth: int) -> Columns | None:
        """The table or query that a qualifier names, in this scope or in one around it; None if it names none."""
        if len(qualifier) > 1:
            offered = origins(scope).values()
            found = [origin for origin in offered if is_called(origin, qualifier)]
            if len(found) == 1:
                return self._of_origin(found[0], depth)
            return unknown() if any(may_be_called(origin, qualifier) for origin in offered) else None
        # a query in the FROM sees no table outside, but asking there does no harm: its text would not be valid
        outside: Scope | None = scope
        while outside is not None:
            found_here = origins(outside).get(qualifier[0])
            if found_here is not None:
                return self._of_origin(found_here, depth)
            outside = outside.parent
        return None

    def _of_origin(self, origin: Origin, depth: int) -> Columns:
        node, source = origin
        if isinstance(source, Scope):
            # the scope of a CTE that changes tables is that of a query inside of it
            known = self._outputs(source, depth + 1) if source.scope_type in _QUERIES_IN_FROM else unknown()
            return self._as_read(node, known, depth)
        if source is None:
            return unknown()
        if id(node) not in self._read:
            self._read[id(node)] = self._as_read(node, self._tables.of(source), depth)
        return self._read[id(node)]

    def _as_read(self, node: exp.Expr, known: Columns, depth: int) -> Columns:
        """The columns under the names that the FROM gives them."""
        if isinstance(node, exp.Table) and node.alias_column_names:
            self._spend(len(node.alias_column_names), depth)
            known = known.renamed(node.alias_column_names)
        if node.args.get("pivots"):
            # a column that the table lists is still there if it has been named; others may be made by the PIVOT
            return Columns([], known.by_name, [Rest()], counted=False)
        return known

    def _of_subquery(self, scope: Scope, query: exp.Expr, depth: int) -> list[Source]:
        inner = next((inner for inner in scope.subquery_scopes if inner.expression is query), None)
        return (
            [] if inner is None else [source for _, found in self._outputs(inner, depth + 1).listed for source in found]
        )

    def _spend(self, steps: int, depth: int) -> None:
        self._steps += steps
        if self._steps > MAX_STEPS or depth > MAX_DEPTH:
            raise TooMuch
