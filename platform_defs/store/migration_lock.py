"""A lock of the MySQL server under which one process at a time changes the tables of a database."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, text
from sqlalchemy.engine import URL

from platform_defs.errors import StoreError
from platform_defs.store.engine import open_engine

WAIT_S = 600


@contextmanager
def migration_lock(url: URL) -> Iterator[Connection]:
    """Yields a connection that holds the lock. A second process waits, then finds the first one's changes done."""
    waiting = open_engine(url, pool_size=1, socket_timeout=None)
    try:
        with waiting.begin() as connection:
            # a lock name is global to the server and at most 64 characters long
            name = "platform_migrate_" + hashlib.sha256(str(url.database).encode()).hexdigest()[:32]
            granted = connection.execute(text("SELECT GET_LOCK(:name, :wait)"), {"name": name, "wait": WAIT_S})
            if granted.scalar_one() != 1:
                raise StoreError(f"another process has been migrating {url.database} for {WAIT_S} s")
            yield connection
    finally:
        waiting.dispose()  # the server frees the lock with the session, also when this process is killed
