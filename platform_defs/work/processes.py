"""Naming processes beyond doubt: a pid alone may have been given to another process since."""

import contextlib
import os
import signal
import socket
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ProcessId:
    """A pid together with the moment its process started (in clock ticks since boot)."""

    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> "ProcessId | None":
        started = _start_ticks(pid)
        return None if started is None else cls(pid, started)

    @classmethod
    def current(cls) -> "ProcessId":
        identity = cls.of(os.getpid())
        assert identity is not None, "the current process exists"
        return identity

    def is_alive(self) -> bool:
        return _start_ticks(self.pid) == self.started

    def send(self, signal_number: signal.Signals) -> bool:
        """To the process and what it started in its group; False if it is gone."""
        if not self.is_alive():
            return False
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal_number)
            return True
        return False


def hostname() -> str:
    return socket.gethostname()


def _start_ticks(pid: int) -> int | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # the command's name stands in parentheses and may itself hold spaces and parentheses
    fields = text[text.rindex(")") + 2 :].split()
    state, started = fields[0], int(fields[19])
    return None if state == "Z" else started
