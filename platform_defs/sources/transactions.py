"""An open read-only transaction on a source, whichever database it is, with one time limit for all its queries."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from platform_defs.sources.errors import SourceError
from platform_defs.sources.reach import Reach

FETCHED_ROWS = 1000
# The server ends a query in time; the socket's timeout, which is this much longer, is for a server that is gone.
SOCKET_GRACE_S = 10
# How long a question of our own to a source may take, such as which statements run there.
ASK_TIMEOUT_S = 10
# Pauses while a statement that was told to end does so.
END_PAUSES_S = (0.05, 0.2, 0.5, 1.0)

Dialect = Literal["mysql", "sqlite", "postgres"]


class Deadline:
    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._end = time.monotonic() + timeout_s

    def passed(self) -> bool:
        return time.monotonic() >= self._end

    def check(self) -> None:
        if self.passed():
            raise SourceError(f"the query did not end within {self.timeout_s:g} s")


@dataclass(frozen=True)
class Query:
    """SQL as the driver takes it: a parameter is `:name` for SQLite and `%(name)s` for MySQL and PostgreSQL."""

    sql: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True)
class Rows:
    """What a driver gives for a query: the names of the columns, and the rows in batches that fit into memory."""

    columns: list[str]
    batches: Iterator[list[tuple[Any, ...]]]


@dataclass(frozen=True)
class ReadTransaction:
    """An open read-only transaction on a source."""

    dialect: Dialect
    _execute: Callable[[Query], Rows]
    _deadline: Deadline
    # what the queries may read; None means whatever the source lets them
    reach: Reach | None = None

    def rows(self, query: Query) -> tuple[list[str], Iterator[tuple[Any, ...]]]:
        """The names of the columns, and the rows; at most a batch of rows is in memory."""
        found = self._execute(query)
        return found.columns, self._fetch(found)

    def _fetch(self, found: Rows) -> Iterator[tuple[Any, ...]]:
        for batch in found.batches:
            self._deadline.check()
            yield from batch


def rows_of_cursor(cursor: Any) -> Rows:
    """The rows of a cursor of Python's database API."""
    return Rows([column[0] for column in cursor.description], iter(lambda: cursor.fetchmany(FETCHED_ROWS), []))


def comment(mark: str) -> str:
    """What a statement begins with that shall be found by its mark."""
    return f"/* {mark} */"


def end_marked(
    marks: "set[str]", running: Callable[[], Mapping[int, str]], end: Callable[[int, int], None]
) -> set[str]:
    """Ends the statements that `running` finds, until there are none; returns the marks of which none runs now.

    `end` is given the id of a connection and how often it was asked before.
    """
    for asked, pause in enumerate(END_PAUSES_S):
        found = running()
        if not found:
            return marks
        for connection_id in found:
            end(connection_id, asked)
        time.sleep(pause)
    return marks - set(running().values())
