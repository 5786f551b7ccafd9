"""The data sources that models and nodes name: where each is, what may be read there, and queries on it."""

import sqlite3
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import mysql.connector
from sqlalchemy import Engine
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import DBAPIError

from platform_defs.errors import driver_error
from platform_defs.settings import normalize_source_url
from platform_defs.sources import mysql as mysql_source
from platform_defs.sources import postgres as postgres_source
from platform_defs.sources import sqlite as sqlite_source
from platform_defs.sources.errors import SourceError, error_text
from platform_defs.sources.reach import HIDDEN, Reach
from platform_defs.sources.transactions import ASK_TIMEOUT_S, Deadline, Query, ReadTransaction

# the name of the platform's own database; every other name reads PLATFORM_SOURCE_<NAME>_URL
PLATFORM_SOURCE = "platform"
_RESOURCE = "source:"
_OPENERS = {"sqlite": sqlite_source.open_sqlite, "postgresql": postgres_source.open_postgres}


def source_resource(name: str | None) -> str:
    """The resource of rows of work that query this source, of which only so many run at a time."""
    return f"{_RESOURCE}{name or PLATFORM_SOURCE}"[:64]


def source_of_resource(resource: str) -> str:
    """The source of such a resource; of any other resource its own name."""
    return resource.removeprefix(_RESOURCE)


@dataclass(frozen=True)
class Sources:
    """Sources by name; `urls` has the values of PLATFORM_SOURCE_<NAME>_URL by <NAME>."""

    platform: Engine
    urls: Mapping[str, str]
    # further tables of the platform's database that models must not read
    hidden: frozenset[str] = frozenset()

    @contextmanager
    def read_transaction(self, name: str, timeout_s: float, mark: str | None = None) -> Iterator[ReadTransaction]:
        """One read-only transaction, in which all queries together may take `timeout_s`.

        Its queries begin with a comment that has the `mark`, by which end_statements() finds them.
        """
        url = self.url(name)
        deadline = Deadline(timeout_s)
        open_source = _OPENERS.get(url.get_backend_name(), mysql_source.open_mysql)
        try:
            with open_source(url, deadline, self._reach(name), mark) as transaction:
                yield transaction
        except (sqlite3.Error, mysql.connector.Error, DBAPIError) as error:
            deadline.check()
            if sqlite_source.is_interrupt(error):
                raise KeyboardInterrupt from None
            raise _source_error(error, url) from None

    def ask(self, name: str) -> None:
        """Raises SourceError if the source does not answer."""
        with self.read_transaction(name, ASK_TIMEOUT_S) as transaction:
            list(transaction.rows(Query("SELECT 1", {}))[1])

    def end_statements(self, name: str, marks: Collection[str]) -> set[str]:
        """Ends the statements with these marks, whichever process sent them; returns the marks of which none runs now.

        The server does not notice that the client of a statement has died. A statement on SQLite ends with its process.
        """
        url = self.url(name)
        match url.get_backend_name():
            case "sqlite":
                return set(marks)
            case "postgresql":
                return postgres_source.end_statements(url, marks)
        try:
            return mysql_source.end_statements(url, marks)
        except DBAPIError as error:
            raise _source_error(error, url) from None

    def _reach(self, name: str) -> Reach | None:
        if name != PLATFORM_SOURCE:
            return None
        schema = "main" if self.platform.dialect.name == "sqlite" else str(self.platform.url.database)
        return Reach(schema, HIDDEN | self.hidden)

    def url(self, name: str) -> URL:
        """Where the source is; raises SourceError if no variable names it."""
        if name == PLATFORM_SOURCE:
            return self.platform.url
        variable = f"PLATFORM_SOURCE_{name.upper()}_URL"
        written = self.urls.get(name.upper())
        if not written:
            raise SourceError(f"the source {name} is not known: {variable} is not set")
        try:
            return make_url(normalize_source_url(written))
        except ValueError as error:
            raise SourceError(f"{variable}: {error}") from None


def _source_error(error: Exception, url: URL) -> SourceError:
    cause = driver_error(error)
    transient = sqlite_source.is_transient(cause) or mysql_source.is_transient(cause)
    return SourceError(error_text(error, url), is_transient=transient)
