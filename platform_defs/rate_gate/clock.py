"""The clock that gate and door read and wait on, so that tests can hand in one that does not tick by itself."""

import threading
import time
from datetime import UTC, datetime


class Clock:
    """The machine's clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    def wait(self, seconds: float, cancel: threading.Event | None = None) -> bool:
        """Waits, and answers whether `cancel` was set meanwhile."""
        if cancel is not None:
            return cancel.wait(max(0.0, seconds))
        time.sleep(max(0.0, seconds))
        return False
