"""Errors of rows of work and of the processes around them.

PlatformError
└── WorkError            a row of work does not exist
    ├── UnknownKind      a row has a kind that no system declares
    ├── WorkTimeout      a row was not finished within the time that its writer would wait
    ├── TickFailed       a sensor's tick could not do everything; the rest is done
    └── HomeInUse        another runner already serves this PLATFORM_HOME
"""

from platform_defs.errors import PlatformError


class WorkError(PlatformError):
    """A row of work could not be found, executed or waited for."""


class UnknownKind(WorkError):
    """No system declares this kind of work."""


class WorkTimeout(WorkError):
    """The row of work is not finished yet."""


class TickFailed(WorkError):
    """A step of a sensor's tick failed; the other steps are done."""


class HomeInUse(WorkError):
    """Another runner already serves this PLATFORM_HOME."""
