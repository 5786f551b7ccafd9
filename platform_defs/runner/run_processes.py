"""The processes that execute runs for this runner: starts, watches and ends them, and closes what they leave open."""

import contextlib
import logging
import os
import selectors
import signal
import time
from collections.abc import Collection, Set
from dataclasses import dataclass
from datetime import UTC, datetime

from dagster import DagsterInstance
from sqlalchemy import Engine

from platform_defs.logs import SparseLog
from platform_defs.runner.closing import close_run_and_row
from platform_defs.runner.crash_logs import CrashLogs
from platform_defs.runner.fork_server import ForkServer, describe_exit
from platform_defs.runner.metrics import RunnerMetrics
from platform_defs.settings import Settings
from platform_defs.work import leases, rows, runners
from platform_defs.work.each import for_each
from platform_defs.work.processes import ProcessId
from platform_defs.work.rows import EndedBy, Work

# A process whose row is no longer ours may have just closed it: it gets this long to end by itself.
TAKEN_AWAY_S = 5.0
# An adopted process is no descendant of the runner: should the runner be killed as well, nobody else would end it.
ADOPTED_GRACE_S = 1.0
KILL_AGAIN_S = 1.0
# How long a runner that stops tells Dagster of the runs that it ends, before it ends the others unannounced.
ANNOUNCE_S = 1.0
_log = logging.getLogger(__name__)


@dataclass
class RunProcess:
    """A claimed row of work and the process that executes its run."""

    work: Work
    # None for an adopted process, and once the fork server is gone: then a pidfd tells of the end of the process.
    server: ForkServer | None = None
    # None until the fork server says that it has forked the process.
    pid: int | None = None
    process: ProcessId | None = None
    # How the process ended. The row is closed in the next step, and in every later one until that succeeds.
    ended: str | None = None
    # Since when the row is no longer ours, by the monotonic clock.
    lost_at: float | None = None
    pidfd: int | None = None
    # When the process is killed because it did not end by itself, by the monotonic clock.
    kill_at: float | None = None


class RunProcesses:
    """`owner` is the name under which this runner holds its leases."""

    def __init__(
        self,
        settings: Settings,
        engine: Engine,
        instance: DagsterInstance,
        selector: selectors.BaseSelector,
        metrics: RunnerMetrics,
        owner: str,
    ) -> None:
        self.engine = engine
        self.instance = instance
        self.crash_logs = CrashLogs(settings.home / "runs")
        # When the runner was told to stop, by the monotonic clock: then all runs are ended, and their rows say so.
        self._stop_began: float | None = None
        self._noted_stop = False
        self._settings = settings
        self._selector = selector
        self._metrics = metrics
        self._owner = owner
        self._failures = SparseLog(_log)
        self._by_work_id: dict[int, RunProcess] = {}

    def __len__(self) -> int:
        return len(self._by_work_id)

    def __contains__(self, work_id: int) -> bool:
        return work_id in self._by_work_id

    def stop(self) -> None:
        """Only notes the time: a signal, whose handler calls this, may come in the middle of a statement."""
        self._stop_began = self._stop_began or time.monotonic()

    @property
    def stopping(self) -> bool:
        return self._stop_began is not None

    def stopped_for(self, seconds: float) -> bool:
        """Whether the runner was told to stop at least this many seconds ago."""
        return self._stop_began is not None and time.monotonic() - self._stop_began >= seconds

    def count_of(self, kinds: Collection[str], *, max_priority: int | None = None) -> int:
        """How many runs of these kinds of work have a slot, perhaps only those that are at least so urgent."""
        running = [item.work for item in self._by_work_id.values() if item.work.kind in kinds]
        return sum(max_priority is None or row.priority <= max_priority for row in running)

    def servers_in_use(self) -> Set[ForkServer]:
        return {item.server for item in self._by_work_id.values() if item.server is not None}

    def next_kill_at(self) -> float | None:
        return min((item.kill_at for item in self._by_work_id.values() if item.kill_at is not None), default=None)

    # -- starting ---------------------------------------------------------------------------------------------------

    def start(self, row: Work, server: ForkServer, notice: str | None) -> None:
        """`notice` is written into the event log of the run."""
        if row.id in self._by_work_id:
            # Its run gave its slot back and is due again before that process, which ends by itself, has ended.
            self.forget(row.id)
        self._by_work_id[row.id] = RunProcess(row, server=server)
        # A fork server that was killed takes no order. Its end is heard next, and then the row is given back.
        with contextlib.suppress(OSError):
            server.order(row, self._owner, self.crash_logs.path_of(row.run_id), notice)

    def note_start(self, work_id: int, pid: int) -> None:
        item = self._by_work_id[work_id]
        item.pid, item.process = pid, ProcessId.of(pid)
        self._metrics.record_start(datetime.now(UTC) - item.work.created_at)

    def adopt(self, row: Work, process: ProcessId) -> None:
        """Answers from now on for a living process whose own runner is gone, unless another runner already does."""
        if not leases.adopt(self.engine, str(row.lease_owner), self._owner, row.id):
            return
        item = self._by_work_id[row.id] = RunProcess(row, pid=process.pid, process=process)
        self._watch(item)
        if self._settings.runner_orphans == "end":
            self._report_canceling(row, "Its runner was killed, and the next one ends what that left.")
            rows.request_cancel(self.engine, row.run_id, EndedBy.RESTART)

    def renew_leases(self) -> None:
        leases.renew(self.engine, self._owner, list(self._by_work_id))

    # -- ended processes --------------------------------------------------------------------------------------------

    def note_exit(self, server: ForkServer, pid: int, wait_status: int) -> None:
        for item in self._by_work_id.values():
            if item.server is server and item.pid == pid:
                item.ended = describe_exit(pid, wait_status)

    def note_lost_server(self, server: ForkServer) -> None:
        """The fork server is gone; the processes that it forked live on and are watched from here."""
        for item in [item for item in self._by_work_id.values() if item.server is server]:
            item.server = None
            if item.process is not None:
                self._watch(item)
            else:
                item.ended = "its fork server was killed before it started"

    def close_ended(self) -> None:
        """Closes the rows of processes that have ended. One that cannot be closed now is tried in the next step."""

        def close(item: RunProcess) -> None:
            if not self.stopped_for(runners.LEAVE_AFTER_S):
                self._close(item, str(item.ended))

        for_each(
            [item for item in self._by_work_id.values() if item.ended is not None],
            close,
            lambda item: f"row of work {item.work.id} cannot be closed after its process ended",
            self._failures,
        )

    def _close(self, item: RunProcess, reason: str) -> None:
        """Closes what the ended process left open. On an error the item stays, and the next step tries again."""
        row = rows.get(self.engine, item.work.id)
        if item.process is not None:
            item.process.end_left_group()
        if item.pid is None and item.process is None and row.process is None:
            leases.give_back(self.engine, self._owner, [row.id])  # The process was never started.
            self.forget(item.work.id)
            return
        if not row.status.is_final and row.lease_owner != self._owner:
            self.forget(item.work.id)  # The row is queued again, or another runner has it and answers for it.
            return
        if not row.status.is_final:
            canceled = row.cancel_requested or self.stopping
            if self.stopping and not row.cancel_requested:
                reason = f"the runner was stopped: {reason}"
            elif not canceled:
                reason = f"{reason}{self.crash_logs.quote(row.run_id)}"
            by = EndedBy.OPERATOR if row.cancel_requested else EndedBy.RESTART if self.stopping else EndedBy.DEATH
            close_run_and_row(self.instance, self.engine, row, reason, by=by, canceled=canceled)
            row = rows.get(self.engine, item.work.id)
            _log.warning("run %s of work %d: %s", row.run_id, row.id, reason)
        self._metrics.record_finish(row.status)
        self.forget(item.work.id)

    def forget(self, work_id: int) -> None:
        item = self._by_work_id.pop(work_id)
        if item.pidfd is not None:
            self._selector.unregister(item.pidfd)
            os.close(item.pidfd)

    def _watch(self, item: RunProcess) -> None:
        """Hears of the end of a process that is no child of a fork server of ours."""
        assert item.process is not None, "only a started process is watched"

        def note_end() -> None:
            item.ended = f"process {item.pid} ended unobserved"

        try:
            item.pidfd = os.pidfd_open(item.process.pid)
        except ProcessLookupError:
            note_end()
            return
        self._selector.register(item.pidfd, selectors.EVENT_READ, note_end)
        if not item.process.is_alive():  # The pid was given to another process before we opened it.
            note_end()

    # -- ending processes -------------------------------------------------------------------------------------------

    def terminate_requested(self) -> None:
        """Ends the processes of rows that somebody asked to cancel."""
        if self._by_work_id:
            for work_id in leases.ids_to_cancel(self.engine, self._owner):
                if work_id in self._by_work_id:
                    self._terminate(self._by_work_id[work_id])

    def terminate_all(self) -> None:
        """Ends all runs because the runner stops; a little later, however slow the database is, without a word."""
        if not self._noted_stop and not self.stopped_for(ANNOUNCE_S):
            # First and at once for all: whoever closes a row, now or after the next start, then knows who ended it.
            leases.note_end(self.engine, self._owner, EndedBy.RESTART)
            self._noted_stop = True

        def end(item: RunProcess) -> None:
            try:
                if not self.stopped_for(ANNOUNCE_S):
                    self._report_canceling(item.work, "The runner was stopped, and ends its runs.")
            finally:
                self._terminate(item)

        for_each(
            [item for item in self._by_work_id.values() if item.kill_at is None and item.process is not None],
            end,
            lambda item: f"the run of work {item.work.id} was not told that the runner stops",
            self._failures,
        )

    def leave(self) -> None:
        """Kills what is left when the runner ends. Its rows stay as they are, and the next runner closes them."""
        for item in self._by_work_id.values():
            if item.process is not None and item.ended is None:
                item.process.signal_group(signal.SIGKILL)
        if self._by_work_id:
            left = ", ".join(str(work_id) for work_id in sorted(self._by_work_id))
            _log.warning("rows of work %s are closed by the next runner: the database is too slow for a stop", left)

    def terminate_taken_away(self) -> None:
        """Ends processes whose row another runner closed after our lease had run out: they must not go on here."""
        owned = leases.owned_ids(self.engine, self._owner)
        for item in self._by_work_id.values():
            if item.work.id in owned or item.ended is not None:
                item.lost_at = None
            elif item.lost_at is None:
                item.lost_at = time.monotonic()
            elif time.monotonic() - item.lost_at > TAKEN_AWAY_S:
                self._terminate(item)

    def kill_overdue(self) -> None:
        for item in self._by_work_id.values():
            if item.kill_at is not None and time.monotonic() >= item.kill_at and item.process is not None:
                item.process.signal_group(signal.SIGKILL)
                item.kill_at = time.monotonic() + KILL_AGAIN_S

    def _report_canceling(self, row: Work, reason: str) -> None:
        """Must come before the signal: Dagster would report the end of the process as a failure without a cause."""
        run = self.instance.get_run_by_id(row.run_id)
        if run is not None and not run.is_finished:
            self.instance.report_run_canceling(run, message=reason)

    def _terminate(self, item: RunProcess) -> None:
        if item.kill_at is None and item.process is not None:
            item.process.signal_group(signal.SIGTERM)
            item.kill_at = time.monotonic() + self._grace_s(item)

    def _grace_s(self, item: RunProcess) -> float:
        if not self.stopping:
            return self._settings.runner_grace_s
        stopped_for = time.monotonic() - (self._stop_began or 0.0)
        grace = runners.STOP_GRACE_S - stopped_for if item.server else ADOPTED_GRACE_S
        return min(self._settings.runner_grace_s, max(0.0, grace))
