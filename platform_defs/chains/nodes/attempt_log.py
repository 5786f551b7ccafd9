"""The log of one attempt: without secrets, and bounded, since each line becomes an event in Dagster's storage."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

LONGEST_LINE = 4096
LOGGED_CHARACTERS = 256 * 1024


@dataclass
class AttemptLog:
    """Thread-safe. What comes after the bound is dropped, and the last line says so."""

    write: Callable[[str], None]
    mask: Callable[[str], str]
    _left: int = LOGGED_CHARACTERS
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __call__(self, text: str) -> None:
        if self._left <= 0:
            return
        # masked before it is cut: half of a secret would not be recognised
        line = self.mask(text)
        if len(line) > LONGEST_LINE:
            line = f"{line[:LONGEST_LINE]}…"
        with self._lock:
            if self._left <= 0:
                return
            self._left -= len(line) + 1
            self.write(line)
            if self._left <= 0:
                self.write(f"(more than {LOGGED_CHARACTERS} characters: the rest is not logged)")
