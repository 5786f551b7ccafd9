"""The one way in which tests wait: for something to happen, never for a time."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
# Ends what hangs, and says nothing of speed: on a machine with ten times the work it can do, all is ten times as slow.
PATIENCE_S = 300.0
# A look may ask a server or start a process; whoever looks without a pause slows down what it waits for.
SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 1.0


def until(what: str, look: Callable[[], T], seconds: float = PATIENCE_S) -> T:
    """The first true answer of `look`, which is asked again after a pause as long as it took itself."""
    deadline = time.monotonic() + seconds
    while True:
        began = time.monotonic()
        if answer := look():
            return answer
        ended = time.monotonic()
        assert ended < deadline, f"waited {seconds} s for {what}"
        time.sleep(min(max(SHORTEST_PAUSE_S, ended - began), LONGEST_PAUSE_S))
