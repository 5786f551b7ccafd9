"""What keeps the sink standing: a token bucket per tenant, and a breaker that remembers that a store is down."""

import threading
import time
from collections.abc import Callable

Clock = Callable[[], float]


class Buckets:
    """Tokens per tenant: `rate` a second, never more than `burst`; a rate of 0 grants everything."""

    def __init__(self, rate: float, burst: float, clock: Clock = time.monotonic) -> None:
        self._rate = rate
        self._burst = max(burst, 1.0)
        self._clock = clock
        self._lock = threading.Lock()
        self._tenants: dict[int, tuple[float, float]] = {}

    def take(self, tenant_id: int) -> bool:
        if not self._rate:
            return True
        with self._lock:
            now = self._clock()
            tokens, since = self._tenants.get(tenant_id, (self._burst, now))
            tokens = min(self._burst, tokens + (now - since) * self._rate)
            granted = tokens >= 1
            self._tenants[tenant_id] = (tokens - 1 if granted else tokens, now)
            return granted


class Breaker:
    """Open while a store is known to be down: for a moment after a failure, and while a write hangs on it."""

    def __init__(self, pause_s: float = 1.0, clock: Clock = time.monotonic) -> None:
        self._pause = pause_s
        self._clock = clock
        self._until = 0.0
        self._hanging = False

    @property
    def is_open(self) -> bool:
        return self._hanging or self._clock() < self._until

    def trip(self) -> None:
        self._until = self._clock() + self._pause

    def hang(self, hanging: bool) -> None:
        self._hanging = hanging

    def close(self) -> None:
        self._until = 0.0
