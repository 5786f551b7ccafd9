"""Turns of the threads and processes that write to one SQLite file.

SQLite has one writer at a time, and lets the others sleep for 1 to 100 ms before they look again. A process that writes
one transaction after the other, such as the lineage sink under load, then keeps the others out for many seconds. Who
queues here instead begins as soon as the one before has committed: threads of one process at a lock, and processes at a
file beside the database, which the kernel frees also when its holder is killed. Both only decide who is next; that no
two write at once is still kept by SQLite itself. So a process that has waited long for its turn goes on without it:
the one that has the turn may hang, and need not be writing.
"""

import fcntl
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from sqlalchemy.exc import OperationalError

# A turn takes milliseconds. Who has waited so long for another process asks SQLite itself.
LONGEST_WAIT_S = 1.0

_turns: dict[str, threading.Lock] = {}
# Databases whose turn another process has had for so long that this one goes on without it, until that one is done.
_without_turns: set[str] = set()
# a child that was forked while another thread of its parent was writing must not wait for that thread
os.register_at_fork(after_in_child=_turns.clear)
os.register_at_fork(after_in_child=_without_turns.clear)


@contextmanager
def turn(database: str, patience_s: float) -> Iterator[None]:
    """Who has not got its turn in time gets the error that SQLite would have raised."""
    lock = _turns.setdefault(database, threading.Lock())
    if not lock.acquire(timeout=patience_s):
        waited = sqlite3.OperationalError(f"database is locked: another thread wrote for {patience_s:g} s")
        raise OperationalError("BEGIN IMMEDIATE", None, waited)
    try:
        with _turn_of_process(database):
            yield
    finally:
        lock.release()


@contextmanager
def _turn_of_process(database: str) -> Iterator[None]:
    if database in _without_turns:
        yield
        return
    try:
        file = os.open(f"{database}-turn", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        yield  # in a folder that cannot be written to SQLite itself says what is wrong
        return
    is_mine = _lock(file, database)
    try:
        yield
    finally:
        if is_mine:
            os.close(file)  # which gives the turn to the next


def _lock(file: int, database: str) -> bool:
    """Locks the file for this process. If that takes too long, the file is closed as soon as it has been locked."""
    with suppress(BlockingIOError):
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    # The kernel has no wait with an end for file locks, so a thread waits in place of the caller.
    settled = threading.Lock()
    is_locked, gave_up = threading.Event(), threading.Event()

    def wait() -> None:
        fcntl.lockf(file, fcntl.LOCK_EX)
        with settled:
            is_locked.set()
            if gave_up.is_set():
                _without_turns.discard(database)
                os.close(file)

    threading.Thread(target=wait, name="sqlite-turn", daemon=True).start()
    try:
        is_locked.wait(LONGEST_WAIT_S)
    finally:
        with settled:
            if not is_locked.is_set():
                gave_up.set()
                _without_turns.add(database)
    return not gave_up.is_set()
