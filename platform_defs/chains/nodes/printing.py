"""What a node prints goes into the log of its own step, although nodes run in threads of one process."""

import io
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

_current = threading.local()
_lock = threading.Lock()


class _Divided(io.TextIOBase):
    """A standard output that threads of nodes write into their own log, and all others where they always did."""

    def __init__(self, usual: TextIO) -> None:
        self.usual = usual

    def write(self, text: str) -> int:
        lines: _Lines | None = getattr(_current, "lines", None)
        return self.usual.write(text) if lines is None else lines.write(text)

    def flush(self) -> None:
        self.usual.flush()

    def fileno(self) -> int:
        return self.usual.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self.usual.encoding


class _Lines:
    def __init__(self, log: Callable[[str], None]) -> None:
        self._log = log
        self._begun = ""

    def write(self, text: str) -> int:
        *whole, self._begun = (self._begun + text).split("\n")
        for line in whole:
            self._log(line)
        return len(text)

    def end(self) -> None:
        if self._begun:
            self._log(self._begun)


@contextmanager
def printing_into(log: Callable[[str], None]) -> Iterator[None]:
    """While the block runs, what this thread prints goes to the log, line by line."""
    with _lock:
        if not isinstance(sys.stdout, _Divided):
            sys.stdout = _Divided(sys.stdout)
    lines = _current.lines = _Lines(log)
    try:
        yield
    finally:
        _current.lines = None
        lines.end()
