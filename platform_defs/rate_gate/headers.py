"""Follows the limits that a source names in its headers, and tells the other processes only what is news to them."""

from collections.abc import Callable, Iterator

from platform_defs.rate_gate.local import KeyMemory
from platform_defs.rate_gate.policy import SLOWEST_RATE
from platform_defs.rate_gate.signals import Limits
from platform_defs.rate_gate.table import LIMIT_VALID_S, GateTable

# a source with a window of its own sends a new number with every response: one a second is enough while many are left
_WINDOW_EVERY_S = 1.0
_FEW = 5


class HeaderFollower:
    """Compares the limits in each answer with what the process remembers of the key."""

    def __init__(self, table: GateTable) -> None:
        self._table = table

    def news(self, key: str, memory: KeyMemory, limits: Limits, now: float) -> list[Callable[[], None]]:
        """The statements that tell the others; usually none."""
        if limits.concurrency:
            memory.concurrency = limits.concurrency
        return [*self._limit_news(key, memory, limits, now), *self._window_news(key, memory, limits, now)]

    def _limit_news(self, key: str, memory: KeyMemory, limits: Limits, now: float) -> Iterator[Callable[[], None]]:
        interval_s = limits.interval_s or memory.policy.limit_interval_s
        if not limits.limit or not interval_s:
            return
        rate = max(SLOWEST_RATE, limits.limit / interval_s)
        is_lower = rate < memory.policy.refill_per_s
        is_news = rate != memory.limit_rate or now - memory.limit_told > LIMIT_VALID_S / 2
        # a limit above the policy's own rate matters only where it lifts a lower one
        if is_news and (is_lower or memory.limit_rate is not None):
            memory.limit_rate = rate if is_lower else None
            memory.limit_told = now
            yield lambda: self._table.limit(key, rate)

    def _window_news(self, key: str, memory: KeyMemory, limits: Limits, now: float) -> Iterator[Callable[[], None]]:
        left, reset_s = limits.remaining, limits.reset_s
        if left is None or reset_s is None or left >= memory.policy.refill_per_s * reset_s:
            # nobody knows when the window ends, or its requests last until then whatever we do
            return
        if left <= _FEW or now - memory.window_told >= _WINDOW_EVERY_S:
            memory.window_told = now
            ends_s = min(reset_s, memory.policy.longest_cool_s)
            yield lambda: self._table.window(key, left=left, reset_s=ends_s)
