"""The rows of the gate: bookings, complaints and what they leave, each as one statement on any store."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Engine
from sqlalchemy.engine import URL

from platform_defs.rate_gate import statements
from platform_defs.rate_gate.decisions import GateState
from platform_defs.rate_gate.policy import RatePolicy
from platform_defs.rate_gate.sql import StoreClock
from platform_defs.rate_gate.statements import MICRO, SOFT_FLAG, WAIT_SHIFT
from platform_defs.store.driver import Done, Prepared
from platform_defs.store.engine import Patience, open_engine, read, transact_by_driver
from platform_defs.store.tables.rate_gate import rate_gate
from platform_defs.store.types import is_mysql
from platform_defs.store.upsert import upsert

# a wait is packed into 30 bits of microseconds
LONGEST_WAIT_S = 900.0
LIMIT_VALID_S = 3600
# resets come in whole seconds: two that differ by less mean the same window
SAME_WINDOW_S = 2
# a warm-up begins with this part of the rate
COLD_START = 1 / 3
_UNLIMITED = 2**53
# a booking that is repeated after a lost connection at worst leaves a slot unused
_ATTEMPTS = 2


def open_gate_engine(url: URL | str, *, pool_size: int = 4) -> Engine:
    """Connections for a gate of its own.

    Each statement commits by itself, so that a process that hangs never holds the row that all others need; and a
    database that does not answer is given up soon, because the gate has something to fall back to. A machine that
    loses its power sends no request either: the last bookings need not survive that.
    """
    return open_engine(
        url,
        pool_size=pool_size,
        socket_timeout=5,
        patience=Patience(connect=2, pool=5, sqlite_busy=5),
        autocommit=True,
        survives_power_loss=False,
    )


@dataclass(frozen=True)
class Booking:
    """How long to wait for the first slot, and how far apart the booked slots are."""

    wait_s: float
    interval_s: float
    is_quota_soft: bool


class GateTable:
    """Every method is one statement, which commits by itself; a key's first one may take two more."""

    def __init__(self, engine: Engine, now_us: Callable[[], int] | None = None) -> None:
        self._engine = engine
        self._is_mysql = is_mysql(engine.dialect)
        self._clock = StoreClock(engine, now_us)
        now = self._clock.now
        booking = statements.booking(now)
        self._booking = Prepared(booking if self._is_mysql else booking.returning(rate_gate.c.booked))
        standing = statements.standing(now)
        self._standing, self._standing_names = Prepared(standing), standing.selected_columns.keys()
        self._complaint = Prepared(statements.complaint(now))
        self._recovery = Prepared(statements.recovery())
        self._limit = Prepared(statements.limit(now))
        self._window = Prepared(statements.window(now))

    def book(
        self, key: str, policy: RatePolicy, *, cost: int, at_once: bool, deadline_s: float, carried: int = 0
    ) -> Booking | None:
        """Books `cost` units: for one request that needs all of them `at_once`, or for as many requests in a row.

        `carried` corrects the quotas by permits that this process used without booking them, or booked and did not use
        (KeyMemory). Returns None if nothing was booked, because the key is new, the wait too long or a quota used up.
        """
        values = _values(key, policy, cost=cost, at_once=at_once) | {
            "deadline_us": _micro(min(deadline_s, LONGEST_WAIT_S)),
            "carried": carried,
        }
        booked = transact_by_driver(self._engine, lambda connection: self._book(connection, values), attempts=_ATTEMPTS)
        if booked is None:
            return None
        rest = booked % SOFT_FLAG
        return Booking(rest // WAIT_SHIFT / MICRO, rest % WAIT_SHIFT / MICRO, is_quota_soft=booked >= SOFT_FLAG)

    def _book(self, connection: Connection, values: dict[str, Any]) -> int | None:
        done = self._run(self._booking, connection, values)
        if self._is_mysql:
            return int(done.lastrowid or 0) if done.rowcount else None
        return int(done.rows[0][0]) if done.rows else None

    def add(self, key: str) -> None:
        """A row for a new key, with its whole burst."""
        rows = [{"gate_key": key}]
        transact_by_driver(
            self._engine, lambda connection: upsert(connection, rate_gate, rows, key=["gate_key"], update="nothing")
        )

    def standing(self, key: str, policy: RatePolicy, *, cost: int = 1) -> GateState | None:
        """What the next booking would find; None for a key that was never used."""
        values = _values(key, policy, cost=cost, at_once=True)
        rows = read(
            self._engine,
            lambda connection: self._run(self._standing, connection, values).rows,
            attempts=_ATTEMPTS,
        )
        if not rows:
            return None
        row = dict(zip(self._standing_names, rows[0], strict=True))
        return GateState(
            rate_per_s=float(row["rate"]),
            next_slot_s=int(row["wait_us"]) / MICRO,
            cool_s=int(row["cool_us"]) / MICRO,
            failures=int(row["failures"]),
            hour_left=_left(policy.quota_hourly, int(row["hour_used"])),
            day_left=_left(policy.quota_daily, int(row["day_used"])),
            hour_ends_s=int(row["hour_ends_us"]) / MICRO,
            day_ends_s=int(row["day_ends_us"]) / MICRO,
            window_left=None if row["window_left"] is None else int(row["window_left"]),
            window_ends_s=int(row["window_ends_us"]) / MICRO,
        )

    def complain(
        self,
        key: str,
        policy: RatePolicy,
        *,
        demotes: bool,
        failed: bool,
        cool_s: float,
        age_s: float,
        circuit_s: float,
    ) -> None:
        """Notes a complaint or a failure of the source (statements.complaint); a key that is new gets its row."""
        values = _values(key, policy, cost=1, at_once=True) | {
            "demotes": int(demotes),
            "demote_rate": policy.demote_rate,
            "floor": policy.floor_per_s,
            "failed": int(failed),
            "cool_us": _micro(cool_s),
            "age_us": _micro(age_s),
            "circuit_threshold": policy.circuit_threshold or _UNLIMITED,
            "circuit_us": _micro(circuit_s),
        }
        if not self._write(self._complaint, values):
            self.add(key)
            self._write(self._complaint, values)

    def recover(self, key: str) -> None:
        self._write(self._recovery, {"key": key})

    def limit(self, key: str, rate_per_s: float) -> None:
        self._write(self._limit, {"key": key, "limit_rate": rate_per_s, "valid_us": _micro(LIMIT_VALID_S)})

    def window(self, key: str, *, left: int, reset_s: float) -> None:
        values = {"key": key, "left": left, "reset_us": _micro(reset_s), "same_us": _micro(SAME_WINDOW_S)}
        self._write(self._window, values)

    def _write(self, statement: Prepared, values: dict[str, Any]) -> int:
        """How many rows the statement found."""
        return transact_by_driver(
            self._engine, lambda connection: self._run(statement, connection, values).rowcount, attempts=_ATTEMPTS
        )

    def _run(self, statement: Prepared, connection: Connection, values: dict[str, Any]) -> Done:
        return statement.run(connection, values | self._clock.values())


def _values(key: str, policy: RatePolicy, *, cost: int, at_once: bool) -> dict[str, Any]:
    """What all statements need of a policy."""
    return {
        "key": key,
        "cost": cost,
        # a request that costs several units goes when the last of them is due; after a pause all of them are
        "lead_units": cost - 1 if at_once else 0,
        "slack_units": max(policy.spent_burst, cost if at_once else 1) - 1,
        "cap": policy.refill_per_s,
        "step": policy.refill_per_s * policy.raise_share,
        "cool_down_us": _micro(policy.cool_down_s),
        "warmup_us": _micro(policy.warmup_s),
        "cold_start": COLD_START if policy.warmup_s else 1.0,
        "warmup_length_us": float(max(1, _micro(policy.warmup_s))),
        "pad_us": _micro(policy.pad_s),
        "hour_hard": policy.quota_hourly or _UNLIMITED,
        "hour_soft": _soft(policy.quota_hourly, policy),
        "day_hard": policy.quota_daily or _UNLIMITED,
        "day_soft": _soft(policy.quota_daily, policy),
    }


def _soft(quota: int | None, policy: RatePolicy) -> int:
    return _UNLIMITED if quota is None else int(quota * (1 - policy.quota_margin))


def _left(quota: int | None, used: int) -> int | None:
    return None if quota is None else max(0, quota - used)


def _micro(seconds: float) -> int:
    return round(seconds * MICRO)
