"""Gets one attempt past the rate gate: a lease where concurrency is limited, then a slot, then the wait for it."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from platform_defs.http_door.errors import Cancelled, HeldBack
from platform_defs.http_door.facts import Facts
from platform_defs.http_door.policy import Passage
from platform_defs.rate_gate.decisions import Permit, Reason, Reject, WaitUntil
from platform_defs.rate_gate.gate import RateGate
from platform_defs.rate_gate.leases import Lease, LeaseKeeper

# between two looks for a lease that another process has given back
_LOOK_S = 0.05
_LOOK_MOST_S = 0.5


class Passes:
    def __init__(self, gate: RateGate) -> None:
        self._gate = gate
        self._clock = gate.clock
        self._keeper = LeaseKeeper(gate.leases)

    @contextmanager
    def leased(self, passage: Passage, facts: Facts, until: float) -> Iterator[Lease | None]:
        """Holds one of the key's leases until the request is answered; None where its concurrency is not limited."""
        limit = self._gate.concurrency_limit(passage.key, passage.rate)
        if limit is None:
            yield None
            return
        lease = self._lease(passage, facts, limit, until)
        try:
            with self._keeper.kept(lease):
                yield lease
        finally:
            self._gate.leases.release(lease)

    def wait_for_permit(
        self, passage: Passage, facts: Facts, until: float, lease: Lease | None
    ) -> tuple[Permit, str, float]:
        """A permit whose time has come, what the gate said first, and how long the wait was."""
        began = self._clock.monotonic()
        said = "ALLOW"
        while True:
            decision = self._gate.acquire(
                passage.key,
                passage.rate,
                cost=passage.cost,
                deadline_s=max(0.0, until - self._clock.monotonic()),
                task=passage.task,
            )
            if isinstance(decision, Reject):
                facts.rejected = "REJECT"
                facts.waited_s += self._clock.monotonic() - began
                facts.hard_quota_hits += decision.reason.is_hard_quota
                raise self._held_back(passage, facts, decision)
            if isinstance(decision, WaitUntil):
                said = "WAIT"
                self._wait_for_slot(decision, passage, facts, lease)
            permit = decision.permit
            if permit is not None:
                waited_s = self._clock.monotonic() - began
                facts.waited_s += waited_s
                facts.permits += 1
                facts.soft_quota_hits += permit.is_quota_soft
                return permit, said, waited_s

    def wait(self, seconds: float, passage: Passage, facts: Facts) -> None:
        if self._clock.wait(seconds, passage.cancel):
            raise Cancelled(f"{passage.key}: cancelled while waiting", facts)

    def _wait_for_slot(self, decision: WaitUntil, passage: Passage, facts: Facts, lease: Lease | None) -> None:
        ends = self._clock.monotonic() + decision.wait_s
        try:
            while lease is not None and ends - self._clock.monotonic() > self._keeper.lease_s / 2:
                self.wait(self._keeper.lease_s / 2, passage, facts)
                self._gate.leases.extend(lease, ttl_s=self._keeper.lease_s)
            self.wait(ends - self._clock.monotonic(), passage, facts)
        except Cancelled:
            if decision.permit is not None:
                self._gate.give_up(decision.permit, passage.rate)
            raise

    def _lease(self, passage: Passage, facts: Facts, limit: int, until: float) -> Lease:
        began = self._clock.monotonic()
        pause_s = _LOOK_S
        with self._gate.leases.waiting(passage.key) as freed:
            while True:
                freed.clear()
                lease = self._gate.leases.take(passage.key, limit, ttl_s=self._keeper.lease_s)
                if lease is not None:
                    facts.waited_s += self._clock.monotonic() - began
                    return lease
                if self._clock.monotonic() + pause_s > until:
                    facts.rejected = "REJECT"
                    later = self._clock.now() + timedelta(seconds=self._keeper.lease_s)
                    raise self._held_back(passage, facts, Reject(Reason.CONCURRENCY, later))
                # other processes do not say that they gave a lease back: those are looked for
                self._clock.wait(pause_s, freed)
                self.wait(0, passage, facts)
                pause_s = min(_LOOK_MOST_S, pause_s * 1.5)

    def _held_back(self, passage: Passage, facts: Facts, decision: Reject) -> HeldBack:
        until = decision.until.isoformat(timespec="seconds")
        message = f"{passage.key}: the rate gate lets nothing through in time ({decision.reason}), come back at {until}"
        return HeldBack(message, facts, reason=decision.reason, until=decision.until)
