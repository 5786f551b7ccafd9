"""Creates a MySQL database that does not exist yet, or says in one line how an administrator can create it."""

from sqlalchemy import create_engine, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError, InterfaceError

from platform_defs.errors import StoreError, one_line
from platform_defs.store.engine import CONNECT_TIMEOUT_S
from platform_defs.store.errors import StoreUnavailable
from platform_defs.store.types import collation as default_collation

# a server answers "access denied" (1044) or "unknown database" (1049), depending on the rights of the user
_UNKNOWN_DATABASE = (1044, 1049)


def ensure_database(url: URL, *, collation: str | None = None) -> bool:
    """Creates the database unless it exists; True if it was created. By default its text is compared byte by byte."""
    if url.get_backend_name() == "sqlite" or _exists(url):
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


def _exists(url: URL) -> bool:
    engine = create_engine(url, connect_args=_connect_arguments())
    try:
        with engine.connect():
            return True
    except (DBAPIError, InterfaceError) as error:
        if getattr(error.orig, "errno", None) in _UNKNOWN_DATABASE:
            return False
        raise StoreUnavailable(f"the database server does not answer: {one_line(error)}") from error
    finally:
        engine.dispose()


def _connect_arguments() -> dict[str, object]:
    return {"connection_timeout": CONNECT_TIMEOUT_S, "collation": "utf8mb4_bin"}
