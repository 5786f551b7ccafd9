"""Which definitions these are: a fingerprint over the code on disk and the rows that definitions are built from."""

import contextlib
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from sqlalchemy import Engine

from platform_defs.runner.fork_server_process import ROOT
from platform_defs.store.engine import read
from platform_defs.work.definition_versions import read_digest

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
    return Fingerprint(code.hexdigest(), read(engine, read_digest))


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
