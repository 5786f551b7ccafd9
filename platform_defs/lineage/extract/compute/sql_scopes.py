"""What a scope of a SQL statement offers: the tables of its FROM, what its joins merge, and which scope is around."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from sqlglot import exp
from sqlglot.optimizer.scope import Scope

# a node of the FROM, and the table or query that it names; None if nobody can tell which
Origin = tuple[exp.Expr, exp.Table | Scope | None]
# where a table stands that is read; it can also stand in a lock (FOR UPDATE OF), in an INTO, or beside a function
_READ_IN = (exp.From, exp.Join, exp.Subquery, exp.Final)


def origins(scope: Scope) -> dict[str, Origin]:
    """What the FROM of the scope offers, by alias. The right side of a SEMI or ANTI join offers nothing."""
    found: dict[str, Origin] = {}
    for alias, node in scope.references:
        is_read = not isinstance(node, exp.Table) or isinstance(node.parent, _READ_IN)
        if is_read and alias not in scope.semi_or_anti_join_tables:
            found[alias] = (node, None if alias in found else scope.sources.get(alias))
    return found


def names_beside_tables(scope: Scope) -> list[str] | None:
    """Names that are no columns of a table, in dialects that have such; None if they may be any."""
    if scope.expression.args.get("match"):  # MATCH_RECOGNIZE, which computes measures
        return None
    names = ["level"] if scope.expression.args.get("connect") else []
    for join in _joins(scope):
        if join.kind == "ARRAY":  # ARRAY JOIN of ClickHouse
            names += [item.alias for item in (join.this, *join.expressions) if item.alias]
    return names


def merged_by_using(scope: Scope) -> dict[str, set[str]]:
    """The columns that joins merge by USING, in lower case, with the aliases of the tables that are joined by them."""
    merged: dict[str, set[str]] = {}
    for join in _joins(scope):
        for column in join.args.get("using") or ():
            merged.setdefault(column.name.lower(), set()).add(join.alias_or_name)
    return merged


def has_natural_join(scope: Scope) -> bool:
    return any(join.method == "NATURAL" for join in _joins(scope))


def _joins(scope: Scope) -> Iterator[exp.Join]:
    yield from scope.expression.args.get("joins") or ()


def around(scope: Scope) -> Scope | None:
    """The scope whose tables a subquery or a LATERAL may refer to; a query in the FROM may refer to none outside."""
    while scope.is_set_operation and scope.parent is not None:
        scope = scope.parent
    return scope.parent if scope.is_subquery or scope.is_udtf else None


@dataclass(slots=True)
class StarChanges:
    """What a star changes of the columns that it stands for: `* EXCEPT (…) REPLACE (…) RENAME (…)`, in lower case."""

    left_out: set[str] = field(default_factory=set)
    replaced: dict[str, exp.Expr] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)


_UNDERSTOOD = {"except_", "replace", "rename"}


def star_changes(star: exp.Expr) -> StarChanges | None:
    """None if the star stands for columns that nobody can tell, such as the fields of a struct."""
    whole = star.this if isinstance(star, exp.Column) else star
    if not isinstance(whole, exp.Star) or any(value for name, value in whole.args.items() if name not in _UNDERSTOOD):
        return None
    return StarChanges(
        {item.name.lower() for item in whole.args.get("except_") or ()},
        {item.alias.lower(): item.this for item in whole.args.get("replace") or ()},
        {item.this.name.lower(): item.alias.lower() for item in whole.args.get("rename") or ()},
    )
