"""The one way in which tests wait: for something to happen, never for a time."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(what: str, look: Callable[[], T], seconds: float = 60) -> T:
    """The first true answer of `look`. The bound ends a test that hangs; it is far beyond what a busy machine needs."""
    deadline = time.monotonic() + seconds
    while not (answer := look()):
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(0.02)
    return answer
