"""What can go wrong in ingest.

PlatformError
└── IngestError
    ├── RegistryFileError     a Registry file is refused as a whole; every problem has its line
    ├── UnknownEndpoint       no such source or endpoint in the Registry
    ├── SpecError             the Registry rows do not compile; `problems` has all reasons
    ├── PlanError             a plan cannot be made (an empty window, too many windows), or is gone with its source
    ├── EndpointBlocked       nothing is asked of the endpoint until an operator unblocks it
    ├── ResponseError         a response cannot be read; `level` grades it (L1 to L4)
    └── LeaseLost             another executor has the task: nothing that this one still does may count
"""

from collections.abc import Sequence
from datetime import datetime

from platform_defs.errors import PlatformError
from platform_defs.ingest.codes import ErrorLevel

# What the codes of requests begin with that the rate gate did not let through in time.
HELD_BACK = "GATE_"


class IngestError(PlatformError):
    """Ingest could not do what was asked."""


class RegistryFileError(IngestError):
    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class UnknownEndpoint(IngestError):
    pass


class SpecError(IngestError):
    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


class PlanError(IngestError):
    pass


class EndpointBlocked(IngestError):
    pass


class ResponseError(IngestError):
    """`not_before` is when the source may be asked again, where that is known."""

    def __init__(self, level: ErrorLevel, code: str, message: str, *, not_before: datetime | None = None) -> None:
        super().__init__(message)
        self.level = level
        self.code = code
        self.not_before = not_before

    @property
    def is_held_back(self) -> bool:
        """Whether the rate gate did not let the request through: the source was not asked."""
        return self.code.startswith(HELD_BACK)


class LeaseLost(IngestError):
    pass
