"""The guard of one child: a process that ends the child and its descendants when the supervisor says so or dies.

Run by path as `python -I -S guard.py LIFELINE REPORT DESCENDANTS COMMAND…`, so it imports only the standard library.
LIFELINE is the read end of a pipe whose write end only the supervisor has: `T` asks the child to stop, `K` kills it,
and the end of the file means that the supervisor is gone, for whatever reason. The guard writes the child's pid to
REPORT. DESCENDANTS says what happens after a crash of the child to the processes that it started: `end` ends them,
`keep` keeps them for the child's successor.
"""

import ctypes
import os
import select
import signal
import sys
import time
from pathlib import Path

ORPHAN_GRACE_S = 2.0  # for a child whose supervisor was killed
DESCENDANTS_GRACE_S = 1.5  # for the descendants of a child that has ended
KILL_AGAIN_S = 0.05
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
ON_LINUX = sys.platform == "linux"


def _prctl(option: int, value: int) -> None:
    if ON_LINUX:
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def adopt_orphans() -> None:
    """Orphaned descendants become children of this process, even those that left its process group."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def children_by_parent() -> dict[int, list[int]]:
    """The process numbers of this machine by parent.

    Dead processes that nobody has reaped are included: a process that dies during the search must not hide its
    children.
    """
    found: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[1]
            except OSError:
                continue
            found.setdefault(int(parent), []).append(int(entry.name))
    return found


def descendants(root: int) -> list[int]:
    children, found, queue = children_by_parent(), [], [root]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found


def own_children() -> list[int]:
    return children_by_parent().get(os.getpid(), []) if ON_LINUX else []


def send_signal(pids: list[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue


class Guard:
    """Starts the child, whose pid is `leader`, obeys the supervisor's orders, and ends the descendants of the child."""

    def __init__(self, lifeline: int, keep_descendants: bool, command: list[str]) -> None:
        self.lifeline: int | None = lifeline
        self.keep_descendants = keep_descendants
        self.command = command
        self.status: int | None = None
        self.kill_at: float | None = None
        self.stop_asked = False
        self.descendants_asked = False
        self.wake, wake_end = os.pipe()
        os.set_blocking(self.wake, False)
        os.set_blocking(wake_end, False)
        signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
        # Empty handlers, because a signal ignored with SIG_IGN would stay ignored in the child.
        for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: self.ask_to_stop())

    def start(self) -> int:
        guard = os.getpid()
        self.leader = os.fork()
        if self.leader == 0:
            self._become_child(guard)
        return self.leader

    def _become_child(self, guard: int) -> None:
        try:
            os.setpgid(0, 0)
            # If the guard is killed, the kernel kills the child.
            _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != guard:
                os._exit(1)
            signal.set_wakeup_fd(-1)
            os.closerange(3, 256)
            os.execvp(self.command[0], self.command)
        except OSError as error:
            os.write(2, f"{self.command[0]}: {error.strerror}\n".encode())
        finally:
            os._exit(127)

    def ask_to_stop(self) -> None:
        if self.status is None and not self.stop_asked:
            self.stop_asked = True
            send_signal([self.leader], signal.SIGTERM)

    def run(self) -> int:
        """Returns the child's exit code once neither the child nor a descendant is left, or none has to be ended."""
        while True:
            self._reap()
            timeout = None
            if self.status is not None and self.keep_descendants and not self._stop_was_requested():
                return self.status
            if self.status is not None or self._must_kill():
                remaining = self._remaining()
                if self.status is not None and not remaining:
                    return self.status
                timeout = self._end_remaining(remaining)
            elif self.kill_at is not None:
                timeout = self.kill_at - time.monotonic()
            self._listen(timeout)

    def _stop_was_requested(self) -> bool:
        """Whether the child ended because it had to stop and not by a crash: then no descendant may stay."""
        return self.stop_asked or self.lifeline is None or self.kill_at is not None

    def _end_remaining(self, remaining: list[int]) -> float:
        """Asks the processes to end, or kills them when their grace is over; returns the seconds to the next look."""
        if not self.descendants_asked and not self._must_kill():
            self.descendants_asked = True
            send_signal(remaining, signal.SIGTERM)
            self._kill_in(DESCENDANTS_GRACE_S)
        if self._must_kill():
            send_signal(remaining, signal.SIGKILL)
        return KILL_AGAIN_S

    def _must_kill(self) -> bool:
        return self.kill_at is not None and time.monotonic() >= self.kill_at

    def _kill_in(self, seconds: float) -> None:
        moment = time.monotonic() + seconds
        self.kill_at = moment if self.kill_at is None else min(moment, self.kill_at)

    def _remaining(self) -> list[int]:
        """The processes that still have to end; where there is no /proc, the child's process group."""
        if ON_LINUX:
            return descendants(os.getpid())
        try:
            os.killpg(self.leader, 0)
        except (ProcessLookupError, PermissionError):
            return []
        return [-self.leader]

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.leader:
                code = os.waitstatus_to_exitcode(status)
                self.status = code if code >= 0 else 128 - code

    def _listen(self, timeout: float | None) -> None:
        sources = [self.wake] if self.lifeline is None else [self.wake, self.lifeline]
        ready, _, _ = select.select(sources, [], [], None if timeout is None else max(0.0, timeout))
        if self.wake in ready:
            os.read(self.wake, 4096)
        if self.lifeline in ready and self.lifeline is not None:
            orders = os.read(self.lifeline, 64)
            if not orders:
                self.lifeline = None
                self.ask_to_stop()
                self._kill_in(ORPHAN_GRACE_S)
            if b"T" in orders:
                self.ask_to_stop()
            if b"K" in orders:
                self._kill_in(0)


def main() -> None:
    lifeline, report = int(sys.argv[1]), int(sys.argv[2])
    adopt_orphans()
    guard = Guard(lifeline, sys.argv[3] == "keep", sys.argv[4:])
    os.write(report, str(guard.start()).encode())
    os.close(report)
    os._exit(guard.run())


if __name__ == "__main__":
    main()
