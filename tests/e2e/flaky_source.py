"""A data source that a test takes away and brings back: MySQL behind a cable, or a SQLite file that somebody locks."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy.engine import URL

from tests.e2e.cut import Cable

NAME = "flaky"
VARIABLE = "PLATFORM_SOURCE_FLAKY_URL"


class FlakySource:
    """`url` is what the platform reads; None for `server` means SQLite."""

    def __init__(self, folder: Path, server: URL | None) -> None:
        self._cable = None if server is None else Cable(str(server.host), int(server.port or 3306))
        self._lock: sqlite3.Connection | None = None
        self._file = folder / "flaky.db"
        if self._cable is None or server is None:
            self.url = f"sqlite:///{self._file}"
            # not in WAL mode, where a reader never waits
            with sqlite3.connect(self._file) as connection:
                connection.execute("CREATE TABLE orders (region TEXT, op_time TEXT, amount REAL)")
                connection.execute("INSERT INTO orders VALUES ('north', '20251219', 1.5), ('north', '20251220', 2.5)")
            connection.close()
        else:
            self.url = server.set(port=self._cable.port).render_as_string(hide_password=False)

    def take_away(self) -> None:
        if self._cable is not None:
            self._cable.cut()
        elif self._lock is None:
            self._lock = sqlite3.connect(self._file, isolation_level=None)
            self._lock.execute("BEGIN EXCLUSIVE")

    def bring_back(self) -> None:
        if self._cable is not None:
            self._cable.mend()
        elif self._lock is not None:
            self._lock.close()
            self._lock = None

    def close(self) -> None:
        self.bring_back()
        if self._cable is not None:
            self._cable.close()


@contextmanager
def flaky_source(folder: Path, server: URL | None) -> Iterator[FlakySource]:
    source = FlakySource(folder, server)
    try:
        yield source
    finally:
        source.close()
