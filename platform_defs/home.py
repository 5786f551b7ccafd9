"""PLATFORM_HOME: the folder is made only by commands that start or migrate a platform, and an error names it."""

import os
import shutil
import tempfile
from pathlib import Path

from platform_defs.errors import PlatformError, SettingsError
from platform_defs.settings import Settings

# A platform with its demo takes 15 MiB, and its write-ahead logs as much again; the rest is for the first hours.
NEEDED_MIB = 64


class NoPlatform(PlatformError):
    """A command was called where no platform was ever set up."""


def make_home(home: Path, *, needed_mib: int = NEEDED_MIB) -> None:
    """Makes the folder, readable by its owner alone, and proves that it can be written and that its disk is not full.

    A database whose disk is full fails in the midst of something, and each process says so in its own way.
    """
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=home):
            pass
    except OSError as error:
        raise SettingsError(
            f"PLATFORM_HOME: {home} cannot be written ({error.strerror}); set it to a folder that you may write to"
        ) from None
    free_mib = shutil.disk_usage(home).free // 2**20
    if free_mib < needed_mib:
        raise SettingsError(
            f"PLATFORM_HOME: the disk of {home} has {free_mib} MiB left, and a start needs {needed_mib}; free some, or"
            " set it to a folder on another disk"
        )


def require_platform(settings: Settings) -> None:
    """Raises unless the embedded database exists and is ours: opening it would create an empty one in the wrong place.

    Somebody who may not write cannot read either, because SQLite writes beside the database whenever it is read.
    """
    url = settings.database_url
    if url.get_backend_name() != "sqlite":
        return
    path = Path(str(url.database))
    for place in (path.parent, path):
        if os.path.exists(place) and not os.access(place, os.R_OK | os.W_OK):
            variable = "PLATFORM_DB_URL" if settings.db_url else "PLATFORM_HOME"
            raise SettingsError(
                f"{variable}: {place} belongs to {_owner(place)}, and you may not write to it; run the command as its"
                f" owner, or set {variable} to a platform of your own"
            )
    if os.path.exists(path):
        return
    if settings.db_url:
        raise NoPlatform(f"database {url.database} does not exist: run `platform db upgrade`, or mend PLATFORM_DB_URL")
    if _is_on_server(settings):
        raise NoPlatform(
            f"the platform of {settings.home} has its database on a server: set PLATFORM_DB_URL, and PLATFORM_GRAPH_URL"
            " if it has one, as they were when it was started"
        )
    raise NoPlatform(f"no platform in {settings.home}; set PLATFORM_HOME or run `platform up`")


def _is_on_server(settings: Settings) -> bool:
    """By what a start wrote for Dagster, which keeps its own database beside the platform's."""
    try:
        return "mysql_url" in (settings.dagster_home / "dagster.yaml").read_text(encoding="utf-8")
    except OSError:
        return False


def _owner(path: Path) -> str:
    try:
        return path.owner()
    except KeyError:
        return f"the user {path.stat().st_uid}"
