"""Commits whose answer is lost: the transaction took place, but its caller hears that the database did not answer.

The store then runs the transaction again, so that everything that runs in one must recognise what it did before.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Engine


class LostAnswers:
    """How many transactions wrote something, and whether the answer to one of them was lost."""

    def __init__(self) -> None:
        self.commits = 0
        self.is_lost = False


@contextmanager
def losing_answer(engine: Engine, number: int = 1) -> Iterator[LostAnswers]:
    """Loses the answer to this commit of the block, counted from 1; transactions that only read are not counted.

    For SQLite, whose driver says how many rows a connection has changed.
    """
    commit, changes, losing = engine.dialect.do_commit, dict[int, int](), LostAnswers()

    def lose(connection: Any) -> None:
        changed = connection.total_changes
        has_written = changed != changes.get(id(connection.dbapi_connection), 0)
        changes[id(connection.dbapi_connection)] = changed
        commit(connection)
        if has_written:
            losing.commits += 1
            if losing.commits == number:
                losing.is_lost = True
                raise sqlite3.OperationalError("database is locked")

    # so that changes of earlier transactions are not taken for those of the first one
    engine.dispose()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine.dialect, "do_commit", lose)
        yield losing
    assert losing.is_lost or number > 1, "the block committed nothing"
