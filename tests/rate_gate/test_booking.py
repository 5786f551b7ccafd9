"""Slots are exact: as the generic cell rate algorithm says, whoever books them, and a source that counts agrees."""

import json
import subprocess
import sys
import threading
import uuid
from contextlib import ExitStack
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine
from sqlalchemy.engine import URL

from platform_defs.rate_gate.decisions import Allow, WaitUntil
from platform_defs.rate_gate.gate import RateGate
from platform_defs.rate_gate.policy import RatePolicy
from platform_defs.rate_gate.table import GateTable
from platform_defs.store import migrate
from tests.conftest import STORES
from tests.needs import ROOT
from tests.rate_gate.clocks import START_US, StillClock
from tests.rate_gate.patient import open_patient_gate_engine
from tests.waiting import PATIENCE_S

on_every_store = settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
requests = st.lists(
    st.tuples(st.integers(0, 3_000_000), st.integers(1, 4), st.sampled_from([0.0, 0.3, 60.0])), max_size=25
)
policies = st.builds(
    RatePolicy,
    refill_per_s=st.sampled_from([0.7, 3.0, 20.0, 100.0]),
    burst=st.integers(1, 12),
    burst_share=st.sampled_from([0.0, 0.2, 1.0]),
)


@dataclass
class Model:
    """Booking as a page of arithmetic would have it, in microseconds."""

    policy: RatePolicy
    next_slot: int = 0

    def book(self, now: int, cost: int, deadline: int) -> int | None:
        interval = round(1e6 / self.policy.refill_per_s) + 1 + round(self.policy.pad_s * 1e6)
        start = max(self.next_slot, now - (max(self.policy.spent_burst, cost) - 1) * interval)
        wait = max(0, start + (cost - 1) * interval - now)
        if wait > deadline:
            return None
        self.next_slot = start + cost * interval
        return wait


@given(policy=policies, steps=requests)
@on_every_store
def test_waits_are_those_of_the_model(engine: Engine, policy: RatePolicy, steps: list[tuple[int, int, float]]) -> None:
    clock = StillClock()
    table, model, key = GateTable(engine, clock.now_us), Model(policy), uuid.uuid4().hex
    table.add(key)
    for pause_us, cost, deadline_s in steps:
        clock.us += pause_us
        booking = table.book(key, policy, cost=cost, at_once=True, deadline_s=deadline_s)
        expected = model.book(clock.us, cost, round(deadline_s * 1e6))
        # a cast rounds on one store and cuts on the other
        assert booking == (None if expected is None else booking)
        if booking is not None and expected is not None:
            assert booking.wait_s * 1e6 == pytest.approx(expected, abs=200)


class Source:
    """A source that enforces its own limit by a token bucket, as strictly as a microsecond."""

    def __init__(self, policy: RatePolicy) -> None:
        self.policy = policy
        self.tokens = float(policy.burst)
        self.at = 0.0
        self.refused = 0

    def call(self, at: float) -> None:
        assert at >= self.at
        self.tokens = min(self.policy.burst, self.tokens + (at - self.at) * self.policy.refill_per_s)
        self.at = at
        if self.tokens < 1 - 1e-9:
            self.refused += 1
        else:
            self.tokens -= 1


@given(
    policy=policies,
    pauses=st.lists(st.integers(0, 300_000), min_size=1, max_size=30),
    prefetch=st.sampled_from([1, 1, 4]),
    seed=st.integers(0, 99),
)
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_a_source_that_counts_never_refuses(
    engine: Engine, policy: RatePolicy, pauses: list[int], prefetch: int, seed: int
) -> None:
    policy = RatePolicy(
        refill_per_s=policy.refill_per_s, burst=policy.burst, burst_share=policy.burst_share, prefetch=prefetch
    )
    clock = StillClock()
    gate, key = RateGate(engine, clock=clock, now_us=clock.now_us, seed=seed), uuid.uuid4().hex
    sent: list[float] = []
    for pause_us in pauses:
        clock.us += pause_us
        decision = gate.acquire(key, policy, deadline_s=900)
        assert isinstance(decision, Allow | WaitUntil)
        assert decision.permit is not None
        sent.append(max(clock.monotonic(), decision.permit.opens))
    source = Source(policy)
    for at in sorted(sent):
        source.call(at)
    assert source.refused == 0


def test_threads_of_one_process_get_different_slots(engine: Engine) -> None:
    policy, waits = RatePolicy(refill_per_s=10, burst=4, burst_share=1), []
    table = GateTable(engine, lambda: START_US)
    table.add("k")

    def book() -> None:
        for _ in range(10):
            booking = table.book("k", policy, cost=1, at_once=True, deadline_s=900)
            assert booking is not None
            waits.append(round(booking.wait_s * 1e6))

    threads = [threading.Thread(target=book) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    interval = 100_001 + 20_000
    assert sorted(waits) == sorted([0, 0, 0] + [number * interval for number in range(57)])


BOOKER = """
import json, sys
from platform_defs.rate_gate.policy import RatePolicy
from platform_defs.rate_gate.table import GateTable
from tests.rate_gate.patient import open_patient_gate_engine
engine = open_patient_gate_engine(sys.argv[1])
table = GateTable(engine, lambda: int(sys.argv[2]))
policy = RatePolicy(refill_per_s=10, burst=5)
sys.stdin.read()
waits = [table.book("k", policy, cost=1, at_once=True, deadline_s=900).wait_s for _ in range(25)]
engine.dispose()
print(json.dumps([round(wait * 1e6) for wait in waits]))
"""


@pytest.mark.parametrize("database_url", STORES, indirect=True)
def test_processes_get_different_slots(database_url: URL) -> None:
    engine = open_patient_gate_engine(database_url)
    migrate.upgrade(engine)
    GateTable(engine).add("k")
    engine.dispose()
    arguments = [sys.executable, "-c", BOOKER, database_url.render_as_string(hide_password=False), str(START_US)]
    with ExitStack() as stack:
        bookers = [
            stack.enter_context(
                subprocess.Popen(arguments, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            for _ in range(3)
        ]
        for booker in bookers:
            assert booker.stdin is not None
            booker.stdin.close()
            booker.stdin = None
        waits = [wait for booker in bookers for wait in json.loads(booker.communicate(timeout=PATIENCE_S)[0])]
    assert sorted(waits) == [number * 100_001 for number in range(75)]
