"""Creates a database that does not exist yet, or says in one line how an administrator can create it."""

from pathlib import Path

from sqlalchemy import create_engine, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError, InterfaceError

from platform_defs.errors import StoreError, one_line
from platform_defs.store.engine import CONNECT_TIMEOUT_S, is_refusal
from platform_defs.store.errors import StoreUnavailable
from platform_defs.store.types import collation as default_collation

# a server answers "access denied" (1044) or "unknown database" (1049), depending on the rights of the user
_UNKNOWN_DATABASE = (1044, 1049)


def ensure_database(url: URL, *, collation: str | None = None) -> bool:
    """Creates the database unless it exists; True if it was created. By default its text is compared byte by byte."""
    if url.get_backend_name() == "sqlite":
        return _make_folder(url)
    if _exists(url):
        return False
    # the empty name, because URL.set takes None for "leave it as it is"
    server = create_engine(url.set(database=""), connect_args=_connect_arguments(), isolation_level="AUTOCOMMIT")
    try:
        with server.connect() as connection:
            collation = collation or default_collation(connection.dialect)
            name = str(url.database).replace("`", "``")
            statement = f"CREATE DATABASE IF NOT EXISTS `{name}` CHARACTER SET utf8mb4 COLLATE {collation}"
            try:
                connection.execute(text(statement))
            except DBAPIError as error:
                raise StoreError(
                    f"database {url.database} does not exist and {url.username} may not create it: {statement}"
                ) from error
    finally:
        server.dispose()
    return True


def _make_folder(url: URL) -> bool:
    """SQLite creates the file itself, but not the folder; True if the file does not exist yet."""
    if not url.database or url.database == ":memory:":
        return False
    path = Path(url.database)
    path.parent.mkdir(parents=True, exist_ok=True)
    return not path.exists()


def _exists(url: URL) -> bool:
    engine = create_engine(url, connect_args=_connect_arguments())
    try:
        with engine.connect():
            return True
    except (DBAPIError, InterfaceError) as error:
        number = getattr(error.orig, "errno", None)
        if number in _UNKNOWN_DATABASE:
            return False
        if is_refusal(error):
            raise StoreError(f"the database server refuses {url.username or 'the user'}: {one_line(error)}") from error
        raise StoreUnavailable(f"the database server does not answer: {one_line(error)}") from error
    finally:
        engine.dispose()


def _connect_arguments() -> dict[str, object]:
    return {"connection_timeout": CONNECT_TIMEOUT_S, "collation": "utf8mb4_bin"}
