"""Claims rows of a queue table for one worker, on every database: no row is claimed by two workers."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Table, select, update

from platform_defs.store.chunks import chunks
from platform_defs.store.primary_key import has_key_among
from platform_defs.store.types import is_mysql

# Candidates that are read for each wanted row: on MySQL other workers may have locked the first ones.
LOOK_AHEAD = 8


def claim(
    connection: Connection,
    table: Table,
    *,
    where: ColumnElement[bool],
    order_by: Sequence[ColumnElement[Any]],
    limit: int,
    values: Mapping[str, Any],
) -> list[Row[Any]]:
    """Sets `values` on up to `limit` rows that satisfy `where`, and returns these rows as they are then, in order.

    `values` must make `where` false (a status, a lease), so that a claimed row is not found again. While other workers
    claim at the same moment, fewer rows may be returned than the queue holds: the next call finds the rest.
    """
    keys = list(table.primary_key.columns)
    candidates = [
        tuple(row)
        for row in connection.execute(select(*keys).where(where).order_by(*order_by).limit(limit * LOOK_AHEAD))
    ]
    on_mysql = is_mysql(connection.dialect)
    chosen = _lock(connection, table, candidates, where, limit) if on_mysql else candidates[:limit]
    if not chosen:
        return []
    mine = has_key_among(table, chosen)
    mark = update(table).where(mine).values(dict(values))
    if on_mysql:
        connection.execute(mark)
        claimed = connection.execute(select(table).where(mine)).all()
    else:
        # SQLite has no row locks: the condition is repeated, so that this one statement decides
        claimed = connection.execute(mark.where(where).returning(*table.columns)).all()
    place = {key: position for position, key in enumerate(chosen)}
    return sorted(claimed, key=lambda row: place[tuple(row._mapping[key] for key in keys)])


def _lock(
    connection: Connection,
    table: Table,
    candidates: Sequence[tuple[Any, ...]],
    where: ColumnElement[bool],
    limit: int,
) -> list[tuple[Any, ...]]:
    """Locks candidates by their primary key, in order, until `limit` rows are locked.

    A locking read of the whole condition would sort, and InnoDB locks every row it sorts: one worker would hold the
    entire queue and the others would find it empty. The hint keeps the optimiser from scanning a small table.
    """
    keys = list(table.primary_key.columns)
    chosen: list[tuple[Any, ...]] = []
    for wanted in chunks(candidates, limit):
        query = (
            select(*keys)
            .with_hint(table, "FORCE INDEX (PRIMARY)")
            .where(has_key_among(table, wanted), where)
            .with_for_update(skip_locked=True)
        )
        locked = {tuple(row) for row in connection.execute(query)}
        chosen += [key for key in wanted if key in locked]
        if len(chosen) >= limit:
            break
    return chosen[:limit]
