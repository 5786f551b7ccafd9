"""Write transactions of this process that a file of SQLite has granted.

The file has one writer at a time, so a ping waits until such a transaction has ended: that it is not answered then says
nothing about the file. A file that another process holds, or that is gone, grants none.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection

from platform_defs.store.engine import has_one_writer

_lock = threading.Lock()
_under_way = 0


@contextmanager
def granted(connection: Connection) -> Iterator[None]:
    """To be entered inside of the transaction. On a server a ping waits for nobody, so there it notes nothing."""
    one = int(has_one_writer(connection.engine))
    _add(one)
    try:
        yield
    finally:
        _add(-one)


def is_under_way() -> bool:
    return _under_way > 0


def _add(number: int) -> None:
    global _under_way
    with _lock:
        _under_way += number
