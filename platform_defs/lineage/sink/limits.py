"""How much the sink takes: sizes of groups and of the queue, and a rate of events per tenant."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a group and of the queue.

    linger_s: how long the first event after a pause waits for others. deadline_s: within it every request is answered.
    """

    group_events: int
    group_bytes: int
    group_facts: int
    linger_s: float
    deadline_s: float
    queue_events: int
    queue_bytes: int


class TokenBuckets:
    """One token bucket per tenant: `rate` tokens a second, never more than `burst`. A rate of 0 sets no limit."""

    def __init__(self, rate: float, burst: float, clock: Clock = time.monotonic) -> None:
        self._rate = rate
        self._burst = max(burst, 1.0)
        self._clock = clock
        self._lock = threading.Lock()
        self._tenants: dict[int, tuple[float, float]] = {}

    def take(self, tenant_id: int) -> bool:
        """Takes one token of the tenant; False if it has none left."""
        if not self._rate:
            return True
        with self._lock:
            now = self._clock()
            tokens, since = self._tenants.get(tenant_id, (self._burst, now))
            tokens = min(self._burst, tokens + (now - since) * self._rate)
            granted = tokens >= 1
            self._tenants[tenant_id] = (tokens - 1 if granted else tokens, now)
            return granted
