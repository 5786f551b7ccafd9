"""Typed settings from the environment: every PLATFORM_* variable, its default and its meaning, a module per topic."""

from platform_defs.settings.secrets import resolve_secret
from platform_defs.settings.urls import normalize_source_url
from platform_defs.settings.variables import SUPERVISED, Settings, unknown_variables

__all__ = ["SUPERVISED", "Settings", "normalize_source_url", "resolve_secret", "unknown_variables"]
