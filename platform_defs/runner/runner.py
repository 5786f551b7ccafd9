"""The runner: claims rows of work, forks a child for each, and is honest about those that die.

One thread, one loop: it wakes for a datagram, for what a fork server says, for an adopted process that ends, and every
second by itself. Nothing it knows is lost with it: rows, leases and pids are in the database.
"""

import contextlib
import logging
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from dagster import DagsterInstance
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from platform_defs.errors import PlatformError, one_line
from platform_defs.logs import mask
from platform_defs.runner.closing import close
from platform_defs.runner.code_server import CodeServer, Reloads
from platform_defs.runner.fingerprint import Fingerprint, fingerprint
from platform_defs.runner.fork_server import Exited, ForkServer, Gone, LoadFailed, Ready, Started, describe_exit
from platform_defs.runner.metrics import Measures
from platform_defs.settings import Settings
from platform_defs.work import leases, rows, runners, wake
from platform_defs.work.processes import ProcessId
from platform_defs.work.rows import DAGSTER_RUN, Work

TICK_S = 1.0
TAKEN_AWAY_S = 5.0
FIRST_LOAD_S = 5.0
RELOAD_S = 60.0
KEEP_LOGS_S = 7 * 86_400
CLEANING_S = 3600
# An adopted process is no descendant of the runner: should the runner be killed as well, nobody else would end it.
ADOPTED_GRACE_S = 1.0
_log = logging.getLogger(__name__)


@dataclass
class Running:
    """A row whose process we answer for."""

    work: Work
    server: ForkServer | None = None
    pid: int | None = None
    process: ProcessId | None = None
    ended: str | None = None  # how its process ended; the row is closed in the next step, and again until that works
    lost_at: float | None = None
    watched: int | None = None  # a pidfd: how we hear of the end of a process that is not our fork server's child
    kill_at: float | None = None


class Runner:
    def __init__(self, settings: Settings, engine: Engine, instance: DagsterInstance) -> None:
        self._settings = settings
        self._engine = engine
        self._instance = instance
        self._me = ProcessId.current()
        self._name = self._me.full_name
        self._running: dict[int, Running] = {}
        self._current: ForkServer | None = None
        self._loading: ForkServer | None = None
        self._retired: list[ForkServer] = []
        self._load_error: str | None = None
        self._failed_fingerprint: Fingerprint | None = None
        self._load_again_at = 0.0
        self._selector = selectors.DefaultSelector()
        self._stopping = False
        self._started_at = datetime.now(UTC)
        self._measures = Measures()
        self._next_beat = 0.0
        self._next_cleaning = 0.0
        self._recovered = False
        self._log_folder = settings.home / "runs"
        self._reloads = Reloads(CodeServer(settings, engine))

    # -- the loop ---------------------------------------------------------------------------------------------------

    def run(self, listener: socket.socket) -> None:
        """Until SIGTERM or SIGINT; then ends its runs and leaves."""
        woken, waker = socket.socketpair()
        for end in (woken, waker):
            end.setblocking(False)
        signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        self._selector.register(listener, selectors.EVENT_READ, lambda: wake.discard_wake_ups(listener))
        self._selector.register(woken, selectors.EVENT_READ, lambda: _drain(woken))
        try:
            while not (self._stopping and not self._running):
                self._guarded(self._tick)
                for key, _ in self._selector.select(self._pause()):
                    self._guarded(key.data)
        finally:
            self._leave(woken, waker)

    def _tick(self) -> None:
        if not self._recovered:
            self._recover()
            self._recovered = True
        self._settle_ended()
        wanted = self._refresh()
        self._reloads.step(wanted.rows, time.monotonic())
        self._close_lost()
        self._end_requested()
        self._kill_overdue()
        if self._stopping:
            self._end_all()
        else:
            self._start_more(wanted)
        if time.monotonic() >= self._next_beat:
            self._beat()
        if time.monotonic() >= self._next_cleaning:
            self._next_cleaning = time.monotonic() + CLEANING_S
            self._remove_old_logs()

    def _pause(self) -> float:
        deadlines = [item.kill_at for item in self._running.values() if item.kill_at is not None]
        return max(0.0, min([TICK_S, *(at - time.monotonic() for at in deadlines)]))

    def _guarded(self, step: Callable[[], object]) -> None:
        """A database that is away for a while must not end the runner: its children go on, and so does it."""
        try:
            step()
        except (PlatformError, SQLAlchemyError, OSError) as error:
            _log.error("the runner could not do a step and goes on: %s", one_line(error))

    def _stop(self, number: int, frame: object) -> None:
        self._stopping = True  # acted upon in the next step: a signal may come in the middle of a statement

    # -- definitions ------------------------------------------------------------------------------------------------

    def _refresh(self) -> Fingerprint:
        """Loads what is on disk and in rows, in the background, unless it is loaded, loading, or known not to load."""
        wanted = fingerprint(self._engine)
        known = {self._current.fingerprint} if self._current else set()
        if self._stopping or self._loading is not None or wanted in known:
            return wanted  # a load that has begun is not given up: a run may have been launched with what it loads
        # what does not load is tried again now and then: a database that was away may have been the reason
        if wanted == self._failed_fingerprint and time.monotonic() < self._load_again_at:
            return wanted
        self._loading = server = ForkServer(wanted, dict(os.environ))
        self._selector.register(server.channel, selectors.EVENT_READ, lambda: self._hear(server))
        return wanted

    def _has_code(self, wanted: Fingerprint) -> bool:
        """Whether the fork server may execute rows of our own kinds, whose jobs are in the code alone."""
        failed = self._failed_fingerprint
        return self._current is not None and (
            self._current.fingerprint.code == wanted.code or (failed is not None and failed.code == wanted.code)
        )

    def _has_all(self, wanted: Fingerprint) -> bool:
        """Whether it may execute what Dagster launched: it has the newest definitions, or the newest do not load."""
        return self._current is not None and wanted in (self._current.fingerprint, self._failed_fingerprint)

    def _hear(self, server: ForkServer) -> None:
        for event in server.events():
            match event:
                case Ready(threads):
                    self._install(server, threads)
                case LoadFailed(reason):
                    self._refuse(server, reason)
                case Started(work_id, pid):
                    self._note_start(work_id, pid)
                case Exited(pid, wait_status):
                    self._note_exit(server, pid, wait_status)
                case Gone():
                    self._lose(server)

    def _install(self, server: ForkServer, threads: int) -> None:
        old, self._current, self._loading = self._current, server, None
        self._load_error = self._failed_fingerprint = None
        _log.info("definitions %s are loaded in fork server %d", server.fingerprint.digest[:12], server.pid)
        if threads > 1:
            _log.warning("loading the definitions started %d threads: a fork copies none of them", threads - 1)
        if old is not None:
            self._retired.append(old)
            self._drop_idle_retired()

    def _refuse(self, server: ForkServer, reason: str) -> None:
        reason = mask(reason)
        if reason != self._load_error:
            _log.error("the code location does not load: %s", reason)
        self._load_error, self._failed_fingerprint = reason, server.fingerprint
        self._load_again_at = time.monotonic() + (RELOAD_S if self._current else FIRST_LOAD_S)
        self._next_beat = 0.0

    def _lose(self, server: ForkServer) -> None:
        """The fork server's process is gone: its children live on, and we watch them ourselves."""
        orphans = [item for item in self._running.values() if item.server is server]
        if server is self._current:
            _log.error("fork server %d is gone; another one starts", server.pid)
            self._current = None
        elif server is self._loading:
            self._loading = None  # killed or failed; the next step looks again
        elif server in self._retired:
            self._retired.remove(server)
        else:
            return  # dropped a moment ago, while this was on its way
        self._drop(server)
        for item in orphans:
            item.server = None
            if item.process is not None:
                self._watch(item)
            else:
                item.ended = "its fork server was killed before it started"

    def _drop(self, server: ForkServer) -> None:
        self._selector.unregister(server.channel)
        server.close()

    def _drop_idle_retired(self) -> None:
        busy = {id(item.server) for item in self._running.values()}
        for server in [server for server in self._retired if id(server) not in busy]:
            self._retired.remove(server)
            self._drop(server)

    # -- rows of work -----------------------------------------------------------------------------------------------

    def _start_more(self, wanted: Fingerprint) -> None:
        free = self._settings.runner_slots - len(self._running)
        if free <= 0 or self._current is None:
            return
        # rows that wait for the definitions must not keep those from a slot that do not
        without = None if self._has_all(wanted) else DAGSTER_RUN
        claimed = leases.claim(self._engine, self._name, free, without=without)
        if not claimed:
            return
        ready: list[Work] = []
        try:
            # after the claim: a row that was written after a reload must not meet the definitions from before it
            wanted = self._refresh()
            has_code, has_all = self._has_code(wanted), self._has_all(wanted)
            ready = [row for row in claimed if (has_all if row.kind == DAGSTER_RUN else has_code)]
        finally:
            leases.give_back(self._engine, self._name, [row.id for row in claimed if row not in ready])
        for row in ready:
            self._running[row.id] = Running(row, server=self._current)
            # a fork server that was killed takes no order; its end is heard next and gives the row back
            with contextlib.suppress(OSError):
                self._current.order(row, self._name, self._log_of(row), self._notice())

    def _notice(self) -> str | None:
        if self._load_error is None:
            return None
        return f"The code on disk does not load, so this run executes the definitions before it: {self._load_error}"

    def _note_start(self, work_id: int, pid: int) -> None:
        item = self._running[work_id]
        item.pid, item.process = pid, ProcessId.of(pid)
        self._measures.started(datetime.now(UTC) - item.work.created_at)

    def _note_exit(self, server: ForkServer, pid: int, wait_status: int) -> None:
        for item in self._running.values():
            if item.server is server and item.pid == pid:
                item.ended = describe_exit(pid, wait_status)

    def _settle_ended(self) -> None:
        for item in [item for item in self._running.values() if item.ended is not None]:
            self._settle(item, str(item.ended))
        self._drop_idle_retired()

    def _settle(self, item: Running, reason: str) -> None:
        """The process has ended: whatever it left open is closed here, with the reason."""
        row = rows.get(self._engine, item.work.id)
        if item.pid is None and item.process is None and row.process is None:
            leases.give_back(self._engine, self._name, [row.id])  # it never started
            self._forget(item)
            return
        if not row.status.is_final and row.lease_owner != self._name:
            self._forget(item)  # it waits again, or another runner has it and answers for it
            return
        if not row.status.is_final:
            canceled = row.cancel_requested or self._stopping
            if self._stopping and not row.cancel_requested:
                reason = f"the runner was stopped: {reason}"
            elif not canceled:
                reason = f"{reason}{self._last_words(item.work)}"
            close(self._instance, self._engine, row, reason, canceled=canceled)
            row = rows.get(self._engine, item.work.id)
            _log.warning("run %s of work %d: %s", row.run_id, row.id, reason)
        self._measures.finished(row.status)
        self._forget(item)

    def _forget(self, item: Running) -> None:
        del self._running[item.work.id]
        if item.watched is not None:
            self._selector.unregister(item.watched)
            os.close(item.watched)

    def _log_of(self, row: Work) -> Path:
        return self._log_folder / f"{row.run_id}.log"

    def _last_words(self, row: Work) -> str:
        """What a child wrote when it crashed; nothing that a step printed is in that file."""
        try:
            lines = self._log_of(row).read_text(encoding="utf-8", errors="replace").strip().splitlines()
        except OSError:
            return ""
        return f"; its last words: {mask(lines[-1])[:500]}" if lines else ""

    def _remove_old_logs(self) -> None:
        oldest = time.time() - KEEP_LOGS_S
        for log in self._log_folder.glob("*.log"):
            if log.stat().st_mtime < oldest:
                log.unlink(missing_ok=True)

    # -- ending -----------------------------------------------------------------------------------------------------

    def _end_requested(self) -> None:
        if self._running:
            for work_id in leases.ids_to_cancel(self._engine, self._name):
                if work_id in self._running:
                    self._terminate(self._running[work_id])

    def _end_all(self) -> None:
        for item in [item for item in self._running.values() if item.kill_at is None and item.process is not None]:
            try:
                self._announce(item.work, "The runner was stopped, and ends its runs.")
            finally:
                self._terminate(item)

    def _announce(self, row: Work, reason: str) -> None:
        """The run is canceling before its process is told to end: else Dagster would call it an unexplained failure."""
        run = self._instance.get_run_by_id(row.run_id)
        if run is not None and not run.is_finished:
            self._instance.report_run_canceling(run, message=reason)

    def _terminate(self, item: Running) -> None:
        if item.kill_at is None and item.process is not None:
            item.process.signal_group(signal.SIGTERM)
            item.kill_at = time.monotonic() + self._grace(item)

    def _grace(self, item: Running) -> float:
        if not self._stopping:
            return self._settings.runner_grace_s
        return min(self._settings.runner_grace_s, runners.STOP_GRACE_S if item.server else ADOPTED_GRACE_S)

    def _kill_overdue(self) -> None:
        for item in self._running.values():
            if item.kill_at is not None and time.monotonic() >= item.kill_at and item.process is not None:
                item.process.signal_group(signal.SIGKILL)
                item.kill_at = time.monotonic() + 1.0

    def _end_taken_away(self) -> None:
        """A row that another runner closed, because our lease ran out, has a process that must not go on here."""
        mine = leases.owned_ids(self._engine, self._name)
        for item in self._running.values():
            if item.work.id in mine or item.ended is not None:
                item.lost_at = None
            elif item.lost_at is None:
                item.lost_at = time.monotonic()  # or its process has just closed it and is about to end
            elif time.monotonic() - item.lost_at > TAKEN_AWAY_S:
                self._terminate(item)

    # -- what others left behind ------------------------------------------------------------------------------------

    def _recover(self) -> None:
        """Rows of a runner of this machine that is gone: closed if their process is, else watched or ended."""
        self._beat()
        runners.delete_old_records(self._engine)
        for row in leases.running_rows(self._engine):
            runner = row.local_runner
            if runner is None or runner.is_alive():
                continue
            if row.process is None:
                leases.give_back(self._engine, str(row.lease_owner), [row.id])
            elif not row.process.is_alive():
                reason = f"process {row.process.pid} ended while its runner was away"
                close(self._instance, self._engine, row, f"{reason}{self._last_words(row)}")
            else:
                self._adopt(row, row.process)

    def _adopt(self, row: Work, process: ProcessId) -> None:
        leases.adopt(self._engine, str(row.lease_owner), self._name, [row.id])
        item = self._running[row.id] = Running(row, pid=process.pid, process=process)
        self._watch(item)
        if self._settings.runner_orphans == "end":
            self._announce(row, "Its runner was killed, and the next one ends what that left.")
            rows.request_cancel(self._engine, row.run_id)

    def _watch(self, item: Running) -> None:
        assert item.process is not None, "only a started process is watched"

        def note_end() -> None:
            item.ended = f"process {item.pid} ended unobserved"

        try:
            item.watched = os.pidfd_open(item.process.pid)
        except ProcessLookupError:
            note_end()
            return
        self._selector.register(item.watched, selectors.EVENT_READ, note_end)
        if not item.process.is_alive():  # the pid was given away before we opened it
            note_end()

    def _close_lost(self) -> None:
        """Leases that ran out elsewhere: their runner is gone or cut off, and nobody else will say so."""
        for row in [row for row in leases.rows_with_expired_lease(self._engine) if row.id not in self._running]:
            if row.process is None:
                leases.give_back(self._engine, str(row.lease_owner), [row.id])  # claimed, but never started
            elif row.is_alive_here:
                # while its runner lives, that renews the lease as soon as the database lets it
                if row.local_runner is not None and not row.local_runner.is_alive():
                    self._adopt(row, row.process)
            else:
                close(self._instance, self._engine, row, f"the lease of runner {row.lease_owner} ran out")

    # -- being seen -------------------------------------------------------------------------------------------------

    def _beat(self) -> None:
        self._next_beat = time.monotonic() + runners.HEARTBEAT_S
        leases.renew(self._engine, self._name, list(self._running))
        self._end_taken_away()
        self._measures.observe(slots=self._settings.runner_slots, busy=len(self._running))
        runners.record_heartbeat(
            self._engine,
            self._me,
            slots=self._settings.runner_slots,
            busy=len(self._running),
            definitions=self._current.fingerprint.digest if self._current else None,
            load_error=self._load_error,
            metrics=self._measures.text(),
            started_at=self._started_at,
        )

    def _leave(self, *sockets: socket.socket) -> None:
        signal.set_wakeup_fd(-1)
        for server in [self._current, self._loading, *self._retired]:
            if server is not None:
                self._drop(server)
        for end in sockets:
            end.close()
        self._selector.close()
        self._guarded(lambda: runners.record_stop(self._engine, self._me))


def _drain(end: socket.socket) -> None:
    end.recv(4096)
