"""Does the same for each of several items, so that one item that fails stops none of the others."""

import logging
from collections.abc import Callable, Iterable
from typing import TypeVar

from sqlalchemy.exc import SQLAlchemyError

from platform_defs.errors import PlatformError, one_line
from platform_defs.logs import SparseLog

T = TypeVar("T")

_log = logging.getLogger(__name__)


def for_each(
    items: Iterable[T], step: Callable[[T], object], describe: Callable[[T], str], log: SparseLog | None = None
) -> list[str]:
    """Returns what went wrong, one line for each item that failed; the log has it too.

    A caller that does this every second passes a log of its own, which leaves out what repeats itself.
    """
    failures = []
    for item in items:
        try:
            step(item)
        except Exception as error:
            failures.append(note_failure(describe(item), error, log))
    return failures


def note_failure(what: str, error: Exception, log: SparseLog | None = None) -> str:
    """Logs that something failed and that everything else goes on; returns the line."""
    problem = f"{what}: {one_line(error)}"
    line = f"{problem}; the others go on"
    (log or SparseLog(_log)).write(logging.ERROR, line, exc_info=trace_of(error))
    return problem


def trace_of(error: Exception) -> Exception | None:
    """The error, if its stack trace belongs into the log: that of a database's error would show the parameters."""
    return None if isinstance(error, (PlatformError, SQLAlchemyError, OSError)) else error
