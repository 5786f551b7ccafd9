"""The runner's end of a fork server: starts the process, sends it orders, turns what it says into events."""

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
    """Definitions are loaded; orders are welcome."""

    threads: int


@dataclass(frozen=True)
class LoadFailed:
    reason: str


@dataclass(frozen=True)
class Started:
    work_id: int
    pid: int


@dataclass(frozen=True)
class Exited:
    pid: int
    wait_status: int


@dataclass(frozen=True)
class Gone:
    """The fork server's process ended; its children are on their own."""


Event: TypeAlias = Ready | LoadFailed | Started | Exited | Gone


class ForkServer:
    """One generation of loaded definitions."""

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
        order = {
            "id": work.id,
            "kind": work.kind,
            "payload": work.payload,
            "run_id": work.run_id,
            "owner": owner,
            "log": str(log),
            "notice": notice,
        }
        # orders are small and the fork server reads at once: blocking here is momentary
        self.channel.setblocking(True)
        try:
            self.channel.sendall(json.dumps(order).encode() + b"\n")
        finally:
            self.channel.setblocking(False)

    def events(self) -> list[Event]:
        """What it has said since; to be called when the channel is readable."""
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
        """Ends the process at once; children that still run are not touched."""
        self.channel.close()
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()


def describe_exit(pid: int, wait_status: int) -> str:
    if os.WIFSIGNALED(wait_status):
        return f"process {pid} was killed by {signal.Signals(os.WTERMSIG(wait_status)).name}"
    return f"process {pid} ended with exit code {os.WEXITSTATUS(wait_status)} before it closed the run"
