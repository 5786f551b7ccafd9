"""A fork server as the runner sees it: starts its process, orders runs from it, and reads its messages as events."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from platform_defs.runner.fingerprint import Fingerprint
from platform_defs.work.rows import Work


@dataclass(frozen=True)
class Ready:
    """The definitions are loaded, and the fork server takes orders."""

    threads: int


@dataclass(frozen=True)
class LoadFailed:
    """The definitions do not load."""

    reason: str


@dataclass(frozen=True)
class Started:
    """The process for a row of work was forked."""

    work_id: int
    pid: int


@dataclass(frozen=True)
class Exited:
    """A forked process has ended."""

    pid: int
    wait_status: int


@dataclass(frozen=True)
class Gone:
    """The process of the fork server itself has ended. The processes that it forked live on."""


Event: TypeAlias = Ready | LoadFailed | Started | Exited | Gone


class ForkServer:
    """One set of loaded definitions, and the process that forks runs with them."""

    def __init__(self, fingerprint: Fingerprint, environment: dict[str, str]) -> None:
        self.fingerprint = fingerprint
        self.channel, theirs = socket.socketpair()
        self._buffer = b""
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "platform_defs.runner.fork_server_process", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env=environment,
            )
        self.channel.setblocking(False)

    @property
    def pid(self) -> int:
        return self._process.pid

    def order(self, work: Work, owner: str, log: Path, notice: str | None) -> None:
        """Has a process forked that executes the run of a row of work, as `child.main` does."""
        order = {
            "id": work.id,
            "kind": work.kind,
            "payload": work.payload,
            "run_id": work.run_id,
            "owner": owner,
            "log": str(log),
            "notice": notice,
        }
        # Orders are small and the fork server reads them at once, so that this blocks only for a moment.
        self.channel.setblocking(True)
        try:
            self.channel.sendall(json.dumps(order).encode() + b"\n")
        finally:
            self.channel.setblocking(False)

    def events(self) -> list[Event]:
        """The messages since the last call. To be called when the channel is readable."""
        try:
            received = self.channel.recv(65536)
        except BlockingIOError:
            return []
        except OSError:
            received = b""
        if not received:
            return [Gone()]
        *lines, self._buffer = (self._buffer + received).split(b"\n")
        return [self._event(json.loads(line)) for line in lines]

    def _event(self, message: dict[str, int | str]) -> Event:
        if "ready" in message:
            return Ready(int(message["threads"]))
        if "failed" in message:
            return LoadFailed(str(message["failed"]))
        if "started" in message:
            return Started(int(message["started"]), int(message["pid"]))
        return Exited(int(message["exited"]), int(message["status"]))

    def close(self) -> None:
        """Kills the process of the fork server. The processes that it forked are not touched."""
        self.channel.close()
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()


def describe_exit(pid: int, wait_status: int) -> str:
    if os.WIFSIGNALED(wait_status):
        return f"process {pid} was killed by {signal.Signals(os.WTERMSIG(wait_status)).name}"
    return f"process {pid} ended with exit code {os.WEXITSTATUS(wait_status)} before it closed the run"
