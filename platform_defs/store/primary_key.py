"""A condition that picks rows by their primary keys, in a form that every optimiser looks up in the key."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Table, and_, or_


def has_key_among(table: Table, wanted: Sequence[Sequence[Any]]) -> ColumnElement[bool]:
    """Whether a row's primary key is one of the wanted ones; at most 1,000 where a key has several columns.

    SQLite's parser takes no longer chain of ORs.
    """
    keys = list(table.primary_key)
    if len(keys) == 1:
        return keys[0].in_([key for (key,) in wanted])
    return or_(*(and_(*(column == part for column, part in zip(keys, key, strict=True))) for key in wanted))
