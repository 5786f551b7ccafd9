"""What can go wrong with a request. Each error carries `facts`: attempts, waits and rates.

HttpError (see platform_defs/errors.py)
├── TransientError        the same request may succeed later
│   ├── Exhausted         attempts or time are used up; `status` of the last answer, None if there was none
│   └── HeldBack          the rate gate lets nothing through in time; `reason`, and `until` when to come back
├── Refused               an answer that trying again does not change; `response` has it
├── RedirectRefused       the source sends us somewhere that we were not told to go; `location` without its query
├── UnreadableResponse    larger than allowed, or in an encoding that was not asked for
├── InvalidRequest        it cannot be sent as it stands: a header with a line break, a URL without a host
└── Cancelled             the caller does not want it any more
"""

from datetime import datetime

import httpx

from platform_defs.errors import HttpError
from platform_defs.http_door.facts import Facts
from platform_defs.rate_gate.decisions import Reason


class DoorError(HttpError):
    def __init__(self, message: str, facts: Facts) -> None:
        super().__init__(message)
        self.facts = facts


class TransientError(DoorError):
    """Whoever queues requests may queue this one again."""


class Exhausted(TransientError):
    def __init__(self, message: str, facts: Facts, *, response: httpx.Response | None = None) -> None:
        super().__init__(message, facts)
        self.response = response

    @property
    def status(self) -> int | None:
        return None if self.response is None else self.response.status_code


class HeldBack(TransientError):
    def __init__(self, message: str, facts: Facts, *, reason: Reason, until: datetime) -> None:
        super().__init__(message, facts)
        self.reason = reason
        self.until = until

    @property
    def is_answer(self) -> bool:
        """Whether an answer to this very request asked for the pause, and not one to another request before it."""
        return self.reason is Reason.COOLING_DOWN and self.facts.cool_until is not None


class Refused(DoorError):
    def __init__(self, message: str, facts: Facts, *, response: httpx.Response) -> None:
        super().__init__(message, facts)
        self.response = response

    @property
    def status(self) -> int:
        return self.response.status_code


class RedirectRefused(DoorError):
    def __init__(self, message: str, facts: Facts, *, location: str) -> None:
        super().__init__(message, facts)
        self.location = location


class UnreadableResponse(DoorError):
    pass


class InvalidRequest(DoorError):
    pass


class Cancelled(DoorError):
    pass
