"""What a source allows: rate, burst, quotas and concurrency, and how the gate reacts to its complaints."""

from dataclasses import dataclass

DEFAULT_RATE = 1.0
SLOWEST_RATE = 0.0005
# a booking packs its interval into 32 bits of microseconds
LONGEST_INTERVAL_US = 2**32 - 1
# how late a request usually reaches its source; without a burst to absorb that, slots are this much further apart
GUARD_S = 0.02
# slots that lie within this time of each other are booked together
TOGETHER_S = 0.01
# a permit is good for at least this long after its slot: any less and a busy machine would book twice
SHORTEST_TTL_S = 0.1


@dataclass(frozen=True)
class RatePolicy:
    """The limits of one key. The defaults are those of the seed (4.10.8) where it has some."""

    refill_per_s: float = DEFAULT_RATE
    # what the source accepts at once after a pause
    burst: int = 1
    # Part of the burst that is spent on purpose. The rest absorbs requests that reach the source later than their
    # slot: those are followed sooner than the rate allows, and only a burst that is left prevents a 429.
    burst_share: float = 0.2
    # after a pause the rate rises to its full value within this time
    warmup_s: float = 0.0
    # a 429 or 5xx divides the rate by this, but not below the minimum
    demote_rate: float = 2.0
    r_min: float = 0.1
    # after each such period without a complaint the rate rises by this part of refill_per_s
    cool_down_s: float = 30.0
    raise_share: float = 0.1
    # requests per UTC hour and UTC day
    quota_hourly: int | None = None
    quota_daily: int | None = None
    # the last part of a quota is spread over the rest of its window
    quota_margin: float = 0.1
    max_concurrent: int | None = None
    # whether X-RateLimit-* headers count; Retry-After always does
    respects_headers: bool = True
    # what X-RateLimit-Limit counts over where the source does not say; None: the header is then ignored
    limit_interval_s: float | None = None
    # slots that one task may have booked ahead at a time, so that the slots of other tasks come in between
    quantum: int = 10
    # Slots that a process books at once, at least; more than one saves statements and makes unused permits expire. At a
    # rate of hundreds a second it books those of the next moment anyway.
    prefetch: int = 1
    # added to waits and cool-downs, as parts of them
    jitter: tuple[float, float] = (0.05, 0.15)
    # this many failures in a row (5xx, timeouts, network) close the gate for a while; 0: never
    circuit_threshold: int = 0
    circuit_cool_s: float = 60.0
    # no source can close the gate for longer
    longest_cool_s: float = 86_400.0

    def __post_init__(self) -> None:
        self._require("refill_per_s", self.refill_per_s >= SLOWEST_RATE, f"at least {SLOWEST_RATE} a second")
        self._require("r_min", self.r_min >= SLOWEST_RATE, f"at least {SLOWEST_RATE} a second")
        self._require("burst", self.burst >= 1, "at least 1")
        self._require("burst_share", 0 <= self.burst_share <= 1, "a part from 0 to 1")
        self._require("demote_rate", self.demote_rate >= 1, "at least 1")
        self._require("cool_down_s", self.cool_down_s > 0, "more than 0 seconds")
        self._require("warmup_s", self.warmup_s >= 0, "at least 0 seconds")
        self._require("quota_margin", 0 <= self.quota_margin < 1, "a part from 0 to below 1")
        for name in ("quota_hourly", "quota_daily", "max_concurrent"):
            value = getattr(self, name)
            self._require(name, value is None or value >= 1, "at least 1")
        self._require("quantum", self.quantum >= 1, "at least 1")
        self._require("prefetch", self.prefetch >= 1, "at least 1")
        self._require("jitter", 0 <= self.jitter[0] <= self.jitter[1] <= 1, "two parts in order, from 0 to 1")

    def _require(self, name: str, holds: bool, expected: str) -> None:
        if not holds:
            raise ValueError(f"rate policy: {name}: expected {expected}, got {getattr(self, name)}")

    @property
    def spent_burst(self) -> int:
        """Requests that the gate itself lets pass at once after a pause."""
        return max(1, int(self.burst * self.burst_share))

    @property
    def slack_s(self) -> float:
        """By how much a request may miss its slot without drawing a 429, as far as the burst absorbs it."""
        return (self.burst - self.spent_burst) / self.refill_per_s

    @property
    def pad_s(self) -> float:
        """Added to the interval between slots where the burst leaves less slack than requests are late by."""
        return max(0.0, GUARD_S - self.slack_s)

    @property
    def ttl_s(self) -> float:
        """How long after its slot a permit may be used; one that is used later would come on top of the next ones."""
        return max(SHORTEST_TTL_S, self.slack_s / 2)

    @property
    def prefetched_ttl_s(self) -> float:
        """How long after its slot a permit that was booked ahead may be handed out: no later than slack allows."""
        return max(self.slack_s, self.pad_s) / 2

    @property
    def floor_per_s(self) -> float:
        """The slowest that complaints make the rate; a source that is slow by itself is not sped up."""
        return min(self.r_min, self.refill_per_s)

    def booked_at_once(self, rate_per_s: float) -> int:
        """How many slots a process books by one statement at the rate that holds now."""
        return min(max(self.prefetch, int(rate_per_s * TOGETHER_S)), self.quantum)
