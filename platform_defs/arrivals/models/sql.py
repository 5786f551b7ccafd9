"""The SQL of a model: checks that it is one read-only query, and fills in its placeholders for a batch.

The parser only checks the query and finds its tables: the driver gets the author's text, not one that the parser
wrote. Which database a source is, is known only when a batch runs. A model file is therefore accepted if the grammar of
one database accepts the query; at run time the query is parsed with the grammar of the actual source.
"""

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError

from platform_defs.arrivals.errors import ModelFailed
from platform_defs.arrivals.models.model import Kpi, Model
from platform_defs.arrivals.op_time import render_table_name
from platform_defs.sources.reach import FILE_VIEWS, Reach, is_refused_function
from platform_defs.sources.transactions import Dialect, Query

DIALECTS: tuple[Dialect, ...] = ("mysql", "sqlite", "postgres")

# sqlglot logs a warning for every statement that it does not know; operators cannot do anything about that.
logging.getLogger("sqlglot").setLevel(logging.ERROR)

_READ_ONLY = "expected one read-only query: SELECT, WITH … SELECT or a set operation"
_MARK = "op_time_of_the_batch"
_FORBIDDEN = {
    exp.Into: "INTO",
    exp.Lock: "a locking clause",
    exp.DML: "a statement that writes",
    exp.Command: "a command",
}
# Hints by which a query of MySQL would set variables of its session, such as the time limit.
_LIMIT_HINT = re.compile(r"max_execution_time|set_var", re.IGNORECASE)
_PLACEHOLDER = re.compile(r"\$\{([^}]*)\}")


def _tokens(strings: str, identifiers: str, comments: str) -> re.Pattern[str]:
    return re.compile(
        rf"(?P<comment>--(?=\s|$)[^\n]*|/\*.*?\*/|{comments})|(?P<string>{strings})|(?P<identifier>{identifiers})"
        r"|(?P<placeholder>\$\{[^}]*\})|(?P<glued>--)|(?P<escaped>(?<=\b[uU])&(?=['\"]))|(?P<other>[\w\s,()=*.]+|.)",
        re.DOTALL,
    )


_TOKENS = {
    "mysql": _tokens(r"""'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*\"""", r"`(?:[^`]|``)*`", r"\#[^\n]*"),
    "sqlite": _tokens(r"'(?:[^']|'')*'", r'`(?:[^`]|``)*`|"(?:[^"]|"")*"|\[[^\]]*\]', r"(?!)"),
    "postgres": _tokens(
        r"(?<=\b[eE])'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|\$(?P<tag>[^\W\d]\w*|)\$.*?\$(?P=tag)\$",
        r'"(?:[^"]|"")*"',
        r"(?!)",
    ),
}


class InvalidSql(ValueError):
    """A query or an expression is refused; the message is one line."""


class _DoesNotParse(InvalidSql):
    """The text does not parse in one dialect, but may in another."""


@dataclass(frozen=True)
class _ExpandedSql:
    text: str
    marks: tuple[int, ...]  # the positions of _MARK, which stands for the opTime


@dataclass(frozen=True)
class _Edit:
    start: int
    end: int
    text: str


def check_query(sql: str, dimensions: Sequence[str], kpis: Sequence[Kpi], reach: Reach | None = None) -> None:
    """Raises InvalidSql unless the text is one read-only query that selects all dimensions and KPIs.

    `reach` limits the tables that it may read.
    """

    def check(dialect: Dialect) -> None:
        statement = _parse_query(_expand(sql, dimensions, kpis, dialect), dialect)
        _check_reach(statement, reach)
        if statement.is_star:
            return
        selected = {name.lower() for name in statement.named_selects}
        missing = [name for name in (*dimensions, *(kpi.kpi_id for kpi in kpis)) if name.lower() not in selected]
        if missing:
            raise InvalidSql(f"the query does not select {', '.join(missing)}")

    _check_in_any_dialect(check)


def check_expression(expression: str) -> None:
    """Raises InvalidSql unless the text is the expression of one value, such as SUM(amount)."""

    def check(dialect: Dialect) -> None:
        value = _assemble(["SELECT ", *_kpi_pieces(expression, dialect)])
        statement = _parse_query(value, dialect)
        others = [name for name, part in statement.args.items() if part and name != "expressions"]
        if not isinstance(statement, exp.Select) or others or len(statement.expressions) != 1:
            raise InvalidSql("expected one value, such as SUM(amount)")
        if isinstance(statement.expressions[0], exp.Alias) or statement.expressions[0].is_star:
            raise InvalidSql("expected one value without a name, such as SUM(amount)")

    _check_in_any_dialect(check)


def render_query(model: Model, dialect: Dialect, op_time: str, reach: Reach | None = None) -> Query:
    """The query of a batch, with all placeholders filled in, also the date placeholders in names of tables."""
    try:
        expanded = _expand(model.sql, model.dimensions, model.kpis, dialect)
        statement = _parse_query(expanded, dialect)
        _check_reach(statement, reach)
    except InvalidSql as error:
        raise ModelFailed(f"the SQL of the model: {error}") from None
    names = {table: render_table_name(table, op_time) for table in model.depends_on}
    bound = ":op_time" if dialect == "sqlite" else "%(op_time)s"
    edits = [_Edit(start, start + len(_MARK) + 1, bound) for start in expanded.marks]
    edits += _table_renames(statement, names, dialect)
    return Query(_apply_edits(expanded.text, edits, dialect), {"op_time": op_time})


def quote_identifier(name: str, dialect: Dialect) -> str:
    """Quotes with backticks, on SQLite too: there a column in double quotes that does not exist is read as a text."""
    sign = '"' if dialect == "postgres" else "`"
    return sign + name.replace(sign, sign * 2) + sign


def _check_in_any_dialect(check: Callable[[Dialect], None]) -> None:
    """Checks the text as MySQL, as SQLite if MySQL's grammar does not parse it, and then as PostgreSQL.

    If no grammar parses the text, the error is MySQL's.
    """
    first: InvalidSql | None = None
    for dialect in DIALECTS:
        try:
            return check(dialect)
        except _DoesNotParse as error:
            first = first or error
    if first is not None:
        raise first


def _expand(sql: str, dimensions: Sequence[str], kpis: Sequence[Kpi], dialect: Dialect) -> _ExpandedSql:
    known: dict[str, list[str | None]] = {"op_time": [None], "kpis": []}
    if dimensions:
        known["dimGroup"] = [", ".join(quote_identifier(name, dialect) for name in dimensions)]
    for kpi in kpis:
        known["kpis"] += [", "] if known["kpis"] else []
        known["kpis"] += [*_kpi_pieces(kpi.expression, dialect), f" AS {quote_identifier(kpi.kpi_id, dialect)}"]
    return _assemble(_pieces(sql, dialect, known))


def _kpi_pieces(expression: str, dialect: Dialect) -> list[str | None]:
    if any(token.lastgroup == "comment" for token in _TOKENS[dialect].finditer(expression)):
        raise InvalidSql("a comment would swallow what follows the expression")
    return list(_pieces(expression, dialect, {"op_time": [None]}))


def _pieces(sql: str, dialect: Dialect, known: Mapping[str, Sequence[str | None]]) -> Iterator[str | None]:
    """The text in pieces, with placeholders replaced by their values. None stands for a parameter: the opTime."""
    for token in _TOKENS[dialect].finditer(sql):
        kind, text = token.lastgroup, token[0]
        if kind == "placeholder":
            name = text[2:-1]
            if name == "dimGroup" and name not in known and "kpis" in known:
                raise InvalidSql("${dimGroup} in a model without dimensions")
            if name not in known:
                raise InvalidSql(f"unknown placeholder {text}; known are {', '.join(f'${{{each}}}' for each in known)}")
            yield from known[name]
        elif kind == "string" and text[1:-1] == "${op_time}":
            yield None
        elif kind in ("string", "identifier") and (found := _PLACEHOLDER.search(text)):
            raise InvalidSql(f"{found[0]} inside {text}: a placeholder stands alone, use CONCAT or ||")
        elif kind == "glued":
            raise InvalidSql("-- without a space behind it is two signs on MySQL and a comment elsewhere")
        elif kind == "escaped" and dialect == "postgres":
            raise InvalidSql("U& before a quote is refused: write the characters themselves")
        elif kind == "comment" and text.startswith(("/*!", "/*M!")):
            raise InvalidSql(f"{text}: MySQL executes such a comment")
        elif kind == "comment" and text.startswith("/*+") and _LIMIT_HINT.search(text):
            raise InvalidSql(f"{text}: a query does not change its time limit; `timeout` of the model does")
        else:
            yield text


def _assemble(pieces: Iterable[str | None]) -> _ExpandedSql:
    parts: list[str] = []
    marks: list[int] = []
    length = 0
    for piece in pieces:
        if piece is None:
            marks.append(length)
        parts.append(f":{_MARK}" if piece is None else piece)
        length += len(parts[-1])
    return _ExpandedSql("".join(parts), tuple(marks))


def _parse_query(expanded: _ExpandedSql, dialect: Dialect) -> exp.Query:
    try:
        found = sqlglot.parse(expanded.text, read=dialect)
    except SqlglotError as error:
        raise _DoesNotParse(f"does not parse: {_parse_error_text(error)}") from None
    except RecursionError:
        raise InvalidSql("does not parse: nested too deeply") from None
    statements = [statement for statement in found if statement and not isinstance(statement, exp.Semicolon)]
    if len(statements) != 1:
        raise InvalidSql(f"{_READ_ONLY}, not {len(statements)} statements")
    statement = statements[0]
    if not isinstance(statement, exp.Select | exp.SetOperation | exp.Subquery) or not statement.selects:
        raise InvalidSql(_READ_ONLY)
    for node in statement.walk():
        for forbidden, name in _FORBIDDEN.items():
            if isinstance(node, forbidden):
                raise InvalidSql(f"{_READ_ONLY}; found {name}")
        if isinstance(node, exp.Func) and is_refused_function(name := _function_name(node)):
            raise InvalidSql(
                f"{name.upper()} is refused: a model reads no file of the server and does nothing to it but query it"
            )
        if isinstance(node, exp.Table) and dialect == "postgres" and node.name.lower() in FILE_VIEWS:
            raise InvalidSql(f"{node.name} is refused: a model reads no file of the server")
        is_numbered = dialect == "postgres" and isinstance(node, exp.Parameter)
        if is_numbered or (isinstance(node, exp.Placeholder) and node.name != _MARK):
            raise InvalidSql(f"unknown parameter {node.sql(dialect)}; the batch is written ${{op_time}}")
    return statement


def _function_name(node: exp.Func) -> str:
    name = node.name if isinstance(node, exp.Anonymous) else node.sql_name()
    return name.lower()


def _check_reach(statement: exp.Query, reach: Reach | None) -> None:
    """Refuses every name of a table that must not be read, wherever it stands in the query but as that of a column."""
    if reach is None:
        return
    for table in statement.find_all(exp.Table):
        refusal = reach.refusal(table.db, table.name) if table.name else None
        if refusal is None and isinstance(table.this, exp.Func):
            name = _function_name(table.this)
            refusal = f"the source platform has no table function {name}" if name.startswith("pragma_") else None
        if refusal is not None:
            raise InvalidSql(refusal)
    for identifier in statement.find_all(exp.Identifier):
        is_column = isinstance(identifier.parent, exp.Column) and identifier.arg_key == "this"
        is_new_name = isinstance(identifier.parent, exp.Alias)
        if not (is_column or is_new_name) and (refusal := reach.refusal("", identifier.name)) is not None:
            raise InvalidSql(refusal)


def _parse_error_text(error: SqlglotError) -> str:
    if not isinstance(error, ParseError) or not error.errors:
        return " ".join(str(error).split())
    first = error.errors[0]
    # For a missing part sqlglot's message names classes of sqlglot: "incomplete" is clearer.
    what = re.sub(
        r"^Required keyword.*|( but got <.*)", lambda found: "" if found[1] else "incomplete", str(first["description"])
    )
    return f"{what} at line {first['line']}, column {first['col']} of the SQL"


def _table_renames(statement: exp.Query, names: Mapping[str, str], dialect: Dialect) -> Iterator[_Edit]:
    """Edits that replace dependencies with a date placeholder by the name of the batch's table.

    The old name becomes an alias, so that columns qualified with it are still found. To PostgreSQL a name without
    quotes is one of small letters, and stays so.
    """

    def quoted(name: str, as_in: exp.Identifier) -> str:
        folded = dialect == "postgres" and not as_in.args.get("quoted")
        return quote_identifier(name.lower() if folded else name, dialect)

    own = {cte.alias for cte in statement.find_all(exp.CTE)}
    for table in statement.find_all(exp.Table):
        parts = [part for part in table.parts if isinstance(part, exp.Identifier)]
        if not parts or (len(parts) == 1 and parts[0].name in own):
            continue
        whole = ".".join(part.name for part in parts)
        if whole not in names:
            parts = parts[-1:]  # the query may prefix a dependency with its database
        written = ".".join(part.name for part in parts)
        arrived = names.get(written, written)
        if arrived == written:
            continue
        pieces = arrived.split(".") if len(parts) > 1 else [arrived]
        alias = "" if table.alias or table.args.get("partition") else f" AS {quoted(parts[-1].name, parts[-1])}"
        renamed = ".".join(quoted(piece, part) for piece, part in zip(pieces, parts, strict=True))
        yield _Edit(parts[0].meta["start"], parts[-1].meta["end"] + 1, renamed + alias)


def _apply_edits(text: str, edits: Iterable[_Edit], dialect: Dialect) -> str:
    done, result = 0, []
    for edit in sorted(edits, key=lambda edit: edit.start):
        result += [_escape_percent(text[done : edit.start], dialect), edit.text]
        done = edit.end
    return "".join([*result, _escape_percent(text[done:], dialect)])


def _escape_percent(text: str, dialect: Dialect) -> str:
    """Keeps the drivers of MySQL and PostgreSQL from reading `%` in the author's text as the start of a parameter.

    They replace `%(name)s` also inside string literals. `%(percent)%` makes MySQL's write a percent sign.
    """
    if dialect == "postgres":
        return text.replace("%", "%%")
    return text.replace("%(", "%(percent)%(") if dialect == "mysql" else text
