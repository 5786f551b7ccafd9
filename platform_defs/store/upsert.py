"""Portable multi-row upsert: one statement per chunk on MySQL, MariaDB and SQLite, with the same outcome on each."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any, Literal

from sqlalchemy import ColumnElement, Connection, Table, UniqueConstraint, case
from sqlalchemy.dialects import mysql, sqlite
from sqlalchemy.engine import Dialect
from sqlalchemy.sql.base import ReadOnlyColumnCollection
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.dml import Insert
from sqlalchemy.sql.visitors import iterate
from sqlalchemy.types import TypeEngine

from platform_defs.store.types import is_mysql, utc_now

# the columns of the row that was to be inserted, for expressions that combine it with the existing row
Incoming = ReadOnlyColumnCollection[str, Any]
Update = Sequence[str] | Literal["nothing"] | Callable[[Incoming], Mapping[str, Any]] | None

MAX_ROWS = 1000
MAX_BYTES = 8 * 1024 * 1024
SQLITE_MAX_VARIABLES = 32_000


def upsert(
    connection: Connection,
    table: Table,
    rows: Sequence[Mapping[str, Any]],
    *,
    key: Sequence[str],
    update: Update = None,
    when: Callable[[Incoming], ColumnElement[bool]] | None = None,
) -> int:
    """Inserts the rows or updates those whose key exists, as if one after the other; returns how many were sent.

    All rows name the same columns. `key` is a unique key of the table. `update` says what changes in an existing row:
    None all given columns but the key, a list of columns, "nothing", or a function from the incoming row's columns to
    {column: expression} in which `table.c.x` is the existing value. `when` limits the update to rows for which the
    condition holds. A column that is maintained on update (updated_at) is set too. On MySQL a clash with another
    unique key than `key` also updates; on SQLite it is an error.
    """
    if not rows:
        return 0
    columns = list(rows[0])
    _check_rows(table, columns, rows, key)
    dialect = connection.dialect
    one = _compile_one_row(dialect, _statement(dialect, table, columns, key, update, when), columns)
    for chunk in _chunks_by_size(
        _bind_rows(dialect, table, one.columns, rows), dialect, len(columns), len(one.tail_values)
    ):
        statement = f"{one.head}{', '.join([one.group] * len(chunk))}{one.tail}"
        connection.exec_driver_sql(statement, (*(value for row in chunk for value in row), *one.tail_values))
    return len(rows)


def _check_rows(table: Table, columns: list[str], rows: Sequence[Mapping[str, Any]], key: Sequence[str]) -> None:
    unique = [
        {column.name for column in constraint.columns}
        for constraint in (table.primary_key, *table.constraints)
        if constraint is table.primary_key or isinstance(constraint, UniqueConstraint)
    ]
    unique += [{column.name for column in index.columns} for index in table.indexes if index.unique]
    if set(key) not in unique:
        raise ValueError(f"{', '.join(key)} is no unique key of {table.name}")
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
    head: str
    group: str
    tail: str
    tail_values: list[Any]


def _compile_one_row(dialect: Dialect, statement: Insert, columns: list[str]) -> _OneRow:
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
    return _OneRow(names[: len(columns)], head, group, tail, tail_values)


def _bind_value(dialect: Dialect, type_: TypeEngine[Any], value: Any) -> Any:
    process = type_.dialect_impl(dialect).bind_processor(dialect)
    return value if process is None else process(value)


def _bind_rows(
    dialect: Dialect, table: Table, columns: list[str], rows: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[Any, ...]]:
    """The rows as the driver takes them: each value converted by the type of its column."""
    processors = [table.c[name].type.dialect_impl(dialect).bind_processor(dialect) for name in columns]
    pairs = list(zip(columns, processors, strict=True))
    for row in rows:
        yield tuple(row[name] if process is None else process(row[name]) for name, process in pairs)


def _chunks_by_size(
    rows: Iterator[tuple[Any, ...]], dialect: Dialect, width: int, extra: int
) -> Iterator[list[tuple[Any, ...]]]:
    max_rows, max_bytes = MAX_ROWS, MAX_BYTES
    if is_mysql(dialect):
        # escaping may double the length of a text, so a quarter of the limit leaves room
        max_bytes = min(MAX_BYTES, getattr(dialect, "platform_packet_limit", MAX_BYTES * 4) // 4)
    else:
        max_rows = max(1, min(MAX_ROWS, (SQLITE_MAX_VARIABLES - extra) // width))
    chunk: list[tuple[Any, ...]] = []
    size = 0
    for row in rows:
        row_size = sum(_estimate_bytes(value) for value in row)
        if chunk and (len(chunk) >= max_rows or size + row_size > max_bytes):
            yield chunk
            chunk, size = [], 0
        chunk.append(row)
        size += row_size
    if chunk:
        yield chunk


def _estimate_bytes(value: Any) -> int:
    if isinstance(value, str):
        return len(value) if value.isascii() else 4 * len(value)
    return len(value) if isinstance(value, bytes) else 32
