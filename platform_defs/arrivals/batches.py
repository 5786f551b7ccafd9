"""Batches as pairs of a name and an opTime, and the SQL condition that finds their rows."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sqlalchemy import ColumnElement, and_, false, or_

# The id of a model or the name of a table, and an opTime.
Batch = tuple[str, str]


def _exactly(op_time: str) -> Sequence[str]:
    return (op_time,)


def in_batches(
    name: ColumnElement[Any],
    op_time: ColumnElement[Any],
    batches: Iterable[Batch],
    spellings: Callable[[str], Sequence[str]] = _exactly,
) -> ColumnElement[bool]:
    """SQL condition: name and opTime of the row are one of the batches, in any of the opTime's spellings.

    The condition lists names per opTime instead of comparing tuples, because SQLite uses no index for tuples.
    """
    names: dict[str, set[str]] = defaultdict(set)
    for batch_name, batch_op_time in batches:
        names[batch_op_time].add(batch_name)
    return or_(
        false(),
        *(and_(op_time.in_(spellings(value)), name.in_(sorted(found))) for value, found in sorted(names.items())),
    )
