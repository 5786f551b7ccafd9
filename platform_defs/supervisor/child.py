"""What a child is, how it is started behind its guard, and how long to wait before it is started again."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from platform_defs.errors import PlatformError
from platform_defs.supervisor import guard
from platform_defs.supervisor.output import LineSplitter


class NotReady(Exception):
    """The child does not answer yet; the message says what is missing."""


class Broken(Exception):
    """The child answers that it can never become ready; the message says why."""


class StartFailed(PlatformError):
    """The platform did not become ready."""


def always_ready(started_at: float) -> None:
    """The probe of a child that has nothing to ask."""


@dataclass(frozen=True)
class ChildSpec:
    """One process to keep running. The probe gets the child's start (epoch seconds) and raises NotReady or Broken."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] | None = None
    probe: Callable[[float], None] = always_ready
    grace_s: float = 6.0
    # a crash ends what the child has started, unless its successor knows how to take it over
    leaves_rest: bool = False


@dataclass(frozen=True)
class Backoff:
    """How long a child that ended waits before it is started again."""

    first_s: float = 0.5
    cap_s: float = 30.0
    healthy_s: float = 30.0

    def failures(self, before: int, lived_s: float) -> int:
        """The failures in a row after one more end; a healthy life wipes out those before it."""
        return 1 if lived_s >= self.healthy_s else before + 1

    def delay(self, failures: int) -> float:
        return float(min(self.cap_s, self.first_s * 2 ** min(failures - 1, 16)))


class GuardedProcess:
    """A running child; all orders go through its guard, which alone can tell its process from a reused number."""

    def __init__(self, guard: asyncio.subprocess.Process, lifeline: int, report: int, log: int) -> None:
        self.guard = guard
        self._lifeline = lifeline
        self._report = report
        self._log = log

    @classmethod
    async def start(cls, spec: ChildSpec, held: Sequence[int]) -> "GuardedProcess":
        """`held` are descriptors that stay open until the guard ends, such as that of the lock."""
        (lifeline_in, lifeline), (report, report_out), (log, log_out) = os.pipe(), os.pipe(), os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", str(Path(guard.__file__)), str(lifeline_in), str(report_out)),
                "leave" if spec.leaves_rest else "end",
                *spec.command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log_out,
                stderr=log_out,
                env=None if spec.environment is None else dict(spec.environment),
                pass_fds=(lifeline_in, report_out, *held),
                # Ctrl-C in the terminal is for the supervisor alone
                start_new_session=True,
            )
        except BaseException:
            for descriptor in (lifeline, report, log):
                os.close(descriptor)
            raise
        finally:
            for descriptor in (lifeline_in, report_out, log_out):
                os.close(descriptor)
        return cls(process, lifeline, report, log)

    async def pid(self) -> int:
        """The child's own pid, as its guard reports it once; 0 if the guard ended before."""
        with os.fdopen(self._report, "rb") as report:
            return int(await asyncio.to_thread(report.read) or 0)

    async def lines(self) -> AsyncIterator[str]:
        """What the child and all it started write, until the last of them closed it."""
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(self._log, "rb")
        )
        splitter = LineSplitter()
        try:
            while data := await reader.read(64 * 1024):
                for line in splitter.feed(data):
                    yield line
            for line in splitter.end():
                yield line
        finally:
            transport.close()

    def ask(self) -> None:
        self._order(b"T")

    def kill(self) -> None:
        self._order(b"K")

    def _order(self, order: bytes) -> None:
        try:
            os.write(self._lifeline, order)
        except BrokenPipeError:
            return

    async def wait(self) -> int:
        """The child's exit code; negative if the guard itself was killed."""
        return await self.guard.wait()

    def close(self) -> None:
        """Ends the lifeline; a guard that still runs now kills what it guards."""
        os.close(self._lifeline)
