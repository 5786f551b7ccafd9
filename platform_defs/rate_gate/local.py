"""What a process remembers of a key by itself, and the gate that it falls back to while the database is silent."""

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from platform_defs.rate_gate.decisions import Permit
from platform_defs.rate_gate.policy import DEFAULT_RATE, RatePolicy

_HISTORY = 128
# if more tasks than this are remembered, those without a slot ahead are forgotten
_TASKS = 256
_NEVER = float("-inf")
# instants of slots that are being booked and not known yet
_UNKNOWN = float("inf")


@dataclass
class KeyMemory:
    """What a process remembers of a key. Guarded by `lock`; instants are of the process's monotonic clock."""

    policy: RatePolicy
    lock: threading.Lock = field(default_factory=threading.Lock)
    # held while several slots are booked at once, so that other threads wait for them instead of booking more
    booking: threading.Lock = field(default_factory=threading.Lock)
    # slots that were booked ahead and are not handed out yet
    prefetched: deque[Permit] = field(default_factory=deque)
    # the rate at which the last slots were booked
    rate_per_s: float = 0.0
    # slots ahead by task, for the quantum
    ahead: dict[str, list[float]] = field(default_factory=dict)
    # Corrects the quotas in the database with the next booking: permits that they do not contain yet, or a negative
    # number if they contain permits that were not used.
    carried: int = 0
    held_until: float = _NEVER
    has_failed: bool = False
    concurrency: int | None = None
    limit_rate: float | None = None
    limit_told: float = _NEVER
    window_told: float = _NEVER
    # slots of this process alone: what it used to get is what it allows itself while the database is silent
    last_slot: float = _NEVER
    gaps: deque[float] = field(default_factory=lambda: deque(maxlen=_HISTORY))
    next_local_slot: float = _NEVER
    # what complaints divide the local rate by while the database is silent
    local_divisor: float = 1.0

    def reserve(self, task: str, now: float) -> float | None:
        """Notes that the task is about to book a slot, and returns None.

        If it has as many slots ahead as it may, nothing is noted, and the time of the first of them is returned.
        """
        with self.lock:
            if len(self.ahead) > _TASKS:
                self.ahead = {name: slots for name, slots in self.ahead.items() if max(slots) > now}
            slots = [slot for slot in self.ahead.get(task, ()) if slot > now]
            if len(slots) >= self.policy.quantum:
                self.ahead[task] = slots
                return min(slots)
            self.ahead[task] = [*slots, _UNKNOWN]
            return None

    def settle(self, task: str, slot: float | None) -> None:
        """Replaces a reservation by the slot that was booked; None: there was none."""
        with self.lock:
            slots = self.ahead.get(task, [])
            if _UNKNOWN in slots:
                slots.remove(_UNKNOWN)
            if slot is not None:
                slots.append(slot)
            if not slots:
                self.ahead.pop(task, None)

    def take_carried(self) -> int:
        with self.lock:
            carried, self.carried = self.carried, 0
            return carried

    def carry(self, count: int) -> None:
        with self.lock:
            self.carried += count

    def remember_slot(self, opens: float) -> None:
        with self.lock:
            if opens > self.last_slot > _NEVER:
                self.gaps.append(opens - self.last_slot)
            self.last_slot = max(self.last_slot, opens)

    def book_locally(self, cost: int, now: float, deadline_s: float) -> float | None:
        """Books a slot without the database, at a low rate; None if there is none within the deadline."""
        with self.lock:
            rate = conservative_rate(self.policy, self.gaps) / self.local_divisor
            interval = 1 / max(self.policy.floor_per_s, rate) + self.policy.pad_s
            # whatever was booked in the database before it fell silent is still to come
            slot = max(now, self.next_local_slot, self.held_until, self.last_slot + interval)
            if slot - now > deadline_s:
                return None
            self.next_local_slot = slot + cost * interval
            self.carried += cost
            return slot

    def slow_down_locally(self) -> None:
        with self.lock:
            self.local_divisor *= self.policy.demote_rate

    def next_locally(self, now: float) -> float:
        with self.lock:
            return max(now, self.next_local_slot, self.held_until)


def conservative_rate(policy: RatePolicy, gaps: Sequence[float]) -> float:
    """The slowest tenth of what this process used to get, at most the default rate: others may be calling too."""
    rates = [DEFAULT_RATE, policy.refill_per_s]
    if gaps:
        ordered = sorted(gaps)
        rates.append(1 / ordered[min(len(ordered) - 1, len(ordered) * 9 // 10)])
    return max(policy.floor_per_s, min(rates))
