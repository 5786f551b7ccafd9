"""Turns of the threads that write to one SQLite file.

SQLite has one writer at a time, and lets the others sleep for 1 to 100 ms before they look again. Threads of one
process that queue here instead begin as soon as the one before has committed. Another process still waits the way
SQLite waits.
"""

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import OperationalError

_turns: dict[str, threading.Lock] = {}
# a child that was forked while another thread of its parent was writing must not wait for that thread
os.register_at_fork(after_in_child=_turns.clear)


@contextmanager
def turn(database: str, patience_s: float) -> Iterator[None]:
    """Who has not got its turn in time gets the error that SQLite would have raised."""
    lock = _turns.setdefault(database, threading.Lock())
    if not lock.acquire(timeout=patience_s):
        waited = sqlite3.OperationalError(f"database is locked: another thread wrote for {patience_s:g} s")
        raise OperationalError("BEGIN IMMEDIATE", None, waited)
    try:
        yield
    finally:
        lock.release()
