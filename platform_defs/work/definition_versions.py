"""Counters of the rows from which Dagster definitions are built, such as published models.

Every change of such rows raises its counter in the same transaction. Whoever loads definitions reads the counters
first and so knows how new the loaded definitions are.
"""

import hashlib
from datetime import datetime

from sqlalchemy import Connection, Engine, func, select

from platform_defs.store.engine import read
from platform_defs.store.tables.work import definition_versions
from platform_defs.store.upsert import upsert


def rows_of(connection: Connection) -> str:
    """The part of the fingerprint that publishing changes."""
    digest = hashlib.sha256()
    query = select(definition_versions.c.name, definition_versions.c.version).order_by(definition_versions.c.name)
    for name, version in connection.execute(query):
        digest.update(f"{name}\0{version}\n".encode())
    return digest.hexdigest()


def rows_changed_at(engine: Engine) -> datetime | None:
    """When a row from which definitions are built changed last."""
    newest = select(func.max(definition_versions.c.updated_at))
    found: datetime | None = read(engine, lambda connection: connection.execute(newest).scalar_one())
    return found


def bump(connection: Connection, name: str) -> None:
    """To be called in the transaction that changes rows from which definitions are built."""
    upsert(
        connection,
        definition_versions,
        [{"name": name, "version": 1}],
        key=["name"],
        update=lambda incoming: {"version": definition_versions.c.version + incoming.version},
    )
