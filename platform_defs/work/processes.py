"""Identifies processes for certain: the kernel gives the pid of an ended process to another one."""

import contextlib
import os
import signal
import socket
from dataclasses import dataclass
from pathlib import Path

# The state of a listening socket in /proc/net/tcp.
_LISTEN = "0A"


@dataclass(frozen=True)
class ProcessId:
    """A pid together with the time at which its process started, in clock ticks since the machine booted."""

    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> "ProcessId | None":
        """The process that has this pid now, or None if there is none."""
        started = _start_ticks(pid)
        return None if started is None else cls(pid, started)

    @classmethod
    def current(cls) -> "ProcessId":
        identity = cls.of(os.getpid())
        assert identity is not None, "the current process exists"
        return identity

    @classmethod
    def on_this_machine(cls, full_name: str) -> "ProcessId | None":
        """The process with this full name, or None if the name is of another machine or is no full name at all."""
        if full_name.count(":") < 2:
            return None
        host, pid, started = full_name.rsplit(":", 2)
        return cls(int(pid), int(started)) if host == hostname() else None

    @property
    def full_name(self) -> str:
        """Names this process among those of all machines: `host:pid:started`."""
        return f"{hostname()}:{self.pid}:{self.started}"

    def is_alive(self) -> bool:
        return _start_ticks(self.pid) == self.started

    def kill(self) -> bool:
        """Ends the process at once; False if it is gone already."""
        if not self.is_alive():
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
            return True
        return False

    def end_left_group(self) -> list[int]:
        """Kills what this process, which led its process group and has ended, left there; returns the pids.

        Dagster starts a `tail` beside every run, which nobody else ends if the run was killed.
        """
        left = [pid for pid in _group(self.pid) if pid != self.pid]
        if left and _start_ticks(self.pid) is None:  # else the pid was given to another process
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return left
        return []

    def signal_group(self, signal_number: signal.Signals) -> bool:
        """Sends a signal to the process and the others of its process group; False if the process is gone."""
        if not self.is_alive():
            return False
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal_number)
            return True
        return False


def listener(port: int) -> ProcessId | None:
    """The process of this user that listens on a TCP port of this machine."""
    inodes = _listening_inodes(port)
    for folder in Path("/proc").iterdir() if inodes else ():
        if not folder.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            if any(os.readlink(link) in inodes for link in (folder / "fd").iterdir()):
                return ProcessId.of(int(folder.name))
    return None


def _listening_inodes(port: int) -> set[str]:
    """The names under which /proc/PID/fd shows the sockets that listen on the port."""
    found = set()
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/net/{table}").read_text(encoding="ascii").splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                    found.add(f"socket:[{fields[9]}]")
    return found


def _group(leader: int) -> list[int]:
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                stat = (folder / "stat").read_text(encoding="utf-8", errors="replace")
                if stat.rpartition(")")[2].split()[2] == str(leader):
                    found.append(int(folder.name))
    return found


def hostname() -> str:
    return socket.gethostname()


def _start_ticks(pid: int) -> int | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The name of the command stands in parentheses and may itself contain spaces and parentheses.
    fields = text[text.rindex(")") + 2 :].split()
    state, started = fields[0], int(fields[19])
    return None if state == "Z" else started
