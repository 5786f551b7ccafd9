"""One process at a time changes the tables of a MySQL database: a named lock of the server, held by a connection."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, text
from sqlalchemy.engine import URL

from platform_defs.errors import StoreError
from platform_defs.store.engine import open_engine

WAIT_S = 600


@contextmanager
def alone_on(url: URL) -> Iterator[Connection]:
    """Whoever comes second waits, then finds the first one's work done."""
    patient = open_engine(url, pool_size=1, socket_timeout=None)
    try:
        with patient.begin() as connection:
            # a lock name is global to the server and at most 64 characters long
            name = "platform_migrate_" + hashlib.sha256(str(url.database).encode()).hexdigest()[:32]
            granted = connection.execute(text("SELECT GET_LOCK(:name, :wait)"), {"name": name, "wait": WAIT_S})
            if granted.scalar_one() != 1:
                raise StoreError(f"another process has been migrating {url.database} for {WAIT_S} s")
            yield connection
    finally:
        patient.dispose()  # the lock ends with its session, also when this process is killed
