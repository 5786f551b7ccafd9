"""Deletion of old rows, for every system that forgets its records after some days.

What a caller may rely on:

- Transactions are bounded: each deletes at most ROWS_PER_TRANSACTION rows, with their parts.
- It may be ended at any point, and called again: every transaction leaves whole rows behind or nothing of them.
- A row that somebody else has locked is skipped, because its owner is changing it. The next call meets it again.
- A row is deleted only if it is still old when its transaction begins.
- Writers are not held up by the search: old rows are looked up in a read, which on SQLite stops nobody.
- SQLite gives the id of a deleted newest row to the next row. With `keep_newest` (the default) the row with the highest
  id therefore stays, so that an id which other rows or cursors have noted never becomes another row's.
"""

from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, Engine, Table, and_, delete, func, select, true

from platform_defs.store.chunks import chunks
from platform_defs.store.engine import read, transact
from platform_defs.store.primary_key import has_key_among

ROWS_PER_TRANSACTION = 1000
KEYS_PER_STATEMENT = 500


def delete_old_rows(
    engine: Engine,
    table: Table,
    old: ColumnElement[bool],
    *,
    order_by: Column[Any] | None = None,
    parts: Column[int] | None = None,
    keep_newest: bool = True,
) -> int:
    """Deletes the rows for which `old` holds and returns how many.

    The table is searched along `order_by`, a column with an index that puts old rows first; the default is `id`.
    `parts` is another table's column that refers to the id: the rows there go in the same transaction.
    """
    along: Column[Any] = table.c.id if order_by is None else order_by
    if keep_newest:
        newest = read(engine, lambda connection: connection.scalar(select(func.max(table.c.id))))
        if newest is None:
            return 0
        old = and_(old, table.c.id < newest)
    total = 0
    ahead: ColumnElement[bool] = true()
    while True:
        keys, last = _find_some(engine, table, and_(old, ahead), along)
        if not keys:
            return total
        deleted = _delete_some(engine, table, old, keys, parts)
        total += deleted
        # several rows may have the last value: the search goes on at it, or past it if no row could be deleted
        ahead = along >= last if deleted else along > last


def _find_some(
    engine: Engine, table: Table, old: ColumnElement[bool], along: Column[Any]
) -> tuple[list[tuple[Any, ...]], Any]:
    """The primary keys of some old rows, and the last one's value of the column that the table is searched along."""
    query = select(*table.primary_key, along.label("along")).where(old).order_by(along).limit(ROWS_PER_TRANSACTION)
    rows = read(engine, lambda connection: connection.execute(query).all())
    return [tuple(row)[:-1] for row in rows], rows[-1].along if rows else None


def _delete_some(
    engine: Engine, table: Table, old: ColumnElement[bool], keys: list[tuple[Any, ...]], parts: Column[int] | None
) -> int:
    def remove(connection: Connection) -> int:
        deleted = 0
        for some in chunks(keys, KEYS_PER_STATEMENT):
            still_old = select(*table.primary_key).where(old, has_key_among(table, some))
            locked = [tuple(row) for row in connection.execute(still_old.with_for_update(skip_locked=True))]
            if not locked:
                continue
            if parts is not None:
                connection.execute(delete(parts.table).where(parts.in_([key for (key,) in locked])))
            connection.execute(delete(table).where(has_key_among(table, locked)))
            deleted += len(locked)
        return deleted

    return transact(engine, remove)
