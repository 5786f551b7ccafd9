"""Portable multi-row upsert, with the same outcome on MySQL, MariaDB and SQLite, and few round trips to a server."""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from graphlib import CycleError, TopologicalSorter
from itertools import chain, repeat
from typing import Any, Literal

from sqlalchemy import ColumnElement, Connection, Table, UniqueConstraint, case
from sqlalchemy.dialects import mysql, sqlite
from sqlalchemy.engine import Dialect
from sqlalchemy.sql.base import ReadOnlyColumnCollection
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.dml import Insert
from sqlalchemy.sql.visitors import iterate
from sqlalchemy.types import TypeEngine

from platform_defs.store.chunks import chunks
from platform_defs.store.driver import execute
from platform_defs.store.types import is_mysql, utc_now

# the columns of the row that was to be inserted, for expressions that combine it with the existing row
Incoming = ReadOnlyColumnCollection[str, Any]
Update = Sequence[str] | Literal["nothing"] | Callable[[Incoming], Mapping[str, Any]] | None

MAX_ROWS = 1000
MAX_BYTES = 8 * 1024 * 1024
# rows of a statement on SQLite, which has no round trips
SQLITE_ROWS = (50, 10, 1)


@dataclass(frozen=True)
class Upsert:
    """An upsert that is used again and again: its statement is compiled once for each dialect and set of columns.

    `key` is a unique key of the table, or empty where rows are only added. `update` says what changes in an existing
    row: None all given columns but the key, a list of columns, "nothing", or a function from the incoming row's columns
    to {column: expression} in which `table.c.x` is the existing value. `when` limits the update to rows for which the
    condition holds. A column that is maintained on update (updated_at) is set too. On MySQL a clash with another unique
    key than `key` also updates; on SQLite it is an error.
    """

    table: Table
    key: Sequence[str]
    update: Update = None
    when: Callable[[Incoming], ColumnElement[bool]] | None = None
    _compiled: dict[tuple[Any, ...], "_OneRow"] = field(default_factory=dict, init=False, repr=False, compare=False)

    def run(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> int:
        """Inserts the rows or updates those whose key exists, as if one after the other; returns how many were sent.

        All rows name the same columns.
        """
        if not rows:
            return 0
        columns = tuple(rows[0])
        _check_columns(self.table, columns, rows)
        return self.run_columns(connection, {name: [row[name] for row in rows] for name in columns})

    def run_columns(
        self,
        connection: Connection,
        columns: Mapping[str, Sequence[Any]],
        same: Mapping[str, Any] | None = None,
        *,
        ready: Container[str] = (),
    ) -> int:
        """Like `run`, with the values of each column in the order of the rows; `same` has those of all rows alike.

        The values of `ready` columns are sent as they are, such as JSON that is text already.
        """
        same = same or {}
        count = len(next(iter(columns.values())))
        if count == 0:
            return 0
        one = self._one_row(connection.dialect, (*same, *columns))
        bound: list[Iterable[Any]] = []
        for name, process in zip(one.columns, one.processors, strict=True):
            if name in same:
                bound.append(repeat(same[name] if process is None else process(same[name]), count))
            else:
                values = columns[name]
                bound.append(values if process is None or name in ready else [process(value) for value in values])
        one.send(connection, list(zip(*bound, strict=True)))
        return count

    def _one_row(self, dialect: Dialect, columns: tuple[str, ...]) -> "_OneRow":
        # MariaDB has types of its own under the name of MySQL
        place = (dialect.name, getattr(dialect, "is_mariadb", False), columns)
        found = self._compiled.get(place)
        if found is None:
            if self.key:
                _check_key(self.table, self.key)
            statement = _statement(dialect, self.table, list(columns), self.key, self.update, self.when)
            found = self._compiled[place] = _compile_one_row(dialect, self.table, statement, list(columns))
        return found


def upsert(
    connection: Connection,
    table: Table,
    rows: Sequence[Mapping[str, Any]],
    *,
    key: Sequence[str],
    update: Update = None,
    when: Callable[[Incoming], ColumnElement[bool]] | None = None,
) -> int:
    """An `Upsert` that its caller does not keep."""
    if when is not None or callable(update):
        return Upsert(table, key, update, when).run(connection, rows)
    # compiling the statement takes longer than running it with a few rows
    columns = update if update is None or update == "nothing" else tuple(update)
    return _known(table, tuple(key), columns).run(connection, rows)


@cache
def _known(table: Table, key: tuple[str, ...], update: Update) -> Upsert:
    return Upsert(table, key, update)


def _check_key(table: Table, key: Sequence[str]) -> None:
    unique = [
        {column.name for column in constraint.columns}
        for constraint in (table.primary_key, *table.constraints)
        if constraint is table.primary_key or isinstance(constraint, UniqueConstraint)
    ]
    unique += [{column.name for column in index.columns} for index in table.indexes if index.unique]
    if set(key) not in unique:
        raise ValueError(f"{', '.join(key)} is no unique key of {table.name}")


def _check_columns(table: Table, columns: tuple[str, ...], rows: Sequence[Mapping[str, Any]]) -> None:
    expected = set(columns)
    for row in rows:
        if row.keys() != expected:
            raise ValueError(f"rows of one upsert into {table.name} name different columns")


def _statement(
    dialect: Dialect,
    table: Table,
    columns: list[str],
    key: Sequence[str],
    update: Update,
    when: Callable[[Incoming], ColumnElement[bool]] | None,
) -> Insert:
    if not key:
        return table.insert()
    if is_mysql(dialect):
        on_mysql = mysql.insert(table)
        changes = _changes(table, columns, key, update, on_mysql.inserted)
        if not changes:
            # assigning a key to itself changes nothing; INSERT IGNORE would also hide truncated values
            return on_mysql.on_duplicate_key_update({key[0]: table.c[key[0]]})
        if when is not None:
            condition = when(on_mysql.inserted)
            changes = {name: case((condition, value), else_=table.c[name]) for name, value in changes.items()}
        return on_mysql.on_duplicate_key_update([(name, changes[name]) for name in _assignment_order(table, changes)])
    on_sqlite = sqlite.insert(table)
    changes = _changes(table, columns, key, update, on_sqlite.excluded)
    if not changes:
        return on_sqlite.on_conflict_do_nothing(index_elements=list(key))
    where = None if when is None else when(on_sqlite.excluded)
    return on_sqlite.on_conflict_do_update(index_elements=list(key), set_=changes, where=where)


def _changes(
    table: Table, columns: list[str], key: Sequence[str], update: Update, incoming: Incoming
) -> dict[str, Any]:
    if update == "nothing":
        return {}
    if callable(update):
        changes = dict(update(incoming))
    else:
        names = [name for name in columns if name not in key] if update is None else update
        changes = {name: incoming[name] for name in names}
    if changes:
        for column in table.columns:
            if column.onupdate is not None and column.name not in changes:
                changes[column.name] = utc_now()
    return changes


def _assignment_order(table: Table, changes: Mapping[str, Any]) -> list[str]:
    """MySQL assigns from left to right, so a column comes after all expressions that read its old value."""
    order = TopologicalSorter[str](dict.fromkeys(changes, ()))
    for name, value in changes.items():
        for element in iterate(value) if isinstance(value, ColumnElement) else ():
            read = getattr(element, "name", None)
            if getattr(element, "table", None) is table and read in changes and read != name:
                order.add(str(read), name)
    try:
        return list(order.static_order())
    except CycleError as error:
        raise ValueError(f"these columns of {table.name} are updated from each other: {error.args[1]}") from None


@dataclass(frozen=True)
class _OneRow:
    """The statement for one row, cut around its group of values so that the group can be repeated."""

    columns: list[str]
    # of each column: what turns a value into the driver's, None where it stays as it is
    processors: Sequence[Callable[[Any], Any] | None]
    head: str
    group: str
    tail: str
    tail_values: list[Any]

    def send(self, connection: Connection, rows: list[tuple[Any, ...]]) -> None:
        """The rows as the driver takes them."""
        chunks_of = _chunks if is_mysql(connection.dialect) else _few_sizes
        for chunk in chunks_of(rows, connection.dialect):
            execute(connection, self._text(len(chunk)), (*chain.from_iterable(chunk), *self.tail_values))

    def _text(self, rows: int) -> str:
        return f"{self.head}{', '.join([self.group] * rows)}{self.tail}"


def _compile_one_row(dialect: Dialect, table: Table, statement: Insert, columns: list[str]) -> _OneRow:
    # compiling all rows would cost more than sending them: SQLAlchemy spends 100 ms on 1,000 rows
    compiled = statement.compile(dialect=dialect, column_keys=columns)
    assert isinstance(compiled, SQLCompiler)
    names = compiled.positiontup or []
    group = f"({', '.join(['%s' if is_mysql(dialect) else '?'] * len(columns))})"
    head, found, tail = str(compiled).partition(group)
    if not found:
        raise AssertionError(f"no values in {compiled}")
    tail_values = [
        _bind_value(dialect, compiled.binds[name].type, compiled.params[name]) for name in names[len(columns) :]
    ]
    bound = names[: len(columns)]
    processors = [table.c[name].type.dialect_impl(dialect).bind_processor(dialect) for name in bound]
    return _OneRow(bound, processors, head, group, tail, tail_values)


def _bind_value(dialect: Dialect, type_: TypeEngine[Any], value: Any) -> Any:
    process = type_.dialect_impl(dialect).bind_processor(dialect)
    return value if process is None else process(value)


def _chunks(rows: list[tuple[Any, ...]], dialect: Dialect) -> Iterator[list[tuple[Any, ...]]]:
    """The same rows in statements that are not too large."""
    # escaping may double the length of a text, so a quarter of the server's limit leaves room
    max_bytes = min(MAX_BYTES, getattr(dialect, "platform_packet_limit", MAX_BYTES * 4) // 4)
    for part in chunks(rows, MAX_ROWS):
        chunk: list[tuple[Any, ...]] = []
        size = 0
        for row in part:
            row_size = _estimate_bytes(row)
            if chunk and size + row_size > max_bytes:
                yield chunk
                chunk, size = [], 0
            chunk.append(row)
            size += row_size
        yield chunk


def _few_sizes(rows: list[tuple[Any, ...]], dialect: Dialect) -> Iterator[list[tuple[Any, ...]]]:
    """The same rows in statements of few different lengths: SQLite reads each of them once and remembers it.

    A statement of one row, run for each row, would take a fifth longer, and give every other thread of the process a
    chance to run in between: with several writers that costs more than the rows.
    """
    start = 0
    for size in SQLITE_ROWS:
        while len(rows) - start >= size:
            yield rows[start : start + size]
            start += size


def _estimate_bytes(row: tuple[Any, ...]) -> int:
    size = 32 * len(row)
    for value in row:
        if isinstance(value, str):
            size += len(value) if value.isascii() else 4 * len(value)
        elif isinstance(value, bytes):
            size += len(value)
    return size
