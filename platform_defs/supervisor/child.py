"""A child process of the supervisor: its description, its start behind a guard, and the wait before a restart."""

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


class NoAnswer(NotReady):
    """Nobody listens there, or nobody answered within the time."""


class Broken(Exception):
    """The child answers that it can never become ready; the message says why."""


class StartFailed(PlatformError):
    """The platform did not become ready."""


def always_ready(started_at: float) -> None:
    """The probe of a child that cannot be asked: it counts as ready once it has started."""


@dataclass(frozen=True)
class ChildSpec:
    """One process to keep running.

    `probe` is called with the time of the child's start in epoch seconds; it raises NotReady or Broken, or returns if
    the child is ready. `grace_s` is the time between the request to stop and the kill. It is longer than the child
    itself ever takes, unless `loses_nothing` says that the kill is not worth a line. Processes that the child has
    started are ended when it crashes, unless `keep_descendants_on_crash` says that its successor takes them over.
    """

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] | None = None
    probe: Callable[[float], None] = always_ready
    grace_s: float = 6.0
    loses_nothing: bool = False
    keep_descendants_on_crash: bool = False


@dataclass(frozen=True)
class Backoff:
    """How long a child that ended waits before it is started again: not at all if it had been ready."""

    first_s: float = 0.5
    cap_s: float = 30.0

    def failures(self, before: int, *, was_ready: bool) -> int:
        """The number of lives in a row that ended before the child was ready."""
        return 0 if was_ready else before + 1

    def delay(self, failures: int) -> float:
        return float(min(self.cap_s, self.first_s * 2 ** min(failures - 1, 16))) if failures else 0.0


class GuardedProcess:
    """A running child. Stop and kill go through its guard: as the parent, only the guard can be sure that the child's
    process number has not been reused for another process.
    """

    def __init__(self, guard: asyncio.subprocess.Process, lifeline: int, report: int, log: int) -> None:
        self.guard = guard
        self._lifeline = lifeline
        self._report = report
        self._log = log

    @classmethod
    async def start(cls, spec: ChildSpec, descriptors: Sequence[int]) -> "GuardedProcess":
        """The guard keeps `descriptors` open until it ends, such as the one of the home's lock."""
        (lifeline_in, lifeline), (report, report_out), (log, log_out) = os.pipe(), os.pipe(), os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", str(Path(guard.__file__)), str(lifeline_in), str(report_out)),
                "keep" if spec.keep_descendants_on_crash else "end",
                *spec.command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log_out,
                stderr=log_out,
                env=None if spec.environment is None else dict(spec.environment),
                pass_fds=(lifeline_in, report_out, *descriptors),
                # Ctrl-C in the terminal must reach only the supervisor, which then stops the children in order
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
        """The pid of the child itself, which its guard reports once; 0 if the guard ended before it could."""
        with os.fdopen(self._report, "rb") as report:
            return int(await asyncio.to_thread(report.read) or 0)

    async def lines(self) -> AsyncIterator[str]:
        """The output of the child and its descendants, line by line, until the last of them has closed it."""
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

    def ask_to_stop(self) -> None:
        self._send_order(b"T")

    def kill(self) -> None:
        self._send_order(b"K")

    def _send_order(self, order: bytes) -> None:
        try:
            os.write(self._lifeline, order)
        except BrokenPipeError:
            return  # the guard has ended

    async def wait(self) -> int:
        """The child's exit code; negative if the guard itself was killed."""
        return await self.guard.wait()

    def close(self) -> None:
        """Closes the lifeline; a guard that still runs then ends its child and all descendants."""
        os.close(self._lifeline)
