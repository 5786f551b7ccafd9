"""The forward watermark of a harvest: the end of the contiguous windows that are complete."""

from collections.abc import Iterable
from datetime import datetime

from platform_defs.ingest.planning.windows import Window


def contiguous_end(start: datetime, completed: Iterable[Window]) -> datetime:
    """How far complete windows reach from `start` without a gap; windows may overlap, touch, and come in any order."""
    reached = start
    for window in sorted(completed):
        if window.start > reached:
            return reached
        reached = max(reached, window.end)
    return reached


def contiguous_start(end: datetime, completed: Iterable[Window]) -> datetime:
    """How far complete windows reach back from `end` without a gap: the cursor of a backfill."""
    reached = end
    for window in sorted(completed, key=lambda each: each.end, reverse=True):
        if window.end < reached:
            return reached
        reached = min(reached, window.start)
    return reached
