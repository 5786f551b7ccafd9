"""The gate's arithmetic in SQL: a slot is booked, and a complaint is noted, by one statement each.

Slots follow the generic cell rate algorithm: `next_slot_us` is when the next request may go; a booking moves it on by
one interval per unit of cost. MySQL assigns from left to right and then reads the new value, so a column is assigned
after all expressions that read it.
"""

from dataclasses import dataclass
from functools import cached_property

from sqlalchemy import BigInteger, Double, Select, Update, bindparam, case, cast, literal, select, update

from platform_defs.rate_gate.policy import LONGEST_INTERVAL_US
from platform_defs.rate_gate.sql import Number, greatest, least, number, report_number, whole_quotient
from platform_defs.store.tables.rate_gate import rate_gate

MICRO = 1_000_000
HOUR_US = 3600 * MICRO
DAY_US = 24 * HOUR_US
# a clock that went back by more than this would otherwise close the gate for as long
CLOCK_STEP_US = 60 * MICRO
# how the number that a booking reports is packed
WAIT_SHIFT = 2**32
SOFT_FLAG = 2**62

_gate = rate_gate.c


def _real(name: str) -> Number:
    return bindparam(name, type_=Double())


@dataclass(frozen=True)
class Arithmetic:
    """Expressions over one row of the gate, all of them by the same instant."""

    now: Number

    @cached_property
    def allowed_rate(self) -> Number:
        """What policy, earlier complaints and the source's headers allow, in requests per second."""
        recovered = _real("step") * whole_quotient(self.now - _gate.slowed_at_us, number("cool_down_us"))
        own = least(
            _real("cap"), case((_gate.slowed_rate.is_(None), _real("cap")), else_=_gate.slowed_rate + recovered)
        )
        return least(own, case((_gate.limit_until_us > self.now, _gate.limit_rate), else_=_real("cap")))

    @cached_property
    def warm_from(self) -> Number:
        """The warm-up begins again after a pause that is as long as itself."""
        paused = _gate.last_booked_us < self.now - number("warmup_us")
        return case((paused, self.now), else_=_gate.warm_from_us)

    @cached_property
    def rate(self) -> Number:
        elapsed = literal(1.0) * (self.now - self.warm_from) / _real("warmup_length_us")
        warmth = least(literal(1.0), _real("cold_start") + (1 - _real("cold_start")) * elapsed)
        return self.allowed_rate * warmth

    def used(self, length_us: int) -> Number:
        """Permits given in the current hour or day."""
        no, count = (_gate.hour_no, _gate.hour_count) if length_us == HOUR_US else (_gate.day_no, _gate.day_count)
        return case((no == self.window_no(length_us), count), else_=0)

    def window_no(self, length_us: int) -> Number:
        return whole_quotient(self.now, literal(length_us))

    def ends_in(self, length_us: int) -> Number:
        return literal(length_us) - self.now % literal(length_us)

    def _is_soft(self, length_us: int, name: str) -> Number:
        return self.used(length_us) + number("cost") > number(f"{name}_soft")

    @cached_property
    def is_soft(self) -> Number:
        return case((self._is_soft(HOUR_US, "hour") | self._is_soft(DAY_US, "day"), 1), else_=0)

    def _stretched(self, length_us: int, name: str) -> Number:
        """The interval that spreads the safety margin of a quota over the rest of its window."""
        left = greatest(literal(1), number(f"{name}_hard") - self.used(length_us))
        return case((self._is_soft(length_us, name), whole_quotient(self.ends_in(length_us), left)), else_=0)

    @cached_property
    def interval(self) -> Number:
        by_rate = cast(literal(float(MICRO)) / self.rate, BigInteger) + 1 + number("pad_us")
        slowest = greatest(by_rate, self._stretched(HOUR_US, "hour"), self._stretched(DAY_US, "day"))
        return least(literal(LONGEST_INTERVAL_US), slowest)

    @cached_property
    def window_hold(self) -> Number:
        """When the source's own window ends, if it has not enough requests left."""
        spent = (_gate.window_until_us > self.now) & (_gate.window_left < number("cost"))
        return case((spent, _gate.window_until_us), else_=0)

    @cached_property
    def start(self) -> Number:
        """The slot of the first unit; it may lie in the past by the burst that is spent on purpose."""
        clock_went_back = _gate.last_booked_us > self.now + CLOCK_STEP_US
        next_slot = case((clock_went_back, self.now), else_=_gate.next_slot_us)
        return greatest(
            next_slot, self.now - number("slack_units") * self.interval, _gate.cool_until_us, self.window_hold
        )

    @cached_property
    def wait(self) -> Number:
        return greatest(literal(0), self.start + number("lead_units") * self.interval - self.now)


def booking(now: Number) -> Update:
    """Books `cost` units of the key if the wait is within the deadline and the quotas last; else changes nothing."""
    of = Arithmetic(now)
    booked = of.is_soft * literal(SOFT_FLAG) + of.wait * literal(WAIT_SHIFT) + of.interval
    counted = number("cost") + number("carried")
    return (
        update(rate_gate)
        .where(
            _gate.gate_key == bindparam("key"),
            of.wait <= number("deadline_us"),
            of.used(HOUR_US) + number("cost") <= number("hour_hard"),
            of.used(DAY_US) + number("cost") <= number("day_hard"),
        )
        .ordered_values(
            (_gate.booked, report_number(booked)),
            (_gate.next_slot_us, of.start + number("cost") * of.interval),
            (_gate.window_left, greatest(literal(0), _gate.window_left - number("cost"))),
            (_gate.hour_count, greatest(literal(0), of.used(HOUR_US) + counted)),
            (_gate.hour_no, of.window_no(HOUR_US)),
            (_gate.day_count, greatest(literal(0), of.used(DAY_US) + counted)),
            (_gate.day_no, of.window_no(DAY_US)),
            (_gate.warm_from_us, of.warm_from),
            (_gate.last_booked_us, now),
        )
    )


def standing(now: Number) -> Select[tuple[object, ...]]:
    """What a booking would find now."""
    of = Arithmetic(now)
    return select(
        of.rate.label("rate"),
        of.wait.label("wait_us"),
        greatest(literal(0), _gate.cool_until_us - now).label("cool_us"),
        of.window_hold.label("window_hold"),
        _gate.failures,
        of.used(HOUR_US).label("hour_used"),
        of.used(DAY_US).label("day_used"),
        of.ends_in(HOUR_US).label("hour_ends_us"),
        of.ends_in(DAY_US).label("day_ends_us"),
        case((_gate.window_until_us > now, _gate.window_left), else_=None).label("window_left"),
        greatest(literal(0), _gate.window_until_us - now).label("window_ends_us"),
    ).where(_gate.gate_key == bindparam("key"))


def complaint(now: Number) -> Update:
    """Slows down, cools down and counts a failure, as far as the values say so.

    A request that was sent before the rate was last slowed says nothing about the slower rate: of ten requests under
    way that are all answered 429 the first one slows down and the others do not.
    """
    of = Arithmetic(now)
    counts = (number("demotes") == 1) & (_gate.slowed_at_us <= now - number("age_us"))
    slower = greatest(_real("floor"), of.allowed_rate / _real("demote_rate"))
    failures = _gate.failures + number("failed")
    opens_circuit = (number("failed") == 1) & (failures >= number("circuit_threshold"))
    return (
        update(rate_gate)
        .where(_gate.gate_key == bindparam("key"))
        .ordered_values(
            (_gate.slowed_rate, case((counts, slower), else_=_gate.slowed_rate)),
            (_gate.slowed_at_us, case((counts, now), else_=_gate.slowed_at_us)),
            (
                _gate.cool_until_us,
                greatest(
                    _gate.cool_until_us,
                    case((number("cool_us") > 0, now + number("cool_us")), else_=0),
                    case((opens_circuit, now + number("circuit_us")), else_=0),
                ),
            ),
            (_gate.failures, failures),
            # whatever burst was saved up is void: the source has just said that there is none
            (_gate.next_slot_us, greatest(_gate.next_slot_us, now)),
        )
    )


def recovery() -> Update:
    """Sets the number of failures in a row back to zero, after a success."""
    return update(rate_gate).where(_gate.gate_key == bindparam("key"), _gate.failures > 0).values(failures=0)


def limit(now: Number) -> Update:
    """The rate that the source's headers name; it holds for a while, in case the source stops naming it."""
    return (
        update(rate_gate)
        .where(_gate.gate_key == bindparam("key"))
        .ordered_values((_gate.limit_rate, _real("limit_rate")), (_gate.limit_until_us, now + number("valid_us")))
    )


def window(now: Number) -> Update:
    """The requests that the source's headers leave until its window ends.

    In a window that is known already the smaller number counts: ours contains requests that are still under way, the
    source's contains those of others with the same credential.
    """
    ends = now + number("reset_us")
    known = (_gate.window_until_us > now) & (_gate.window_until_us >= ends - number("same_us"))
    return (
        update(rate_gate)
        .where(_gate.gate_key == bindparam("key"))
        .ordered_values(
            (_gate.window_left, case((known, least(_gate.window_left, number("left"))), else_=number("left"))),
            (_gate.window_until_us, ends),
        )
    )
