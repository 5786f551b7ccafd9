"""Statements that run so often that SQLAlchemy would spend longer on them than the database: the driver takes them.

They run in the caller's transaction, on the connection of SQLAlchemy, and raise the errors that SQLAlchemy raises.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select
from sqlalchemy.engine import Dialect
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql.base import Executable
from sqlalchemy.sql.compiler import SQLCompiler

MYSQL_PACKET_TOO_LARGE = frozenset({1153, 2020})

# stands in a text for the marks of a list
_LIST = "{list of values}"

Processor = Callable[[Any], Any] | None


@dataclass(frozen=True, slots=True)
class Done:
    """What a statement returned, as the driver gives it, and what it did."""

    rows: Sequence[tuple[Any, ...]]
    rowcount: int
    lastrowid: int | None


def execute(connection: Connection, text: str, values: Sequence[Any] = ()) -> Done:
    """One statement in the driver's own spelling, with the driver's own values."""
    cursor = connection.connection.cursor()
    try:
        _tell_listeners(connection.dispatch.before_cursor_execute, connection, cursor, text, values)
        cursor.execute(text, values)
        _tell_listeners(connection.dispatch.after_cursor_execute, connection, cursor, text, values)
        rows = cursor.fetchall() if cursor.description else ()
        return Done(rows, cursor.rowcount, cursor.lastrowid)
    except Exception as error:
        _raise_as_sqlalchemy(connection, text, values, error)
        raise
    finally:
        cursor.close()


def _tell_listeners(
    listeners: Iterable[Callable[..., Any]],
    connection: Connection,
    cursor: Any,
    text: str,
    values: Sequence[Any],
) -> None:
    """Who counts or logs statements hears of these too."""
    for listener in listeners:
        listener(connection, cursor, text, values, None, False)


def _raise_as_sqlalchemy(connection: Connection, text: str, values: Sequence[Any], error: Exception) -> None:
    dialect = connection.dialect
    if not isinstance(error, dialect.loaded_dbapi.Error):
        return
    # after a packet that is too large the server closes the connection
    is_lost = getattr(error, "errno", None) in MYSQL_PACKET_TOO_LARGE
    is_lost = is_lost or dialect.is_disconnect(error, connection.connection.dbapi_connection, None)
    if is_lost:
        connection.invalidate(error)
    raise DBAPIError.instance(
        text,
        values,
        error,
        dialect.loaded_dbapi.Error,
        connection_invalidated=is_lost,
        dialect=dialect,
    ) from error


class Prepared:
    """A statement that is compiled once for each dialect and run many times; it may have one list in an IN."""

    def __init__(self, statement: Executable) -> None:
        self._statement = statement
        self._compiled: dict[tuple[str, bool], _Compiled] = {}

    def run(self, connection: Connection, values: Mapping[str, Any]) -> Done:
        """`values` by the names of the statement's parameters, of the types that its columns have in Python."""
        dialect = connection.dialect
        # MariaDB has types of its own under the name of MySQL
        place = (dialect.name, getattr(dialect, "is_mariadb", False))
        compiled = self._compiled.get(place)
        if compiled is None:
            compiled = self._compiled[place] = _compile(self._statement, dialect)
        done = execute(connection, *compiled.bound(values))
        if compiled.results is None or not done.rows:
            return done
        return Done([compiled.read(row) for row in done.rows], done.rowcount, done.lastrowid)


@dataclass(frozen=True)
class _Compiled:
    text: str
    # of each value: the parameter's name and what makes it the driver's, or None and a constant
    positions: Sequence[tuple[str | None, Processor, Any]]
    # of each column of a query; None where the driver's values are as they should be
    results: Sequence[Processor] | None
    # the parameter that is a list, and which of the values are its
    listed: tuple[str, int] | None
    # what stands for a value in the text; None where values have numbers
    mark: str | None

    def bound(self, values: Mapping[str, Any]) -> tuple[str, Sequence[Any]]:
        """The text and the values as the driver takes them."""
        found = [
            constant if name is None else values[name] if process is None else process(values[name])
            for name, process, constant in self.positions
        ]
        if self.listed is None:
            return self.text, found
        name, position = self.listed
        items = values[name]
        marks = [self.mark or f"?{position + number}" for number in range(1, len(items) + 1)]
        found[position:position] = items
        return self.text.replace(_LIST, ", ".join(marks)), found

    def read(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        assert self.results is not None, "asked by the caller"
        return tuple(
            value if process is None else process(value) for value, process in zip(row, self.results, strict=True)
        )


def _compile(statement: Executable, dialect: Dialect) -> _Compiled:
    """Numbers that are always the same become part of the text; SQLite gets a value once that is used often."""
    compiled = statement.compile(dialect=dialect)  # type: ignore[attr-defined]
    assert isinstance(compiled, SQLCompiler)
    if unnamed := [*compiled.insert_prefetch, *compiled.update_prefetch]:
        raise ValueError(f"expected a value for {unnamed[0]}, which SQLAlchemy would set by itself")
    mark = compiled.bindtemplate % {"name": ""}
    names, sql = compiled.positiontup or [], str(compiled)
    for name in names:
        sql = sql.replace(f"(__[POSTCOMPILE_{name}])", f"({mark})")
    text, *texts = sql.split(mark)
    assert len(texts) == len(names), f"{mark} is in the statement itself: {sql}"
    positions = _Positions(mark, is_numbered=dialect.name == "sqlite")
    for name, following in zip(names, texts, strict=True):
        bind = compiled.binds[name]
        process = bind.type.dialect_impl(dialect).bind_processor(dialect)
        if not bind.required:
            constants: Sequence[Any] = (bind.value or ()) if bind.expanding else [bind.value]
            text += ", ".join(positions.constant(value if process is None else process(value)) for value in constants)
        elif bind.expanding:
            assert process is None, "the values of a list are sent as they are"
            text += positions.list(name)
        else:
            text += positions.named(name, process)
        text += following
    return _Compiled(
        text,
        positions.found,
        _result_processors(statement, dialect),
        positions.listed,
        None if positions.is_numbered else mark,
    )


class _Positions:
    """The values of a statement in their order; each method returns what stands for them in the text."""

    def __init__(self, mark: str, *, is_numbered: bool) -> None:
        self.is_numbered = is_numbered
        self.found: list[tuple[str | None, Processor, Any]] = []
        self._mark = mark
        self._numbers: dict[str, int] = {}
        self._list: tuple[str, int] | None = None

    @property
    def listed(self) -> tuple[str, int] | None:
        """Values with numbers come in any order: the list is then the last of them, because it has no fixed length."""
        return (self._list[0], len(self.found)) if self._list and self.is_numbered else self._list

    def constant(self, value: Any) -> str:
        if type(value) in (int, float):
            return f"({value!r})" if value < 0 else repr(value)
        return self._add(None, None, value)

    def named(self, name: str, process: Processor) -> str:
        if name in self._numbers:
            return f"?{self._numbers[name]}"
        mark = self._add(name, process, None)
        if self.is_numbered:
            self._numbers[name] = len(self.found)
        return mark

    def list(self, name: str) -> str:
        assert self._list is None, "a statement has one list"
        self._list = (name, len(self.found))
        return _LIST

    def _add(self, name: str | None, process: Processor, value: Any) -> str:
        self.found.append((name, process, value))
        return f"?{len(self.found)}" if self.is_numbered else self._mark


def _result_processors(statement: Executable, dialect: Dialect) -> Sequence[Processor] | None:
    if not isinstance(statement, Select):
        return None
    columns = statement.selected_columns
    found = [column.type.dialect_impl(dialect).result_processor(dialect, None) for column in columns]
    return found if any(found) else None
