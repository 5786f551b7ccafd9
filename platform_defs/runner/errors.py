"""Errors of asking the code server for new definitions.

PlatformError
└── ReloadFailed              the code server did not answer
    └── DefinitionsDoNotLoad  the code server answered that the new definitions do not load
"""

from platform_defs.errors import PlatformError


class ReloadFailed(PlatformError):
    """The code server did not answer, or the definitions did not load in it."""


class DefinitionsDoNotLoad(ReloadFailed):
    """The new definitions do not load. The code server then serves none at all, and its sensors do not tick."""
