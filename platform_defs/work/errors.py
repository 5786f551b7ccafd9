"""What can go wrong between a row of work and its run.

PlatformError
└── WorkError
    ├── UnknownKind      no such kind of work
    └── WorkTimeout      the row was not finished within the time its writer would wait
"""

from platform_defs.errors import PlatformError


class WorkError(PlatformError):
    """A row of work could not be written, executed or waited for."""


class UnknownKind(WorkError):
    """No such kind of work."""


class WorkTimeout(WorkError):
    """The row is not finished yet."""
