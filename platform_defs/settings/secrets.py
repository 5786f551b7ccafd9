"""Secrets that a setting or a registry refers to instead of holding them."""

import os
from pathlib import Path

from platform_defs.errors import SettingsError


def resolve_secret(reference: str) -> str:
    """The secret that `env:NAME` or `file:PATH` refers to; any other value is the secret itself."""
    kind, _, rest = reference.partition(":")
    if kind == "env":
        if rest not in os.environ:
            raise SettingsError(f"secret env:{rest} is not set")
        return os.environ[rest]
    if kind == "file":
        try:
            return Path(rest).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise SettingsError(f"secret file:{rest} cannot be read: {error.strerror}") from None
    return reference
