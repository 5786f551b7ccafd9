"""Derives column lineage from SQL text, for events that have SQL but no `columnLineage` facet. It never raises.

The result depends on nothing but its arguments, because a rebuilt graph must be the same graph. So the work is bounded
by sizes and counts and not by a clock. Parsing takes tens of milliseconds; results are cached, and callers must not
call this on the event loop.
"""

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.normalize_identifiers import normalize_identifiers
from sqlglot.optimizer.qualify_tables import qualify_tables
from sqlglot.optimizer.scope import build_scope

from platform_defs.lineage.extract.compute.sql_columns import Schemas, Source, TableName
from platform_defs.lineage.extract.compute.sql_resolver import Resolver, TooMuch
from platform_defs.lineage.extract.compute.sql_tables import table_name

MAX_SQL_LENGTH = 32 * 1024
# The parser uses about 25 stack frames per level: deeper nesting would depend on the depth of the caller's stack.
MAX_NESTING = 24
# Moves of the parser from token to token: one or two per token of ordinary text. An expression that may also be a type,
# such as `date(…)`, is parsed both ways, with all that it contains: a few hundred bytes could take for ever.
MAX_PARSER_MOVES = 16_000
MAX_NODES = 8_000
REMEMBERED_STATEMENTS = 512
UNKNOWN_WIDTH = -1

# sqlglot warns of every statement that it cannot parse in detail, which an operator need not know
logging.getLogger("sqlglot").setLevel(logging.ERROR)

_OPENING = frozenset({TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE})
_CLOSING = frozenset({TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END})
# Athena's parser delegates to other parsers, which cannot be bounded here. Athena's queries are written in Trino's SQL.
_PARSED_AS = {"athena": "trino"}


@dataclass(frozen=True, slots=True)
class Output:
    """One output column of a statement.

    target: the table that is written, empty for a bare SELECT. width: how many output columns the statement has. named:
    the statement lists its target columns, so the column's name is certain.
    """

    target: TableName
    column: str
    position: int
    width: int
    named: bool
    sources: tuple[Source, ...]


@lru_cache(maxsize=REMEMBERED_STATEMENTS)
def column_outputs(sql: str, dialect: str, schemas: Schemas) -> tuple[Output, ...]:
    """The output columns of all statements with their sources; empty if the text is not understood."""
    if len(sql) > MAX_SQL_LENGTH:
        return ()
    try:
        statements = _parse(sql, _PARSED_AS.get(dialect, dialect))
        return tuple(
            output for statement in statements if statement for output in _outputs(statement, dialect, schemas)
        )
    except (SqlglotError, TooMuch, RecursionError):
        return ()
    except Exception:  # sqlglot raises many kinds of errors on real text; lineage between tables needs no parser
        logging.getLogger(__name__).debug("SQL that could not be analysed", exc_info=True)
        return ()


def _parse(sql: str, dialect: str) -> list[exp.Expr | None]:
    known = Dialect.get_or_raise(dialect)
    tokens = known.tokenize(sql)
    if _nesting(tokens) > MAX_NESTING:
        raise TooMuch
    moves = 0

    class Bounded(known.parser_class):  # type: ignore[name-defined, misc]
        def _advance(self, times: int = 1) -> None:
            nonlocal moves
            moves += 1
            if moves > MAX_PARSER_MOVES:
                raise TooMuch
            super()._advance(times)

    # Set on the dialect, because the parser creates further parsers of its dialect (for quoted types and for hints).
    known.parser_class = Bounded
    return known.parser().parse(tokens, sql)


def _nesting(tokens: Iterable[Token]) -> int:
    depth = deepest = 0
    for token in tokens:
        if token.token_type in _OPENING:
            depth += 1
            deepest = max(deepest, depth)
        elif token.token_type in _CLOSING:
            depth = max(0, depth - 1)  # END also closes blocks that no token in _OPENING has opened
    return deepest


def _outputs(statement: exp.Expr, dialect: str, schemas: Schemas) -> Iterator[Output]:
    target, columns, query = _parts(statement)
    if query is None:
        return
    if sum(1 for _ in statement.walk()) > MAX_NODES:
        raise TooMuch
    spelling = {column.lower(): column for _, columns in schemas for column in columns}
    spelling |= {node.name.lower(): node.name for node in statement.find_all(exp.Identifier)}
    # Normalises the case of names and gives every table an alias. sqlglot could qualify columns as well, but only if
    # the columns of all tables were known.
    scope = build_scope(qualify_tables(normalize_identifiers(query.copy(), dialect=dialect), dialect=dialect))
    if scope is None:
        return
    found = Resolver(scope, dialect, spelling, schemas).of_root()
    if columns and (not found.counted or len(columns) != len(found.listed)):
        # A star stands for an unknown number of columns, and a list of another length than the query's is an error or
        # was misread: positions mean nothing then.
        return
    width = len(found.listed) if found.counted else UNKNOWN_WIDTH
    for position, (name, sources) in enumerate(found.listed):
        listed = columns[position] if position < len(columns) else None
        if (listed or name) and sources:
            yield Output(
                target, listed or spelling.get(name, name), position, width, listed is not None, tuple(sources)
            )


def _parts(statement: exp.Expr) -> tuple[TableName, list[str], exp.Query | None]:
    """The target table, its listed columns, and the query that fills it."""
    if isinstance(statement, exp.Query):
        return (), [], statement
    if not isinstance(statement, exp.Insert | exp.Create):
        return (), [], None
    query = statement.expression
    if isinstance(query, exp.Subquery):
        query = query.unnest()
    if not isinstance(query, exp.Query):
        return (), [], None
    if (above := statement.args.get("with_")) is not None:
        query = query.copy()
        query.set("with_", above.copy())
    target = statement.this
    columns: list[str] = []
    if isinstance(target, exp.Schema):
        columns = [column.name for column in target.expressions]
        target = target.this
    return table_name(target) if isinstance(target, exp.Table) else (), columns, query
