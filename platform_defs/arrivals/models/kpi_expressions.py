"""Expressions of computed KPIs: which KPIs an expression refers to, and cycles among computed KPIs."""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from platform_defs.arrivals.models.kpi_arithmetic import ALLOWED, find_unsupported

KPI_ID = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")

_WORD = re.compile(r"[A-Za-z]\w*", re.ASCII)
_CALL = re.compile(r"\s*\(")
_OTHER = re.compile(r"'(?:[^'\\]|\\.|'')*'|\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|.", re.DOTALL)
_COMMENT = re.compile(r"/\*|#|--(?=\s|$)")
# Words that are no KPI ids: those of expressions, of CASE and of CAST. A KPI that has such a name takes precedence.
_GRAMMAR = {"AND", "OR", "NOT", "XOR", "IS", "NULL", "IN", "BETWEEN", "LIKE", "TRUE", "FALSE", "DIV", "MOD"}
_CASE = {"CASE", "WHEN", "THEN", "ELSE", "END"}
_CAST = {"AS", "DECIMAL", "SIGNED", "UNSIGNED", "DOUBLE", "FLOAT", "REAL", "INTEGER", "CHAR", "DATE", "DATETIME"}
_WORDS = _GRAMMAR | _CASE | _CAST


class InvalidExpression(ValueError):
    """An expression is refused; the message is one line."""


@dataclass(frozen=True)
class ParsedExpression:
    """An expression whose columns are safe names of KPIs: names that a SQL parser reads as one."""

    tree: exp.Expression
    # KPI id -> its safe name, in order of appearance
    safe_names: Mapping[str, str]


def referenced_kpis(expression: str, known: Collection[str]) -> tuple[str, ...]:
    """The ids of the KPIs in an expression, in order of appearance. Raises InvalidExpression for an unknown id."""
    return tuple(parse_expression(expression, known).safe_names)


def parse_expression(expression: str, known: Collection[str]) -> ParsedExpression:
    """Raises InvalidExpression unless the text is arithmetic over known KPIs that can be computed.

    At every position the longest known id is taken, so that a hyphen inside a known id is not read as a minus.
    """
    safe: dict[str, str] = {}
    text = "".join(_substitute_kpi_ids(expression, known, safe))
    if _COMMENT.search(text):
        raise InvalidExpression("expected an expression without comments")
    tree = _parse(text, set(safe.values()))
    if not safe:
        raise InvalidExpression("names no KPI")
    if (unsupported := find_unsupported(tree)) is not None:
        for kpi_id, name in safe.items():
            unsupported = re.sub(rf"\b{name}\b", kpi_id, unsupported)
        raise InvalidExpression(f"expected only {ALLOWED}, got {unsupported}")
    return ParsedExpression(tree, safe)


@lru_cache(maxsize=4096)
def parse_stored_expression(expression: str, depends_on: tuple[str, ...]) -> ParsedExpression:
    """The expression of a stored KPI, read as it was when it was loaded: with the KPIs that it then named."""
    return parse_expression(expression, depends_on)


def find_cycles(depends_on: Mapping[str, Collection[str]]) -> Iterator[list[str]]:
    """Cycles among computed KPIs, each as a path from a KPI back to itself; no KPI is in two of them."""
    left = dict(depends_on)
    while True:
        try:
            TopologicalSorter(left).prepare()
            return
        except CycleError as error:
            # graphlib lists a KPI after those that it refers to; a reader expects the opposite direction
            circle: list[str] = list(reversed(error.args[1]))
        yield circle
        for kpi_id in circle:
            left.pop(kpi_id, None)


def _substitute_kpi_ids(expression: str, known: Collection[str], safe: dict[str, str]) -> Iterator[str]:
    """The pieces of the expression with each KPI id replaced by its safe name, which is added to `safe`."""
    position = 0
    while position < len(expression):
        run = KPI_ID.match(expression, position)
        if run is None:
            other = _OTHER.match(expression, position)
            assert other is not None
            yield other[0]
            position = other.end()
            continue
        called = _CALL.match(expression, run.end()) is not None
        if kpi_id := _longest_known_id(run[0], known, called):
            yield f" {safe.setdefault(kpi_id, f'kpi_{len(safe)}')} "
            position += len(kpi_id)
            continue
        word = _WORD.match(expression, position)
        assert word is not None
        if word[0].upper() not in _WORDS and _CALL.match(expression, word.end()) is None:
            raise InvalidExpression(f"names the undefined KPI {run[0].rstrip('.-')}")
        yield word[0]
        position = word.end()


def _longest_known_id(run: str, known: Collection[str], called: bool) -> str | None:
    """The longest known id at the beginning of the text; `called` says that an opening parenthesis follows the text."""
    for end in range(len(run), 0, -1):
        if end == len(run) and called:
            continue  # a name with arguments is a function
        if (end == len(run) or run[end] == "-") and run[:end] in known:
            return run[:end]
    return None


def _parse(text: str, names: set[str]) -> exp.Expression:
    wrong = InvalidExpression("expected arithmetic over KPIs, such as KD1001 / KD1002")
    try:
        statements = sqlglot.parse(f"SELECT {text}", read="mysql")
    except (SqlglotError, RecursionError):
        raise wrong from None
    statement = statements[0]
    if len(statements) != 1 or not isinstance(statement, exp.Select) or len(statement.expressions) != 1:
        raise wrong
    if any(part for name, part in statement.args.items() if name != "expressions"):
        raise wrong
    value: exp.Expression = statement.expressions[0]
    if isinstance(value, exp.Alias) or value.find(exp.Star, exp.Query, exp.Placeholder, exp.Parameter):
        raise wrong
    if any(column.sql("mysql") not in names for column in value.find_all(exp.Column)):
        raise wrong
    return value
