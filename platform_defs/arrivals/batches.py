"""Rows of some batches, in a form that every optimiser looks up by its index: SQLite reads a table whole for tuples."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from sqlalchemy import ColumnElement, and_, false, or_

Batch = tuple[str, str]  # a model or a table, and an opTime


def among(name: ColumnElement[Any], op_time: ColumnElement[Any], wanted: Iterable[Batch]) -> ColumnElement[bool]:
    names: dict[str, set[str]] = defaultdict(set)
    for one, batch in wanted:
        names[batch].add(one)
    return or_(false(), *(and_(op_time == batch, name.in_(sorted(found))) for batch, found in sorted(names.items())))
