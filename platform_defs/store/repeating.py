"""Work of a transaction that recognises, when it is repeated, that an earlier try of it was committed after all."""

from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Connection

T = TypeVar("T")


def once(work: Callable[[Connection], T], is_done: Callable[[Connection, T], bool]) -> Callable[[Connection], T]:
    """For `transact`, which runs work again if the connection is lost: the commit may have taken place by then.

    `is_done` is asked before a repeated try, with the result of the one before: do the rows show that it was committed?
    Then that result is returned, and nothing is written a second time.
    """
    results: list[T] = []

    def repeatable(connection: Connection) -> T:
        if not results or not is_done(connection, results[-1]):
            results.append(work(connection))
        return results[-1]

    return repeatable
