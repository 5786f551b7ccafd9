"""A gate whose database is silent goes on, slowly and by itself, and says so once."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from sqlalchemy import Engine
from sqlalchemy.engine import URL

from platform_defs.rate_gate.decisions import Allow, Reason, Reject, WaitUntil
from platform_defs.rate_gate.gate import RateGate
from platform_defs.rate_gate.local import conservative_rate
from platform_defs.rate_gate.outage import RETRY_S
from platform_defs.rate_gate.policy import RatePolicy
from platform_defs.rate_gate.signals import Limits, Outcome, Signal
from platform_defs.rate_gate.table import open_gate_engine
from platform_defs.store import migrate
from platform_defs.store.engine import Patience, open_engine
from tests.conftest import STORES
from tests.e2e.cut import Cable, cable
from tests.rate_gate.clocks import StillClock
from tests.rate_gate.patient import open_patient_gate_engine

FAST = RatePolicy(refill_per_s=100, burst=50, jitter=(0, 0), quota_hourly=1000)
KEY = "k"


Way = tuple[Cable, Engine, Engine]
on_servers = pytest.mark.parametrize("database_url", STORES[1:], indirect=True)


@pytest.fixture
def way(database_url: URL) -> Iterator[Way]:
    """A cable to the database, an engine over it, and one that goes round it."""
    direct = open_patient_gate_engine(database_url)
    migrate.upgrade(direct)
    with cable(str(database_url.host), int(database_url.port or 3306)) as running:
        engine = open_patient_gate_engine(database_url.set(host="127.0.0.1", port=running.port))
        yield running, engine, direct
        engine.dispose()
    direct.dispose()


@on_servers
def test_a_silent_database_leaves_a_slow_gate_and_one_line_each_way(way: Way, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    line, engine, direct = way
    clock = StillClock()
    gate = RateGate(engine, clock=clock, now_us=clock.now_us, seed=1)
    assert isinstance(gate.acquire(KEY, FAST), Allow)
    line.cut()
    waits = []
    for _ in range(4):
        decision = gate.acquire(KEY, FAST)
        assert isinstance(decision, Allow | WaitUntil)
        assert decision.permit is not None
        assert decision.permit.is_local
        waits.append(decision.wait_s if isinstance(decision, WaitUntil) else 0.0)
        assert gate.confirm(decision.permit, FAST)
        gate.feedback(KEY, FAST, Signal(Outcome.OK))
    assert waits == pytest.approx([1, 2, 3, 4], abs=0.01)
    refused = gate.acquire(KEY, FAST, deadline_s=0.5)
    assert isinstance(refused, Reject)
    assert refused.reason is Reason.OVER_DEADLINE
    assert caplog.text.count("the database is silent") == 1
    assert "answers again" not in caplog.text

    line.mend()
    clock.advance(RETRY_S - 1)
    soon = gate.acquire(KEY, FAST)
    assert isinstance(soon, Allow | WaitUntil)
    assert soon.permit is not None
    assert soon.permit.is_local
    clock.advance(2)
    decision = gate.acquire(KEY, FAST)
    assert isinstance(decision, Allow)
    assert not decision.permit.is_local
    assert caplog.text.count("answers again") == 1
    # what was sent meanwhile counts: one before, five during, one after the outage
    assert RateGate(direct, clock=clock, now_us=clock.now_us).standing(KEY, FAST).hour_left == 993


@on_servers
def test_a_pause_that_was_asked_for_during_the_outage_is_kept_then_and_told_to_all_after_it(
    way: Way,
) -> None:
    line, engine, direct = way
    clock = StillClock()
    gate = RateGate(engine, clock=clock, now_us=clock.now_us, seed=1)
    gate.acquire(KEY, FAST)
    line.cut()
    gate.acquire(KEY, FAST)
    gate.feedback(KEY, FAST, Signal(Outcome.RATE_LIMITED, Limits(retry_after_s=100)))
    refused = gate.acquire(KEY, FAST)
    assert isinstance(refused, Reject)
    assert refused.reason is Reason.COOLING_DOWN
    line.mend()
    clock.advance(RETRY_S + 1)
    gate.acquire("another key", FAST)
    told = RateGate(direct, clock=clock, now_us=clock.now_us).standing(KEY, FAST)
    assert told.cool_s == pytest.approx(94, abs=1)


@on_servers
def test_one_request_at_a_time_is_under_way_while_nobody_can_count_them(way: Way) -> None:
    line, engine, _ = way
    gate = RateGate(engine, clock=StillClock())
    line.cut()
    lease = gate.leases.take(KEY, 5, ttl_s=60)
    assert lease is not None
    assert lease.is_local
    assert gate.leases.take(KEY, 5, ttl_s=60) is None
    gate.leases.release(lease)
    assert gate.leases.take(KEY, 5, ttl_s=60) is not None


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_an_embedded_database_that_is_locked_is_silent_too(database_url: URL) -> None:
    patient = open_patient_gate_engine(database_url)
    migrate.upgrade(patient)
    hasty = open_engine(database_url, patience=Patience(sqlite_busy=0))
    gate = RateGate(hasty, clock=StillClock())
    # whoever is in a transaction of its own holds the write lock
    with patient.begin():
        decision = gate.acquire(KEY, FAST)
    assert isinstance(decision, Allow)
    assert decision.permit.is_local
    for engine in (patient, hasty):
        engine.dispose()


@pytest.mark.parametrize(
    ("policy", "gaps", "rate"),
    [
        (FAST, [], 1.0),
        (FAST, [0.1] * 10, 1.0),
        (FAST, [0.1] * 5 + [4.0] * 5, 0.25),
        (FAST, [1000.0] * 10, 0.1),
        (RatePolicy(refill_per_s=0.5), [], 0.5),
        (RatePolicy(refill_per_s=0.01), [], 0.01),
    ],
)
def test_the_local_rate_is_the_slowest_tenth_of_what_the_process_used_to_get(
    policy: RatePolicy, gaps: list[float], rate: float
) -> None:
    assert conservative_rate(policy, gaps) == pytest.approx(rate)


def test_complaints_slow_the_local_rate_too() -> None:
    engine = open_gate_engine("mysql+mysqlconnector://nobody@127.0.0.1:1/none")
    clock = StillClock()
    gate = RateGate(engine, clock=clock)
    policy = replace(FAST, refill_per_s=1, burst=1)
    gate.acquire(KEY, policy)
    gate.feedback(KEY, policy, Signal(Outcome.RATE_LIMITED))
    gate.acquire(KEY, policy)
    decision = gate.acquire(KEY, policy)
    assert isinstance(decision, WaitUntil)
    assert decision.wait_s == pytest.approx(1.02 + 2.02, abs=0.01)
    engine.dispose()
