"""Version counters of the rows from which Dagster definitions are built, such as published models.

Every transaction that changes such rows raises their counter. A process that loads definitions reads the counters
first: then the definitions that it loads are at least as new as the counters that it read.
"""

import hashlib
from collections.abc import Mapping
from datetime import datetime

from sqlalchemy import Connection, Engine, func, select

from platform_defs.store.engine import read
from platform_defs.store.tables.work import definition_versions
from platform_defs.store.upsert import upsert

# The counter of the lineage tables that Dagster shows. What is built from them is only looked at, so that runs neither
# wait for it nor load it: the code server is asked to load the new ones, and the runner keeps its fork server.
LINEAGE_TABLES = "lineage_tables"
_ONLY_SHOWN = frozenset({LINEAGE_TABLES})
_leaves_out_shown = False


def leave_out_shown() -> None:
    """Makes this process load only definitions that runs execute. For the fork server, before it loads them."""
    global _leaves_out_shown
    _leaves_out_shown = True


def loads_shown() -> bool:
    """Whether this process also loads definitions that are only shown."""
    return not _leaves_out_shown


def for_runs(versions: Mapping[str, int]) -> dict[str, int]:
    """The counters of definitions that runs execute."""
    return {name: version for name, version in versions.items() if name not in _ONLY_SHOWN}


def read_versions(connection: Connection) -> dict[str, int]:
    """Name -> version of every counter."""
    query = select(definition_versions.c.name, definition_versions.c.version).order_by(definition_versions.c.name)
    return {row.name: row.version for row in connection.execute(query)}


def digest_of(versions: Mapping[str, int]) -> str:
    """One text that differs if any of the counters does."""
    digest = hashlib.sha256()
    for name, version in sorted(versions.items()):
        digest.update(f"{name}\0{version}\n".encode())
    return digest.hexdigest()


def read_digest(connection: Connection) -> str:
    """The digest of the present counters."""
    return digest_of(read_versions(connection))


def last_change(engine: Engine) -> datetime | None:
    """When a row from which definitions are built last changed; None if none ever did."""
    newest = select(func.max(definition_versions.c.updated_at))
    found: datetime | None = read(engine, lambda connection: connection.execute(newest).scalar_one())
    return found


def bump(connection: Connection, name: str) -> None:
    """Raises a counter. To be called in the transaction that changes rows from which definitions are built."""
    upsert(
        connection,
        definition_versions,
        [{"name": name, "version": 1}],
        key=["name"],
        update=lambda incoming: {"version": definition_versions.c.version + incoming.version},
    )
