"""What a node prints goes into the log of its step: standard output is one per process, but nodes run in threads."""

import io
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO


class PrintedLines(io.TextIOBase):
    """Takes the place of sys.stdout; threads that capture nothing write to the original."""

    def __init__(self, original: TextIO) -> None:
        self._original = original
        self._thread = threading.local()

    def write(self, text: str) -> int:
        log: Callable[[str], None] | None = getattr(self._thread, "log", None)
        if log is None:
            return self._original.write(text)
        *lines, self._thread.rest = (self._thread.rest + text).split("\n")
        for line in lines:
            log(line)
        return len(text)

    def flush(self) -> None:
        self._original.flush()

    def writable(self) -> bool:
        return True

    @contextmanager
    def to(self, log: Callable[[str], None]) -> Iterator[None]:
        """What this thread prints meanwhile is logged, line by line."""
        self._thread.log, self._thread.rest = log, ""
        try:
            yield
        finally:
            if self._thread.rest:
                log(self._thread.rest)
            self._thread.log = None


@contextmanager
def printed_lines() -> Iterator[PrintedLines]:
    original = sys.stdout
    lines = PrintedLines(original)
    sys.stdout = lines
    try:
        yield lines
    finally:
        sys.stdout = original
