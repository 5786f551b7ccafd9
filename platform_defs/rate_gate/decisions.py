"""The gate's answers: allow, wait until, reject; and what it knows of a key."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Reason(StrEnum):
    """Why a request is not let through within its deadline."""

    OVER_DEADLINE = "OVER_DEADLINE"
    COOLING_DOWN = "COOLING_DOWN"
    SOURCE_WINDOW = "SOURCE_WINDOW"
    QUOTA_HOURLY = "QUOTA_HOURLY"
    QUOTA_DAILY = "QUOTA_DAILY"
    CONCURRENCY = "CONCURRENCY"

    @property
    def is_hard_quota(self) -> bool:
        return self in (Reason.QUOTA_HOURLY, Reason.QUOTA_DAILY)


@dataclass(frozen=True)
class Permit:
    """A booked slot. It must be used between `opens` and `expires`; all instants are of the monotonic clock."""

    key: str
    cost: int
    booked: float
    opens: float
    expires: float
    rate_per_s: float
    # the quota of this hour or day is in its safety margin
    is_quota_soft: bool = False
    # given by the process itself because the database did not answer
    is_local: bool = False


@dataclass(frozen=True)
class Allow:
    """Send now."""

    permit: Permit


@dataclass(frozen=True)
class WaitUntil:
    """The slot is booked: wait, then send without asking again.

    Without a permit nothing is booked, because the task has as many slots ahead as it may: wait, then ask again.
    """

    at: datetime
    wait_s: float
    permit: Permit | None


@dataclass(frozen=True)
class Reject:
    """Nothing is booked; before `until` asking again is pointless."""

    reason: Reason
    until: datetime


Decision = Allow | WaitUntil | Reject


@dataclass(frozen=True)
class Reaction:
    """What the gate made of a signal."""

    is_slower: bool = False
    cool_until: datetime | None = None


@dataclass(frozen=True)
class GateState:
    """What the gate knows of a key; waits in seconds from now."""

    rate_per_s: float
    next_slot_s: float = 0.0
    cool_s: float = 0.0
    failures: int = 0
    hour_left: int | None = None
    day_left: int | None = None
    # seconds until the UTC hour and day end
    hour_ends_s: float = 3600.0
    day_ends_s: float = 86_400.0
    # requests that the source's own window still allows, and seconds until it ends
    window_left: int | None = None
    window_ends_s: float = 0.0


@dataclass(frozen=True)
class Estimate:
    """What a planner may count on."""

    requests: int
    rate_per_s: float
    concurrency: int
    # why `requests` is not just rate times horizon, if so
    limited_by: Reason | None
    available_from: datetime
