"""The fingerprint of definitions: the code on disk, and the version counters of the rows they are built from."""

import contextlib
import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from sqlalchemy import Engine

from platform_defs.runner.fork_server_process import ROOT
from platform_defs.store.engine import read
from platform_defs.work.definition_versions import digest_of, for_runs, read_versions

PACKAGES = ("platform_defs", "assets", "sensors", "resources")


@dataclass(frozen=True)
class Fingerprint:
    """Two processes that read equal fingerprints load the same definitions to execute."""

    # Digest of the names, times and sizes of all source files.
    code: str
    # Name -> version of every counter in `work_definition_version` whose definitions runs execute.
    versions: Mapping[str, int] = field(hash=False)
    # Digest of all counters, also of definitions that are only shown: those that the code server loads.
    rows: str = field(default="", compare=False)

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(f"{self.code}{digest_of(self.versions)}".encode()).hexdigest()

    def has_versions(self, needed: Mapping[str, int]) -> bool:
        """Whether every counter is at least as high as needed."""
        return all(self.versions.get(name, 0) >= version for name, version in needed.items())


def read_fingerprint(engine: Engine) -> Fingerprint:
    """The fingerprint of the definitions that a process would load now. Takes a few milliseconds."""
    code = hashlib.sha256()
    for package in PACKAGES:
        for path, stat in sorted(_source_files(ROOT / package)):
            code.update(f"{path}\0{stat.st_mtime_ns}\0{stat.st_size}\n".encode())
    versions = read(engine, read_versions)
    return Fingerprint(code.hexdigest(), for_runs(versions), digest_of(versions))


def _source_files(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if entry.name != "__pycache__":
                    yield from _source_files(Path(entry.path))
            elif entry.name.endswith(".py"):
                # The lock file of an editor is a link to nowhere, and any file may be replaced at this moment.
                with contextlib.suppress(FileNotFoundError):
                    yield entry.path, entry.stat()
