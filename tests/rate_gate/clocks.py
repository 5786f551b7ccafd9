"""A clock that stands still unless somebody waits on it, for the gate and for the database alike."""

import threading
from datetime import UTC, datetime

from platform_defs.rate_gate.clock import Clock

# noon of a day, so that a test does not cross the end of an hour or a day by accident
START_US = 1_800_014_400_000_000


class StillClock(Clock):
    def __init__(self, us: int = START_US) -> None:
        self.us = us
        self.waits: list[float] = []

    def now_us(self) -> int:
        return self.us

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.us / 1e6, UTC)

    def monotonic(self) -> float:
        return (self.us - START_US) / 1e6

    def wait(self, seconds: float, cancel: threading.Event | None = None) -> bool:
        if cancel is not None and cancel.is_set():
            return True
        self.waits.append(seconds)
        self.advance(max(0.0, seconds))
        return False

    def advance(self, seconds: float) -> None:
        self.us += round(seconds * 1e6)
