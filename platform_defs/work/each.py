"""Does the same for each of several items, so that one item that fails stops none of the others."""

import logging
from collections.abc import Callable, Iterable
from typing import TypeVar

from sqlalchemy.exc import SQLAlchemyError

from platform_defs.errors import PlatformError, one_line

T = TypeVar("T")

_log = logging.getLogger(__name__)


def for_each(items: Iterable[T], step: Callable[[T], object], describe: Callable[[T], str]) -> list[str]:
    """Returns what went wrong, one line for each item that failed; the log has it too."""
    failures = []
    for item in items:
        try:
            step(item)
        except Exception as error:
            failures.append(note_failure(describe(item), error))
    return failures


def note_failure(what: str, error: Exception) -> str:
    """Logs that something failed and that everything else goes on; returns the line."""
    problem = f"{what}: {one_line(error)}"
    # A stack trace of the database's errors would show the parameters of the statement.
    is_expected = isinstance(error, (PlatformError, SQLAlchemyError, OSError))
    _log.error("%s; the others go on", problem, exc_info=None if is_expected else error)
    return problem
