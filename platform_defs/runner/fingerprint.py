"""Which definitions these are: a fingerprint over the code on disk and the rows that definitions are built from."""

import contextlib
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path

from sqlalchemy import Connection, Engine, func, select

from platform_defs.runner.zygote import ROOT
from platform_defs.store.engine import read
from platform_defs.store.upsert import upsert
from platform_defs.store.work import definition_versions

PACKAGES = ("platform_defs", "assets", "sensors", "resources")


@dataclass(frozen=True)
class Fingerprint:
    """Two processes that see the same one load the same definitions."""

    code: str
    rows: str

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(f"{self.code}{self.rows}".encode()).hexdigest()


def fingerprint(engine: Engine) -> Fingerprint:
    """A few milliseconds."""
    code = hashlib.sha256()
    for package in PACKAGES:
        for path, stat in sorted(_sources(ROOT / package)):
            code.update(f"{path}\0{stat.st_mtime_ns}\0{stat.st_size}\n".encode())
    return Fingerprint(code.hexdigest(), read(engine, rows_of))


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


def _sources(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if entry.name != "__pycache__":
                    yield from _sources(Path(entry.path))
            elif entry.name.endswith(".py"):
                # an editor's lock is a link to nowhere, and a file may be replaced while we look
                with contextlib.suppress(FileNotFoundError):
                    yield entry.path, entry.stat()
