"""Rows of some batches, in a form that every optimiser looks up by its index: SQLite reads a table whole for tuples."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sqlalchemy import ColumnElement, and_, false, or_

Batch = tuple[str, str]  # a model or a table, and an opTime


def _exactly(op_time: str) -> Sequence[str]:
    return (op_time,)


def in_batches(
    name: ColumnElement[Any],
    op_time: ColumnElement[Any],
    wanted: Iterable[Batch],
    spellings: Callable[[str], Sequence[str]] = _exactly,
) -> ColumnElement[bool]:
    names: dict[str, set[str]] = defaultdict(set)
    for one, batch in wanted:
        names[batch].add(one)
    return or_(
        false(),
        *(and_(op_time.in_(spellings(batch)), name.in_(sorted(found))) for batch, found in sorted(names.items())),
    )
