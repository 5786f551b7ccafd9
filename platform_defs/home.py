"""PLATFORM_HOME: the folder is made only by commands that start or migrate a platform, and an error names it."""

import tempfile
from pathlib import Path

from platform_defs.errors import PlatformError, SettingsError
from platform_defs.settings import Settings


class NoPlatform(PlatformError):
    """A command was called where no platform was ever set up."""


def make_home(home: Path) -> None:
    """Makes the folder, readable by its owner alone, and proves that it can be written."""
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=home):
            pass
    except OSError as error:
        raise SettingsError(
            f"PLATFORM_HOME: {home} cannot be written ({error.strerror}); set it to a folder that you may write to"
        ) from None


def require_platform(settings: Settings) -> None:
    """Raises unless the embedded database exists: opening it would create an empty one in the wrong place."""
    url = settings.database_url
    if url.get_backend_name() != "sqlite" or Path(str(url.database)).exists():
        return
    if settings.db_url:
        raise NoPlatform(f"database {url.database} does not exist: run `platform db upgrade`, or mend PLATFORM_DB_URL")
    raise NoPlatform(f"no platform in {settings.home}; set PLATFORM_HOME or run `platform up`")
