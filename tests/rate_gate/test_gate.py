"""What the gate makes of complaints, pauses, headers and quotas, for all processes: two gates play two of them."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta

import pytest
from sqlalchemy import Engine, event

from platform_defs.rate_gate.decisions import Allow, Permit, Reason, Reject, WaitUntil
from platform_defs.rate_gate.gate import RateGate
from platform_defs.rate_gate.policy import RatePolicy
from platform_defs.rate_gate.signals import Limits, Outcome, Signal
from tests.rate_gate.clocks import StillClock

TEN = RatePolicy(refill_per_s=10, burst=10, burst_share=0)
KEY = "crossref/works/7"


@dataclass
class Two:
    """Two processes with clocks of their own that agree with the database on nothing but the length of a second."""

    one: RateGate
    other: RateGate
    clocks: list[StillClock]

    def advance(self, seconds: float) -> None:
        for clock in self.clocks:
            clock.advance(seconds)


@pytest.fixture
def two(engine: Engine) -> Two:
    database, mine, theirs = StillClock(), StillClock(), StillClock()
    mine.advance(-3600)
    theirs.advance(7200)
    one = RateGate(engine, clock=mine, now_us=database.now_us, seed=1)
    other = RateGate(engine, clock=theirs, now_us=database.now_us, seed=2)
    return Two(one, other, [database, mine, theirs])


def wait_s(gate: RateGate, policy: RatePolicy = TEN, **more: float) -> float:
    decision = gate.acquire(KEY, policy, **{"deadline_s": 900.0, **more})  # type: ignore[arg-type]
    assert not isinstance(decision, Reject)
    return decision.wait_s if isinstance(decision, WaitUntil) else 0.0


def rejection(gate: RateGate, policy: RatePolicy = TEN, deadline_s: float = 1.0) -> Reject:
    decision = gate.acquire(KEY, policy, deadline_s=deadline_s)
    assert isinstance(decision, Reject)
    return decision


def permit_of(gate: RateGate, policy: RatePolicy = TEN) -> Permit:
    decision = gate.acquire(KEY, policy, deadline_s=900)
    assert isinstance(decision, Allow | WaitUntil)
    assert decision.permit is not None
    return decision.permit


LIMITED = Signal(Outcome.RATE_LIMITED)


def test_processes_share_slots_whatever_their_clocks_say(two: Two) -> None:
    exact = replace(TEN, jitter=(0, 0))
    waits = [wait_s(gate, exact) for gate in (two.one, two.other, two.one, two.other)]
    assert waits == pytest.approx([0, 0.1, 0.2, 0.3], abs=0.001)


def test_a_wait_is_a_little_longer_than_the_slot_and_never_shorter(two: Two) -> None:
    jittery = replace(TEN, burst=1000)
    for number in range(20):
        assert 0.1 * number * 1.05 <= wait_s(two.one, jittery) + 1e-6 <= 0.1 * number * 1.15 + 0.01


def test_a_complaint_halves_the_rate_and_patience_restores_it_step_by_step(two: Two) -> None:
    two.one.acquire(KEY, TEN)
    two.one.feedback(KEY, TEN, LIMITED)
    assert two.other.standing(KEY, TEN).rate_per_s == 5
    two.advance(29)
    assert two.other.standing(KEY, TEN).rate_per_s == 5
    two.advance(1)
    assert two.other.standing(KEY, TEN).rate_per_s == 6
    two.advance(90)
    assert two.other.standing(KEY, TEN).rate_per_s == 9
    two.advance(3600)
    assert two.other.standing(KEY, TEN).rate_per_s == 10


def test_complaints_of_requests_from_before_the_slower_rate_do_not_count_again(two: Two) -> None:
    two.one.acquire(KEY, TEN)
    for age_s in (0.5, 0.4, 0.3):
        two.one.feedback(KEY, TEN, replace(LIMITED, age_s=age_s))
        two.advance(0.01)
    assert two.one.standing(KEY, TEN).rate_per_s == 5
    two.advance(1)
    two.other.feedback(KEY, TEN, replace(LIMITED, age_s=0.5))
    assert two.one.standing(KEY, TEN).rate_per_s == 2.5


def test_the_rate_never_falls_below_its_minimum(two: Two) -> None:
    two.one.acquire(KEY, TEN)
    for _ in range(20):
        two.advance(1)
        two.one.feedback(KEY, TEN, Signal(Outcome.TRANSIENT))
    assert two.one.standing(KEY, TEN).rate_per_s == pytest.approx(0.1)


def test_other_answers_and_silence_change_no_rate(two: Two) -> None:
    two.one.acquire(KEY, TEN)
    for outcome in (Outcome.OK, Outcome.OTHER, Outcome.NO_ANSWER):
        two.one.feedback(KEY, TEN, Signal(outcome))
    assert two.one.standing(KEY, TEN).rate_per_s == 10


@pytest.mark.parametrize("respects", [True, False])
def test_a_pause_that_a_source_asks_one_process_for_is_kept_by_all(two: Two, respects: bool) -> None:
    policy = replace(TEN, respects_headers=respects)
    two.one.acquire(KEY, policy)
    two.one.feedback(KEY, policy, replace(LIMITED, limits=Limits(retry_after_s=20)))
    for gate in (two.one, two.other):
        refused = rejection(gate, policy)
        assert refused.reason is Reason.COOLING_DOWN
        assert 21 <= (refused.until - gate.clock.now()).total_seconds() <= 23
    assert 21 <= wait_s(two.other, policy) <= 23.7


def test_permits_from_before_the_pause_are_void(two: Two) -> None:
    exact = replace(TEN, jitter=(0, 0))
    soon = permit_of(two.one, exact)
    for _ in range(15):
        two.one.acquire(KEY, exact)
    mine, theirs = permit_of(two.one, exact), permit_of(two.other, exact)
    two.one.feedback(KEY, exact, replace(LIMITED, limits=Limits(retry_after_s=60)))
    assert not two.one.confirm(soon, exact)
    two.advance(1.75)
    assert not two.one.confirm(mine, exact)
    assert not two.other.confirm(theirs, exact)


def test_a_permit_that_is_used_too_late_is_void(two: Two) -> None:
    permit = permit_of(two.one)
    two.advance(0.4)
    assert two.one.confirm(permit, TEN)
    two.advance(0.1)
    assert not two.one.confirm(permit, TEN)


def test_no_source_closes_the_gate_for_longer_than_the_policy_says(two: Two) -> None:
    policy = replace(TEN, longest_cool_s=100)
    two.one.acquire(KEY, policy)
    two.one.feedback(KEY, policy, replace(LIMITED, limits=Limits(retry_after_s=10**9)))
    assert (rejection(two.other, policy).until - two.other.clock.now()).total_seconds() < 116


def test_failures_in_a_row_close_the_gate_and_a_success_forgives_them(two: Two) -> None:
    policy = replace(TEN, circuit_threshold=3, r_min=10)
    two.one.acquire(KEY, policy)
    for gate in (two.one, two.other):
        gate.feedback(KEY, policy, Signal(Outcome.NO_ANSWER))
    two.one.feedback(KEY, policy, Signal(Outcome.OK))
    for gate in (two.one, two.other):
        gate.feedback(KEY, policy, Signal(Outcome.TRANSIENT))
    assert wait_s(two.one, policy) < 1
    two.other.feedback(KEY, policy, Signal(Outcome.NO_ANSWER))
    assert 60 <= (rejection(two.one, policy).until - two.one.clock.now()).total_seconds() <= 70
    two.advance(70)
    assert wait_s(two.one, policy) < 1
    two.one.feedback(KEY, policy, Signal(Outcome.NO_ANSWER))
    assert rejection(two.other, policy).reason is Reason.COOLING_DOWN


def test_a_limit_in_the_headers_lowers_the_rate_and_never_raises_it_above_the_policy(two: Two) -> None:
    def told(limit: int, interval_s: float | None = 1.0) -> Signal:
        return Signal(Outcome.OK, Limits(limit=limit, interval_s=interval_s))

    two.one.acquire(KEY, TEN)
    two.one.feedback(KEY, TEN, told(50))
    assert two.other.standing(KEY, TEN).rate_per_s == 10
    two.one.feedback(KEY, TEN, told(3))
    assert two.other.standing(KEY, TEN).rate_per_s == 3
    two.one.feedback(KEY, TEN, told(120, 60.0))
    assert two.other.standing(KEY, TEN).rate_per_s == 2
    two.one.feedback(KEY, TEN, told(50))
    assert two.other.standing(KEY, TEN).rate_per_s == 10
    two.one.feedback(KEY, TEN, told(3, None))
    assert two.other.standing(KEY, TEN).rate_per_s == 10
    per_second = replace(TEN, limit_interval_s=1.0)
    two.one.feedback(KEY, per_second, told(3, None))
    assert two.other.standing(KEY, TEN).rate_per_s == 3
    two.advance(3601)
    assert two.other.standing(KEY, TEN).rate_per_s == 10


def test_headers_that_the_policy_does_not_respect_change_nothing(two: Two) -> None:
    policy = replace(TEN, respects_headers=False)
    two.one.acquire(KEY, policy)
    limits = Limits(limit=1, interval_s=1.0, remaining=0, reset_s=100, concurrency=1)
    two.one.feedback(KEY, policy, Signal(Outcome.OK, limits))
    assert two.one.standing(KEY, policy).rate_per_s == 10
    assert two.one.standing(KEY, policy).window_left is None
    assert two.one.concurrency_limit(KEY, policy) is None


def test_what_a_source_has_left_is_spent_by_all_and_not_exceeded(two: Two) -> None:
    two.one.acquire(KEY, TEN)
    two.one.feedback(KEY, TEN, Signal(Outcome.OK, Limits(remaining=2, reset_s=100)))
    assert [wait_s(gate) < 1 for gate in (two.one, two.other)] == [True, True]
    refused = rejection(two.one)
    assert refused.reason is Reason.SOURCE_WINDOW
    assert (refused.until - two.one.clock.now()).total_seconds() == pytest.approx(100, abs=1)
    # an answer that was under way says that there is more than we know to have booked
    two.other.feedback(KEY, TEN, Signal(Outcome.OK, Limits(remaining=1, reset_s=100)))
    assert rejection(two.one).reason is Reason.SOURCE_WINDOW
    two.advance(101)
    assert wait_s(two.one) == 0


def test_concurrency_is_the_smaller_of_policy_and_headers(two: Two) -> None:
    policy = replace(TEN, max_concurrent=5)
    assert two.one.concurrency_limit(KEY, policy) == 5
    two.one.feedback(KEY, policy, Signal(Outcome.OK, Limits(concurrency=3)))
    assert two.one.concurrency_limit(KEY, policy) == 3
    assert two.one.concurrency_limit(KEY, TEN) == 3


def test_a_quota_is_counted_once_for_all_and_ends_with_its_window(two: Two) -> None:
    policy = replace(TEN, burst=1000, burst_share=1, quota_hourly=8, quota_daily=10, quota_margin=0)
    for gate in (two.one, two.other) * 4:
        assert wait_s(gate, policy) == 0
    refused = rejection(two.one, policy)
    assert refused.reason is Reason.QUOTA_HOURLY
    assert (refused.until - two.one.clock.now()).total_seconds() == pytest.approx(3600, abs=1)
    two.advance(3600)
    assert [wait_s(two.one, policy), wait_s(two.other, policy)] == [0, 0]
    refused = rejection(two.other, policy)
    assert refused.reason is Reason.QUOTA_DAILY
    assert (refused.until - two.other.clock.now()).total_seconds() == pytest.approx(11 * 3600, abs=1)
    two.advance(11 * 3600)
    assert wait_s(two.other, policy) == 0


def test_the_safety_margin_of_a_quota_is_spread_over_the_rest_of_its_window(two: Two) -> None:
    policy = replace(TEN, burst=1000, burst_share=1, quota_hourly=10, quota_margin=0.3)
    permits = [permit_of(two.one, policy) for _ in range(7)]
    assert not any(permit.is_quota_soft for permit in permits)
    soft = permit_of(two.one, policy)
    assert soft.is_quota_soft
    assert soft.rate_per_s == pytest.approx(3 / 3600, rel=0.01)
    assert rejection(two.other, policy, deadline_s=900).reason is Reason.OVER_DEADLINE


def test_a_permit_that_was_not_used_is_not_counted(two: Two) -> None:
    policy = replace(TEN, quota_hourly=2, quota_margin=0)
    permit = permit_of(two.one, policy)
    two.advance(60)
    assert not two.one.confirm(permit, policy)
    permit_of(two.one, policy)
    assert two.one.standing(KEY, policy).hour_left == 1


def test_a_pause_for_a_key_that_was_never_booked_counts_too(two: Two) -> None:
    two.one.feedback(KEY, TEN, replace(LIMITED, limits=Limits(retry_after_s=20)))
    assert rejection(two.other).reason is Reason.COOLING_DOWN


def test_tasks_that_are_over_are_forgotten(two: Two) -> None:
    for number in range(1000):
        two.one.acquire(KEY, TEN, task=str(number))
        two.advance(1)
    assert len(two.one._keys[KEY].ahead) < 300


def test_a_request_may_cost_several_units(two: Two) -> None:
    exact = replace(TEN, jitter=(0, 0), burst=5)
    assert wait_s(two.one, exact, cost=3) == 0
    assert wait_s(two.one, exact) == pytest.approx(0.1, abs=0.001)
    assert wait_s(two.one, exact, cost=3) == pytest.approx(0.4, abs=0.001)


def test_a_deadline_books_nothing(two: Two) -> None:
    for _ in range(5):
        two.one.acquire(KEY, TEN)
    for _ in range(5):
        assert rejection(two.one, deadline_s=0.1).reason is Reason.OVER_DEADLINE
    assert wait_s(two.one, replace(TEN, jitter=(0, 0))) == pytest.approx(0.5, abs=0.001)


def test_a_task_has_no_more_slots_ahead_than_its_quantum(two: Two) -> None:
    policy = replace(TEN, quantum=3, jitter=(0, 0))
    answers = [two.one.acquire(KEY, policy, task="large") for _ in range(6)]
    # the first went at once, so that three more are ahead
    booked = [decision for decision in answers if not isinstance(decision, Reject) and decision.permit]
    assert len(booked) == 4
    last = answers[-1]
    assert isinstance(last, WaitUntil)
    assert (last.permit, last.wait_s) == (None, pytest.approx(0.1, abs=0.001))
    small = two.one.acquire(KEY, policy, task="small")
    assert isinstance(small, WaitUntil)
    assert small.wait_s == pytest.approx(0.4, abs=0.001)
    two.advance(0.15)
    again = two.one.acquire(KEY, policy, task="large")
    assert isinstance(again, WaitUntil)
    assert again.permit is not None


def test_slots_that_are_booked_at_once_keep_their_times_and_expire(two: Two) -> None:
    policy = replace(TEN, prefetch=4, burst=5, jitter=(0, 0))
    assert [wait_s(two.one, policy) for _ in range(2)] == pytest.approx([0, 0.1], abs=0.001)
    assert wait_s(two.other, policy) == pytest.approx(0.4, abs=0.001)
    assert wait_s(two.one, policy) == pytest.approx(0.2, abs=0.001)
    two.advance(10)
    assert wait_s(two.one, policy) == 0
    assert wait_s(two.one, policy) == pytest.approx(0.1, abs=0.001)


def test_slots_that_follow_closely_are_booked_together_until_the_source_complains(engine: Engine, two: Two) -> None:
    fast = replace(TEN, refill_per_s=1000, burst=1000, jitter=(0, 0))
    waits = [wait_s(two.one, fast)]  # which tells the rate
    with bookings(engine) as statements:
        for _ in range(18):
            two.advance(0.001)
            waits.append(wait_s(two.one, fast))
    assert len(statements) == 2
    assert max(waits) < 0.01, "together they are no slower than one by one"
    for _ in range(8):
        two.one.feedback(KEY, fast, LIMITED)
        two.advance(0.1)
    for _ in range(2):
        two.advance(1)
        wait_s(two.one, fast)
    with bookings(engine) as statements:
        for _ in range(3):
            two.advance(1)
            wait_s(two.one, fast)
    assert len(statements) == 3, "at four a second each slot is booked when it is needed"


@contextmanager
def bookings(engine: Engine) -> Iterator[list[str]]:
    statements: list[str] = []

    def note(conn: object, cursor: object, statement: str, *rest: object) -> None:
        if statement.startswith("UPDATE rate_gate"):
            statements.append(statement)

    event.listen(engine, "before_cursor_execute", note)
    yield statements
    event.remove(engine, "before_cursor_execute", note)


def test_prefetched_slots_that_expire_are_not_counted(two: Two) -> None:
    policy = replace(TEN, prefetch=4, quota_hourly=100)
    wait_s(two.one, policy)
    assert two.one.standing(KEY, policy).hour_left == 96
    two.advance(10)
    wait_s(two.one, policy)
    assert two.one.standing(KEY, policy).hour_left == 95


def test_the_last_requests_of_a_quota_are_given_one_by_one(two: Two) -> None:
    policy = replace(TEN, prefetch=4, quota_hourly=5, quota_margin=0)
    for _ in range(5):
        permit_of(two.one, policy)
    assert rejection(two.one, policy).reason is Reason.QUOTA_HOURLY


def test_the_clock_of_the_database_counts_in_utc(engine: Engine) -> None:
    gate = RateGate(engine)
    gate.acquire(KEY, TEN)
    day_ends_s = gate.standing(KEY, TEN).day_ends_s
    off_s = (day_ends_s + time.time()) % 86_400
    assert min(off_s, 86_400 - off_s) < 300


def test_an_ordinary_request_costs_one_statement(engine: Engine, two: Two) -> None:
    two.one.acquire(KEY, TEN)
    statements: list[str] = []

    def count(connection: object, cursor: object, statement: str, *more: object) -> None:
        # the gate's own engine sends neither to a server; on SQLite they stay within the process
        if statement not in ("BEGIN IMMEDIATE", "COMMIT"):
            statements.append(statement)

    event.listen(engine, "before_cursor_execute", count)
    try:
        for _ in range(10):
            permit = permit_of(two.one)
            two.advance(0.2)
            assert two.one.confirm(permit, TEN)
            two.one.feedback(KEY, TEN, Signal(Outcome.OK, Limits(limit=50, interval_s=1.0)))
    finally:
        event.remove(engine, "before_cursor_execute", count)
    assert len(statements) == 10


def test_a_warm_up_begins_slowly_and_again_after_a_pause(two: Two) -> None:
    policy = replace(TEN, warmup_s=30)

    def rate() -> float:
        return permit_of(two.one, policy).rate_per_s

    assert rate() == pytest.approx(10 / 3, rel=0.01)
    two.advance(15)
    assert rate() == pytest.approx(10 * 2 / 3, rel=0.01)
    two.advance(15)
    assert rate() == pytest.approx(10, rel=0.01)
    two.advance(31)
    assert rate() == pytest.approx(10 / 3, rel=0.01)


def test_a_database_clock_that_is_set_back_does_not_close_the_gate(two: Two) -> None:
    permit_of(two.one)
    two.clocks[0].advance(-3600)
    assert wait_s(two.one) < 1


def test_keys_do_not_touch_each_other(two: Two) -> None:
    for _ in range(5):
        two.one.acquire(KEY, TEN)
    assert isinstance(two.one.acquire(KEY.upper(), TEN), Allow)
    assert isinstance(two.one.acquire(f"{KEY} ", TEN), Allow)
    with pytest.raises(ValueError, match="expected a key of 1 to 255 characters"):
        two.one.acquire("k" * 256, TEN)


def test_a_planner_learns_what_it_may_count_on(two: Two) -> None:
    hour = timedelta(hours=1)
    policy = replace(TEN, quota_hourly=1000, quota_margin=0.1, max_concurrent=4)
    assert two.one.estimate("new", TEN, hour).requests == 36_000
    assert two.one.estimate("new", TEN, hour, latency_s=0.5).concurrency == 5
    found = two.one.estimate(KEY, policy, hour)
    assert (found.requests, found.limited_by, found.concurrency) == (900, Reason.QUOTA_HOURLY, 4)
    assert two.one.estimate(KEY, policy, 3 * hour).requests == 2700
    for _ in range(10):
        two.one.acquire(KEY, policy)
    assert two.other.estimate(KEY, policy, hour).requests == 890
    two.one.feedback(KEY, TEN, replace(LIMITED, limits=Limits(retry_after_s=1800)))
    found = two.other.estimate(KEY, TEN, hour)
    assert found.limited_by is Reason.COOLING_DOWN
    assert found.requests < 9000
    assert found.available_from > two.other.clock.now() + timedelta(minutes=30)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("refill_per_s", 0.0),
        ("burst", 0),
        ("demote_rate", 0.5),
        ("quota_daily", 0),
        ("jitter", (0.2, 0.1)),
        ("quantum", 0),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused_by_name(setting: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"rate policy: {setting}: expected"):
        replace(TEN, **{setting: value})  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No outage is part of these tests."""
    yield
    assert "silent" not in caplog.text
