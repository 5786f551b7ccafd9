"""Migrates a database to the schema of this code, one process at a time, and refuses to work on any other schema."""

import tempfile
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from platform_defs.errors import StoreError
from platform_defs.store.engine import ATTEMPTS, open_engine, read
from platform_defs.store.errors import SchemaAhead, SchemaBehind
from platform_defs.store.migration_lock import migration_lock
from platform_defs.store.types import is_mysql

FOLDER = Path(__file__).parent / "migrations"
_UNKNOWN_DATABASE = 1049


def upgrade(engine: Engine) -> list[str]:
    """Applies the missing migrations and returns them; a second caller waits for the first and finds nothing to do."""
    with _lock_schema(engine) as connection:
        missing = _missing_from(connection)
        if missing:
            command.upgrade(_config(connection), "head")
    return missing


def missing_revisions(engine: Engine, *, attempts: int = ATTEMPTS) -> list[str]:
    """The migrations that this code has and the database has not, oldest first."""
    try:
        return read(engine, _missing_from, attempts=attempts)
    except DBAPIError as error:
        if getattr(error.orig, "errno", None) == _UNKNOWN_DATABASE:
            raise SchemaBehind(f"database {engine.url.database} does not exist: run `platform db upgrade`") from error
        raise


def require_current(engine: Engine, *, attempts: int = ATTEMPTS) -> None:
    """Raises in one line unless the database has exactly the schema of this code."""
    if missing := missing_revisions(engine, attempts=attempts):
        count = "1 migration" if len(missing) == 1 else f"{len(missing)} migrations"
        raise SchemaBehind(f"the database lacks {count} ({', '.join(missing)}): run `platform db upgrade`")


def known_revisions() -> list[str]:
    """All migrations of this code, oldest first."""
    return list(_revisions_on_disk())


@cache
def _revisions_on_disk() -> tuple[str, ...]:
    """Read once, because every process that opens the database asks for them."""
    scripts = ScriptDirectory.from_config(_config())
    return tuple(script.revision for script in reversed(list(scripts.walk_revisions())))


def current_revision(engine: Engine, *, attempts: int = ATTEMPTS) -> str | None:
    """The database's revision; None before the first migration."""
    return read(engine, _revision, attempts=attempts)


def new_revision(message: str) -> Path:
    """Writes a migration for the differences between the tables in the code and those that all migrations create."""
    with tempfile.TemporaryDirectory() as folder:
        engine = open_engine(f"sqlite:///{folder}/scratch.db")
        try:
            upgrade(engine)
            with engine.begin() as connection:
                number = f"{len(known_revisions()) + 1:04d}"
                script = command.revision(_config(connection), message, autogenerate=True, rev_id=number)
        finally:
            engine.dispose()
    if script is None or isinstance(script, list):
        raise StoreError("Alembic wrote no migration")
    path = Path(script.path)
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(line for line in lines if not line.startswith("    # ### ")), encoding="utf-8")
    _revisions_on_disk.cache_clear()
    return path


def _config(connection: Connection | None = None) -> Config:
    # quiet: Alembic would print lines of its own between the answers of our command
    config = Config(cmd_opts=Namespace(quiet=True))
    config.set_main_option("script_location", str(FOLDER).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def _revision(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


def _missing_from(connection: Connection) -> list[str]:
    known, found = known_revisions(), _revision(connection)
    if found is None:
        return known
    if found not in known:
        raise SchemaAhead(
            f"the database has migration {found}, which this version does not know: install a newer version"
        )
    return known[known.index(found) + 1 :]


@contextmanager
def _lock_schema(engine: Engine) -> Iterator[Connection]:
    if not is_mysql(engine.dialect):
        # SQLite admits one writer at a time, and a whole upgrade is one transaction
        with engine.begin() as connection:
            yield connection
        return
    with migration_lock(engine.url) as connection:
        yield connection
