"""What happened to a request on its way: attempts, waits, rates, what the source said. Ingest keeps it with a batch."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from platform_defs.rate_gate.signals import Limits, Outcome


@dataclass(frozen=True)
class Attempt:
    # None: no answer came, and `error` says why
    status: int | None
    error: str | None
    outcome: Outcome
    # what the gate said, and how long that took
    decision: str
    waited_s: float
    latency_s: float
    rate_per_s: float
    limits: Limits


@dataclass
class Facts:
    """Filled while the request is under way; an error carries what there is by then."""

    key: str
    cost: int
    burst: int
    attempts: list[Attempt] = field(default_factory=list)
    permits: int = 0
    waited_s: float = 0.0
    demotions: int = 0
    soft_quota_hits: int = 0
    hard_quota_hits: int = 0
    redirects: int = 0
    wire_bytes: int = 0
    cool_until: datetime | None = None
    rejected: str | None = None

    @property
    def retries(self) -> int:
        return max(0, len(self.attempts) - self.redirects - 1)

    @property
    def count_429(self) -> int:
        """Complaints about the rate, by status or by body."""
        return sum(attempt.outcome is Outcome.RATE_LIMITED for attempt in self.attempts)

    @property
    def retry_after_hits(self) -> int:
        return sum(attempt.limits.retry_after_s is not None for attempt in self.attempts)

    def digest(self) -> dict[str, Any]:
        """The fields that a batch's response digest keeps (4.10.7 of the ingest's specification)."""
        last = self.attempts[-1] if self.attempts else None
        limits = last.limits if last else Limits()
        rate = {
            "limitKey": self.key,
            "permitCost": self.cost,
            "waitMs": round(self.waited_s * 1000),
            "decision": self.rejected or (last.decision if last else None),
            "r": round(last.rate_per_s, 4) if last else None,
            "burst": self.burst,
            "cooldownUntil": self.cool_until.isoformat() if self.cool_until else None,
        }
        quota = {"remaining": limits.remaining, "limit": limits.limit, "windowResetS": limits.reset_s}
        return {"rate": rate, "quota": quota if any(value is not None for value in quota.values()) else None}

    def counts(self) -> dict[str, int]:
        """The counters that a run's statistics add up, under the names of the specification."""
        return {
            "429Count": self.count_429,
            "retryCount": self.retries,
            "retryAfterHits": self.retry_after_hits,
            "demoteEvents": self.demotions,
            "waitTotalMs": round(self.waited_s * 1000),
            "permitsTotal": self.permits,
            "quotaSoftHits": self.soft_quota_hits,
            "quotaHardHits": self.hard_quota_hits,
        }
