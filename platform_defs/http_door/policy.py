"""What a caller asks of the door: retries, time limits, redirects, route, and the hooks of its own."""

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import httpx

from platform_defs.rate_gate.policy import RatePolicy
from platform_defs.rate_gate.signals import Outcome

LONGEST_TIMEOUT_S = 120.0
LONGEST_TOTAL_S = 600.0
MEBIBYTE = 1024 * 1024

# Makes the request of one attempt from the caller's: signs it, adds a token. Called before every attempt with a fresh
# copy and the answer to the attempt before it (None at first), so that a 401 can lead to a new token.
Prepare = Callable[[httpx.Request, httpx.Response | None], httpx.Request]
# Reads the body of an answer that looks like a success and says what it is; None: what it looks like.
Judge = Callable[[httpx.Response], Outcome | None]

_IDEMPOTENT = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})


@dataclass(frozen=True)
class RetryPolicy:
    """Exponential with jitter. 429 and 5xx are tried again without being named; other statuses only if they are."""

    max_attempts: int = 5
    initial_s: float = 0.1
    max_s: float = 30.0
    multiplier: float = 2.0
    jitter: float = 0.2
    retry_statuses: frozenset[int] = frozenset()
    give_up_statuses: frozenset[int] = frozenset()
    on_network_error: bool = True
    # a source that asks for a longer pause is not waited for: the error says when to come back
    retry_after_cap_s: float | None = None

    def __post_init__(self) -> None:
        if self.max_attempts < 1:
            raise ValueError(f"retry policy: max_attempts: expected at least 1, got {self.max_attempts}")

    def is_retried(self, status: int) -> bool:
        if status in self.give_up_statuses:
            return False
        return status == 429 or status >= 500 or status in self.retry_statuses

    def backoff_s(self, failures: int, chance: random.Random) -> float:
        """The pause after so many failures."""
        pause = min(self.max_s, self.initial_s * self.multiplier ** (failures - 1))
        return pause * (1 + chance.uniform(-self.jitter, self.jitter))


@dataclass(frozen=True)
class Timeouts:
    """Of one attempt: until connected, between two bytes, and from beginning to end."""

    connect_s: float = 10.0
    read_s: float = 30.0
    total_s: float = 120.0

    def __post_init__(self) -> None:
        for name, longest in (
            ("connect_s", LONGEST_TIMEOUT_S),
            ("read_s", LONGEST_TIMEOUT_S),
            ("total_s", LONGEST_TOTAL_S),
        ):
            value = getattr(self, name)
            if not 0 < value <= longest:
                raise ValueError(f"timeouts: {name}: expected more than 0 and at most {longest:.0f} s, got {value}")


@dataclass(frozen=True)
class Redirects:
    """Followed for GET and HEAD only, within the origin or to those named here, such as https://mirror.example."""

    limit: int = 3
    origins: frozenset[str] = frozenset()
    # to whatever origin the source names: only where the door's resolver checks every address
    any_origin: bool = False


@dataclass(frozen=True)
class Route:
    """How a source is reached; requests of one route share connections."""

    tls_verify: bool = True
    # http://host:port; proxies of the environment are never used
    proxy: str | None = None


@dataclass(frozen=True)
class Passage:
    """One request's way through the door."""

    key: str
    rate: RatePolicy = field(default_factory=RatePolicy)
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    timeouts: Timeouts = field(default_factory=Timeouts)
    route: Route = field(default_factory=Route)
    redirects: Redirects | None = None
    cost: int = 1
    # whose turn it is among the callers of a key
    task: str = ""
    # for all attempts and waits together
    deadline_s: float = 300.0
    # of a body, after decompression
    max_bytes: int = 64 * MEBIBYTE
    # statuses from 300 on that are an answer like 200 to this caller
    accept_statuses: frozenset[int] = frozenset()
    # Whether the request may be sent again although the source may have acted on it; None: by its method. If not, it
    # is only sent again when it cannot have reached the source, or the source says that it did not act (429, 503).
    is_repeatable: bool | None = None
    prepare: Prepare | None = None
    # a 401 leads to one more attempt, because `prepare` then gets a new token
    renews_on_401: bool = False
    judge: Judge | None = None
    cancel: threading.Event | None = None

    def may_repeat(self, request: httpx.Request) -> bool:
        return request.method in _IDEMPOTENT if self.is_repeatable is None else self.is_repeatable
