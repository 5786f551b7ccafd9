"""The gate itself: asks the database for slots, hands them out, and turns what sources answer into slower or faster."""

import random
import threading
from collections.abc import Callable
from datetime import timedelta

from sqlalchemy import Engine

from platform_defs.rate_gate.clock import Clock
from platform_defs.rate_gate.decisions import (
    Allow,
    Decision,
    Estimate,
    GateState,
    Permit,
    Reaction,
    Reason,
    Reject,
    WaitUntil,
)
from platform_defs.rate_gate.estimates import estimate_requests
from platform_defs.rate_gate.headers import HeaderFollower
from platform_defs.rate_gate.leases import RequestLeases
from platform_defs.rate_gate.local import KeyMemory
from platform_defs.rate_gate.outage import DatabaseSilent, Outage
from platform_defs.rate_gate.policy import RatePolicy
from platform_defs.rate_gate.signals import Outcome, Signal
from platform_defs.rate_gate.table import LONGEST_WAIT_S, Booking, GateTable

LONGEST_KEY = 255
# a permit that was waited for this long is checked against cool-downs that another process heard of meanwhile
RECHECK_S = 1.0
# Others may book between a failed booking and the query that asks why it failed: so the gate tries this often.
_TRIES = 3
_BRIEFLY_S = 0.01


class RateGate:
    """Thread-safe; one per process and database is enough, and its memory of keys is shared by all who use it."""

    def __init__(
        self,
        engine: Engine,
        *,
        clock: Clock | None = None,
        now_us: Callable[[], int] | None = None,
        seed: int | None = None,
    ) -> None:
        """`now_us` replaces the database's clock, in microseconds since 1970: for tests."""
        self.clock = clock or Clock()
        self._random = random.Random(seed)
        self._table = GateTable(engine, now_us)
        self._outage = Outage(self.clock, on_return=self._tell_pauses)
        self._headers = HeaderFollower(self._table)
        self.leases = RequestLeases(engine, self._outage, now_us)
        self._lock = threading.Lock()
        self._keys: dict[str, KeyMemory] = {}

    def acquire(
        self, key: str, policy: RatePolicy, *, cost: int = 1, deadline_s: float = 60.0, task: str = ""
    ) -> Decision:
        """Books the next slot of the key, if it comes within `deadline_s` (at most 15 minutes).

        `cost` is in units of the policy's rate. A `task` has at most `policy.quantum` slots ahead at a time.
        """
        if not 0 < len(key) <= LONGEST_KEY:
            raise ValueError(f"rate gate: expected a key of 1 to {LONGEST_KEY} characters, got {len(key)}")
        if cost < 1:
            raise ValueError(f"rate gate: expected a cost of at least 1, got {cost}")
        memory = self._memory(key, policy)
        deadline_s = min(deadline_s, LONGEST_WAIT_S)
        now = self.clock.monotonic()
        if memory.held_until - now > deadline_s:
            return self._rejected(Reason.COOLING_DOWN, memory.held_until - now)
        if task and (turn := memory.reserve(task, now)) is not None:
            wait_s = min(turn - now, _BRIEFLY_S) if turn == float("inf") else turn - now
            return self._wait(wait_s, None) if wait_s <= deadline_s else self._rejected(Reason.OVER_DEADLINE, wait_s)
        decision: Decision | None = None
        try:
            decision = self._decide(key, memory, cost, deadline_s)
        finally:
            if task:
                permit = decision.permit if isinstance(decision, Allow | WaitUntil) else None
                memory.settle(task, None if permit is None else permit.opens)
        return decision

    def confirm(self, permit: Permit, policy: RatePolicy) -> bool:
        """Whether a permit that was waited for may be used; if not, its slot is given up and a new one is needed.

        A permit expires, and a source that asks for a pause asks also those who have booked already.
        """
        memory = self._memory(permit.key, policy)
        now = self.clock.monotonic()
        is_good = now <= permit.expires and memory.held_until <= now
        if is_good and not permit.is_local and permit.opens - permit.booked >= RECHECK_S:
            try:
                standing = self._outage.attempt(lambda: self._table.standing(permit.key, policy))
            except DatabaseSilent:
                standing = None
            is_good = standing is None or standing.cool_s <= 0
        if not is_good:
            self.give_up(permit, policy)
        return is_good

    def give_up(self, permit: Permit, policy: RatePolicy) -> None:
        """Tells that a permit was not used: its slot is lost, but the quotas do not count it."""
        self._memory(permit.key, policy).carry(-permit.cost)

    def feedback(self, key: str, policy: RatePolicy, signal: Signal) -> Reaction:
        """Reports what a request led to. An ordinary success costs no statement."""
        memory = self._memory(key, policy)
        cool_s = self._cool_s(policy, signal.limits.retry_after_s)
        if cool_s > 0:
            with memory.lock:
                memory.held_until = max(memory.held_until, self.clock.monotonic() + cool_s)
        demotes = signal.outcome in (Outcome.RATE_LIMITED, Outcome.TRANSIENT)
        try:
            for tell in self._news(key, memory, signal, cool_s, demotes):
                self._outage.attempt(tell)
        except DatabaseSilent:
            if demotes:
                memory.slow_down_locally()
        return Reaction(demotes, self.clock.now() + timedelta(seconds=cool_s) if cool_s > 0 else None)

    def standing(self, key: str, policy: RatePolicy) -> GateState:
        """What the gate knows of the key now."""
        try:
            found = self._outage.attempt(lambda: self._table.standing(key, policy))
        except DatabaseSilent:
            found = None
        if found is not None:
            return found
        return GateState(policy.refill_per_s, hour_left=policy.quota_hourly, day_left=policy.quota_daily)

    def estimate(self, key: str, policy: RatePolicy, horizon: timedelta, *, latency_s: float = 1.0) -> Estimate:
        """How many requests a planner may count on within `horizon`; `latency_s` is how long one usually takes."""
        standing = self.standing(key, policy)
        return estimate_requests(standing, policy, horizon, now=self.clock.now(), latency_s=latency_s)

    def concurrency_limit(self, key: str, policy: RatePolicy) -> int | None:
        """Requests that may be under way at once: by policy, and by what the source told this process."""
        told = self._memory(key, policy).concurrency if policy.respects_headers else None
        return min((limit for limit in (policy.max_concurrent, told) if limit is not None), default=None)

    def _decide(self, key: str, memory: KeyMemory, cost: int, deadline_s: float) -> Decision:
        many = memory.policy.booked_at_once(memory.rate_per_s) if cost == 1 else 1
        if many == 1:
            return self._book(key, memory, cost, 1, deadline_s)
        with memory.booking:
            return self._prefetched(memory, deadline_s) or self._book(key, memory, cost, many, deadline_s)

    def _prefetched(self, memory: KeyMemory, deadline_s: float) -> Decision | None:
        """A slot that was booked ahead, or None; those that can no longer be used are given up."""
        now = self.clock.monotonic()
        while memory.prefetched:
            opens = memory.prefetched[0].opens
            if opens + memory.policy.prefetched_ttl_s < now or memory.held_until > now:
                memory.carry(-memory.prefetched.popleft().cost)
                continue
            if opens - now > deadline_s:
                return self._rejected(Reason.OVER_DEADLINE, opens - now)
            return self._hand_out(memory, memory.prefetched.popleft(), now)
        return None

    def _book(self, key: str, memory: KeyMemory, cost: int, many: int, deadline_s: float) -> Decision:
        try:
            return self._outage.attempt(lambda: self._book_in_database(key, memory, cost, many, deadline_s))
        except DatabaseSilent:
            return self._book_locally(key, memory, cost, deadline_s)

    def _book_in_database(self, key: str, memory: KeyMemory, cost: int, many: int, deadline_s: float) -> Decision:
        """Books `many` slots by one statement; the first is handed out, the others are kept for the next requests."""
        wait_s = 0.0
        for _ in range(_TRIES):
            if booking := self._booking(key, memory, cost * many, many == 1, deadline_s):
                permits = self._permits(key, memory.policy, booking, cost, many)
                memory.rate_per_s = permits[0].rate_per_s
                memory.prefetched.extend(permits[1:])
                return self._hand_out(memory, permits[0], self.clock.monotonic())
            standing = self._table.standing(key, memory.policy, cost=cost)
            if standing is None:
                self._table.add(key)
                continue
            if refusal := _refusal(standing, cost, deadline_s):
                return self._rejected(*refusal)
            # the quota may suffice for one request and not for several
            many, wait_s = 1, standing.next_slot_s
        return self._rejected(Reason.OVER_DEADLINE, wait_s)

    def _booking(self, key: str, memory: KeyMemory, units: int, at_once: bool, deadline_s: float) -> Booking | None:
        carried = memory.take_carried()
        booking = None
        try:
            booking = self._table.book(
                key, memory.policy, cost=units, at_once=at_once, deadline_s=deadline_s, carried=carried
            )
        finally:
            if booking is None:
                memory.carry(carried)
        return booking

    def _permits(self, key: str, policy: RatePolicy, booking: Booking, cost: int, many: int) -> list[Permit]:
        # the wait began when the statement did: counted from its end, a request is never early
        now = self.clock.monotonic()
        # late by more than the source's burst absorbs would draw the 429 that jitter is there to prevent
        late_s = min(booking.wait_s * self._random.uniform(*policy.jitter), policy.slack_s / 2)
        slots = [now + booking.wait_s + number * booking.interval_s for number in range(many)]
        return [
            Permit(
                key,
                cost,
                booked=now,
                opens=slot + late_s,
                expires=slot + policy.ttl_s,
                rate_per_s=1 / booking.interval_s,
                is_quota_soft=booking.is_quota_soft,
            )
            for slot in slots
        ]

    def _book_locally(self, key: str, memory: KeyMemory, cost: int, deadline_s: float) -> Decision:
        now = self.clock.monotonic()
        slot = memory.book_locally(cost, now, deadline_s)
        if slot is None:
            return self._rejected(Reason.OVER_DEADLINE, memory.next_locally(now) - now)
        permit = Permit(key, cost, now, slot, slot + memory.policy.ttl_s, memory.policy.floor_per_s, is_local=True)
        return self._wait(slot - now, permit) if slot > now else Allow(permit)

    def _hand_out(self, memory: KeyMemory, permit: Permit, now: float) -> Decision:
        memory.remember_slot(permit.opens)
        return self._wait(permit.opens - now, permit) if permit.opens > now else Allow(permit)

    def _news(
        self, key: str, memory: KeyMemory, signal: Signal, cool_s: float, demotes: bool
    ) -> list[Callable[[], None]]:
        """The statements that tell the other processes; none for an ordinary success."""
        policy = memory.policy
        failed = signal.outcome in (Outcome.TRANSIENT, Outcome.NO_ANSWER)
        news: list[Callable[[], None]] = []
        if demotes or cool_s > 0 or (failed and policy.circuit_threshold):
            memory.has_failed = memory.has_failed or failed
            circuit_s = self._with_jitter(policy, policy.circuit_cool_s)
            news.append(
                lambda: self._table.complain(
                    key,
                    policy,
                    demotes=demotes,
                    failed=failed,
                    cool_s=cool_s,
                    age_s=signal.age_s,
                    circuit_s=circuit_s,
                )
            )
        elif memory.has_failed and signal.outcome is Outcome.OK:
            memory.has_failed = False
            news.append(lambda: self._table.recover(key))
        if policy.respects_headers:
            news += self._headers.news(key, memory, signal.limits, self.clock.monotonic())
        return news

    def _tell_pauses(self) -> None:
        """After an outage the other processes learn of the pauses that sources asked this one for."""
        now = self.clock.monotonic()
        with self._lock:
            memories = list(self._keys.items())
        for key, memory in memories:
            memory.local_divisor = 1.0
            if memory.held_until <= now:
                continue
            self._table.complain(
                key,
                memory.policy,
                demotes=False,
                failed=False,
                cool_s=memory.held_until - now,
                age_s=0.0,
                circuit_s=0.0,
            )

    def _cool_s(self, policy: RatePolicy, retry_after_s: float | None) -> float:
        return self._with_jitter(policy, min(retry_after_s or 0.0, policy.longest_cool_s))

    def _with_jitter(self, policy: RatePolicy, seconds: float) -> float:
        return seconds * (1 + self._random.uniform(*policy.jitter))

    def _wait(self, wait_s: float, permit: Permit | None) -> WaitUntil:
        return WaitUntil(self.clock.now() + timedelta(seconds=wait_s), wait_s, permit)

    def _rejected(self, reason: Reason, wait_s: float) -> Reject:
        return Reject(reason, self.clock.now() + timedelta(seconds=wait_s))

    def _memory(self, key: str, policy: RatePolicy) -> KeyMemory:
        with self._lock:
            memory = self._keys.get(key)
            if memory is None:
                memory = self._keys[key] = KeyMemory(policy)
            memory.policy = policy
            return memory


def _refusal(standing: GateState, cost: int, deadline_s: float) -> tuple[Reason, float] | None:
    """Why nothing was booked and for how many seconds that holds; None: by now it can be booked."""
    if standing.day_left is not None and standing.day_left < cost:
        return Reason.QUOTA_DAILY, standing.day_ends_s
    if standing.hour_left is not None and standing.hour_left < cost:
        return Reason.QUOTA_HOURLY, standing.hour_ends_s
    if standing.next_slot_s <= deadline_s:
        return None
    if standing.cool_s > deadline_s:
        return Reason.COOLING_DOWN, standing.next_slot_s
    is_spent = standing.window_left is not None and standing.window_left < cost
    return (Reason.SOURCE_WINDOW if is_spent else Reason.OVER_DEADLINE), standing.next_slot_s
