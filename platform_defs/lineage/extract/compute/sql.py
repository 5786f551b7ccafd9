"""Derives column lineage from SQL text, for events that have SQL but no `columnLineage` facet. It never raises.

The result depends on nothing but its arguments, because a rebuilt graph must be the same graph. So the work is bounded
by sizes and counts and not by a clock. Parsing takes tens of milliseconds; results are cached, and callers must not
call this on the event loop.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.normalize_identifiers import normalize_identifiers
from sqlglot.optimizer.qualify_tables import qualify_tables
from sqlglot.optimizer.scope import build_scope

from platform_defs.lineage.extract.compute.sql_columns import Columns, Schemas, Source, TableName, unknown
from platform_defs.lineage.extract.compute.sql_parts import Parts, parts_of
from platform_defs.lineage.extract.compute.sql_resolver import Resolver, TooMuch
from platform_defs.lineage.extract.compute.sql_tables import Made, Tables

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
    """One output column of a statement, with what it is computed from."""

    column: str
    position: int
    sources: tuple[Source, ...]


@dataclass(frozen=True, slots=True)
class SqlStatement:
    """A statement that writes a table, or a query of which the text does not say where its rows go.

    target: the table that is written, empty for such a query. temporary: the target is gone after the session. width:
    how many output columns the statement has. by_position: the target's columns are filled in their order, so that the
    names of the outputs are not theirs; partitions: see Parts. outputs: those columns of which the sources are known.
    """

    target: TableName
    temporary: bool
    width: int
    by_position: bool
    partitions: Mapping[str, bool]
    outputs: tuple[Output, ...]


@lru_cache(maxsize=REMEMBERED_STATEMENTS)
def statements_of(sql: str, dialect: str, schemas: Schemas) -> tuple[SqlStatement, ...]:
    """The statements of the text that read or write tables, in order; empty if the text is not understood."""
    if len(sql) > MAX_SQL_LENGTH:
        return ()
    made: dict[TableName, Made] = {}
    try:
        parsed = _parse(sql, _PARSED_AS.get(dialect, dialect))
        return tuple(
            _read(statement, parts, dialect, schemas, made)
            for statement in parsed
            if statement
            for parts in parts_of(statement, dialect)
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
    return [
        known.parser().parse(known.tokenize(insert), insert)[0] if (insert := _as_insert(statement)) else statement
        for statement in known.parser().parse(tokens, sql)
    ]


def _as_insert(statement: exp.Expr | None) -> str | None:
    """MySQL's REPLACE INTO, which sqlglot does not parse, as the INSERT that it is for lineage."""
    is_replace = isinstance(statement, exp.Command) and str(statement.this).upper() == "REPLACE"
    return f"INSERT {statement.text('expression')}" if statement and is_replace else None


def _nesting(tokens: Iterable[Token]) -> int:
    depth = deepest = 0
    for token in tokens:
        if token.token_type in _OPENING:
            depth += 1
            deepest = max(deepest, depth)
        elif token.token_type in _CLOSING:
            depth = max(0, depth - 1)  # END also closes blocks that no token in _OPENING has opened
    return deepest


def _read(
    statement: exp.Expr, parts: Parts, dialect: str, schemas: Schemas, made: dict[TableName, Made]
) -> SqlStatement:
    """made: the tables that earlier statements of the text have made; that of this statement is added."""
    spelling = {column.lower(): column for _, columns in schemas for column in columns}
    spelling |= {node.name.lower(): node.name for node in statement.find_all(exp.Identifier)}
    found = Columns() if parts.query is None else _columns_of(parts.query, dialect, spelling, schemas, made)
    target = tuple(part.lower() for part in parts.target)
    temporary = parts.temporary or (target in made and made[target].temporary)
    if parts.makes:
        columns = unknown() if parts.query is None else found
        made[target] = Made(columns.renamed(parts.columns) if parts.columns else columns, temporary)
    listed = parts.columns
    if listed and (not found.counted or len(listed) != len(found.listed)):
        # A star stands for an unknown number of columns, and a list of another length than the query's is an error or
        # was misread: positions mean nothing then.
        listed, found = [], Columns()
    names = listed or [spelling.get(name, name) for name, _ in found.listed]
    return SqlStatement(
        target=parts.target,
        temporary=temporary,
        width=len(found.listed) if found.counted else UNKNOWN_WIDTH,
        by_position=parts.by_position,
        partitions=parts.partitions,
        outputs=tuple(
            Output(names[position], position, tuple(sources))
            for position, (_, sources) in enumerate(found.listed)
            if sources and (names[position] or parts.by_position)
        ),
    )


def _columns_of(
    query: exp.Query, dialect: str, spelling: Mapping[str, str], schemas: Schemas, made: Mapping[TableName, Made]
) -> Columns:
    if sum(1 for _ in query.walk()) > MAX_NODES:
        raise TooMuch
    # Normalises the case of names and gives every table an alias. sqlglot could qualify columns as well, but only if
    # the columns of all tables were known.
    scope = build_scope(qualify_tables(normalize_identifiers(query.copy(), dialect=dialect), dialect=dialect))
    return unknown() if scope is None else Resolver(scope, dialect, Tables(scope, spelling, schemas, made)).of_root()
