"""The runner: claims rows of work and has each executed in a process of its own.

It is one thread with one loop. The loop wakes up for a datagram of `work/wake.py`, for messages of its fork servers,
for the end of an adopted process, and every second by itself. Nothing is lost when the runner is killed: rows, leases
and pids are in the database.
"""

import logging
import selectors
import signal
import socket
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from dagster import DagsterInstance
from sqlalchemy import Engine

from platform_defs.arrivals.kinds_of_work import MODEL_RUN
from platform_defs.chains.runs.recovery import continue_runs
from platform_defs.errors import one_line
from platform_defs.ingest.kinds_of_work import INGEST_DRAIN
from platform_defs.logs import SparseLog
from platform_defs.runner import recovery
from platform_defs.runner.code_server import CodeServer, CodeServerReloads
from platform_defs.runner.definitions_loader import DefinitionsLoader
from platform_defs.runner.fingerprint import Fingerprint, read_fingerprint
from platform_defs.runner.fork_server import Exited, ForkServer, Gone, LoadFailed, Ready, Started
from platform_defs.runner.launched_runs import needed_versions
from platform_defs.runner.metrics import RunnerMetrics
from platform_defs.runner.run_processes import RunProcesses
from platform_defs.settings import Settings
from platform_defs.sources.named import source_of_resource
from platform_defs.work import leases, runners, wake
from platform_defs.work.each import trace_of
from platform_defs.work.processes import ProcessId
from platform_defs.work.rows import INGEST_RUN, LAUNCHED_RUNS, PRIORITY, Work

TICK_S = 1.0
INGEST_KINDS = frozenset({INGEST_RUN, INGEST_DRAIN})
# Executions that arrivals made due: they go first and have slots of their own. Less urgent rows of this kind do not.
ARRIVAL_KINDS = frozenset({MODEL_RUN})
DELETE_LOGS_EVERY_S = 3600
_log = logging.getLogger(__name__)


class Runner:
    """Executes rows of work on one machine, as many at a time as it has slots; `run` is its whole life."""

    def __init__(self, settings: Settings, engine: Engine, instance: DagsterInstance) -> None:
        self._engine = engine
        self._slots = settings.runner_slots
        self._settings = settings
        self._ingest_slots = settings.slots_of_ingest
        self._reserved_slots = settings.reserved_slots
        self._me = ProcessId.current()
        self._started_at = datetime.now(UTC)
        self._selector = selectors.DefaultSelector()
        self._metrics = RunnerMetrics()
        self._processes = RunProcesses(
            settings, engine, instance, self._selector, self._metrics, owner=self._me.full_name
        )
        self._loader = DefinitionsLoader(self._listen, self._stop_listening)
        self._reloads = CodeServerReloads(CodeServer(settings, engine))
        # The versions that the oldest waiting run of Dagster needs; while they are not loaded, no such run is claimed.
        self._awaited: Mapping[str, int] | None = None
        self._next_heartbeat = 0.0
        self._next_log_deletion = 0.0
        self._contact = recovery.Contact()
        self._failures = SparseLog(_log)
        self._has_recovered = False

    def run(self, listener: socket.socket) -> None:
        """Runs until SIGTERM or SIGINT; then ends its runs and returns."""
        woken, waker = socket.socketpair()
        for end in (woken, waker):
            end.setblocking(False)
        signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        self._selector.register(listener, selectors.EVENT_READ, lambda: wake.discard_wake_ups(listener))
        self._selector.register(woken, selectors.EVENT_READ, lambda: woken.recv(4096))
        try:
            while not self._has_stopped():
                self._guard(self._tick)
                for key, _ in self._selector.select(self._pause_s()):
                    self._guard(key.data)
        finally:
            self._leave(woken, waker)

    def _tick(self) -> None:
        """Does once all that does not wait for a message: closes, ends and starts runs, and sends the heartbeat."""
        processes = self._processes
        if not self._has_recovered:
            self._send_heartbeat()
            runners.delete_old_records(self._engine)
            recovery.recover_local_rows(processes)
            self._has_recovered = True
        steps = (
            processes.close_ended,
            lambda: self._loader.close_retired(processes.servers_in_use()),
            self._close_expired_rows,
            processes.terminate_requested,
            processes.kill_overdue,
            self._start_queued_rows,
            self._send_heartbeat_if_due,
            self._delete_old_logs_if_due,
        )
        # A stop is short: what the next runner can do as well, it does.
        last_steps = (processes.terminate_all, processes.kill_overdue, processes.close_ended)
        # Each step alone: one that fails at every tick must not keep the others from being done.
        for step in last_steps if processes.stopping else steps:
            self._guard(step)

    def _pause_s(self) -> float:
        if self._has_stopped():
            return 0.0
        kill_at = self._processes.next_kill_at()
        return TICK_S if kill_at is None else max(0.0, min(TICK_S, kill_at - time.monotonic()))

    def _guard(self, step: Callable[[], object]) -> None:
        """Keeps the runner alive while the database is away: its runs go on, and so must the runner."""
        try:
            step()
        except Exception as error:
            line = f"the runner could not do a step and goes on: {one_line(error)}"
            self._failures.write(logging.ERROR, line, exc_info=trace_of(error))

    def _stop(self, number: int, frame: object) -> None:
        self._processes.stop()

    def _has_stopped(self) -> bool:
        processes = self._processes
        return processes.stopping and (not len(processes) or processes.stopped_for(runners.LEAVE_AFTER_S))

    # -- definitions ------------------------------------------------------------------------------------------------

    def _load_present_definitions(self) -> Fingerprint:
        """Begins to load definitions that changed, in the background; returns the fingerprint of the present ones."""
        present = read_fingerprint(self._engine)
        self._loader.load(present, is_awaited=self._waits_for_definitions(present))
        return present

    def _waits_for_definitions(self, present: Fingerprint) -> bool:
        """Whether the oldest waiting run of Dagster needs newer definitions than those that are loaded."""
        return self._awaited is not None and not self._loader.may_execute(self._awaited, present)

    def _listen(self, server: ForkServer) -> None:
        self._selector.register(server.channel, selectors.EVENT_READ, lambda: self._handle_events(server))

    def _stop_listening(self, server: ForkServer) -> None:
        self._selector.unregister(server.channel)

    def _handle_events(self, server: ForkServer) -> None:
        for event in server.events():
            match event:
                case Ready(threads):
                    self._loader.install(server, threads)
                    self._loader.close_retired(self._processes.servers_in_use())
                case LoadFailed(reason):
                    self._loader.note_failure(server, reason)
                    self._next_heartbeat = 0.0  # The API shows the failure from the record of this runner.
                case Started(work_id, pid):
                    self._processes.note_start(work_id, pid)
                case Exited(pid, wait_status):
                    self._processes.note_exit(server, pid, wait_status)
                case Gone():
                    if self._loader.lose(server):
                        self._processes.note_lost_server(server)

    # -- rows of work -----------------------------------------------------------------------------------------------

    def _start_queued_rows(self) -> None:
        """Claims as many rows as there are free slots and starts those whose definitions are loaded."""
        present = self._load_present_definitions()
        self._guard(lambda: self._reloads.step(present.rows, time.monotonic()))
        while (free := self._slots - len(self._processes)) > 0 and self._loader.may_execute({}, present):
            claimed = self._claim(free, present)
            ready: list[Work] = []
            try:
                # Once more after the claim: the code may have changed before one of these rows was written.
                present = self._load_present_definitions() if claimed else present
                ready = [row for row in claimed if self._loader.may_execute(needed_versions(row), present)]
            finally:
                unready = [row for row in claimed if row not in ready]
                leases.give_back(self._engine, self._me.full_name, [row.id for row in unready])
            for row in ready:
                self._start(row)
            if not unready:
                return
            launched = [row for row in unready if row.kind in LAUNCHED_RUNS]
            if launched:
                self._awaited = needed_versions(launched[0])
                self._loader.load(present, is_awaited=True)

    def _claim(self, limit: int, present: Fingerprint) -> list[Work]:
        """Rows that need newer definitions must not block slots for the others, nor be claimed again and again.

        Runs of Dagster are claimed in the order of their launches, so that later ones need at least what the oldest
        needs. While that is not loaded none of them is claimed. Rows of other kinds need no versions.
        """
        unready = LAUNCHED_RUNS if self._waits_for_definitions(present) else frozenset()
        owner = self._me.full_name
        claimed: list[Work] = []

        def claim(count: int, **which: Any) -> None:
            if count > 0:
                claimed.extend(leases.claim(self._engine, owner, count, resource_limit=self._resource_limit, **which))

        try:
            # first, since somebody waits for the answer, and a backfill has thousands of runs
            claim(limit, only=ARRIVAL_KINDS, max_priority=PRIORITY)
            urgent = self._processes.count_of(ARRIVAL_KINDS, max_priority=PRIORITY) + len(claimed)
            limit -= max(0, self._reserved_slots - urgent)
            claim(limit - len(claimed), without=INGEST_KINDS | unready)
            # last, and never more than its share: a year's backfill must not keep everybody else from a slot
            share = self._ingest_slots - self._processes.count_of(INGEST_KINDS)
            claim(min(limit - len(claimed), share), only=INGEST_KINDS - unready)
        except Exception:
            leases.give_back(self._engine, owner, [row.id for row in claimed])
            raise
        return claimed

    def _resource_limit(self, resource: str) -> int:
        return self._settings.queries_of(source_of_resource(resource))

    def _start(self, row: Work) -> None:
        assert self._loader.current is not None, "definitions are loaded before a row is claimed"
        error = self._loader.load_error
        notice = f"The code on disk does not load, so this run executes the definitions before it: {error}"
        self._processes.start(row, self._loader.current, notice if error is not None else None)

    # -- the record of this runner ----------------------------------------------------------------------------------

    def _send_heartbeat_if_due(self) -> None:
        if time.monotonic() >= self._next_heartbeat:
            self._send_heartbeat()

    def _close_expired_rows(self) -> None:
        recovery.close_expired_rows(self._processes, of_other_machines=self._contact.outlasts_lease(time.monotonic()))

    def _delete_old_logs_if_due(self) -> None:
        if time.monotonic() >= self._next_log_deletion:
            self._next_log_deletion = time.monotonic() + DELETE_LOGS_EVERY_S
            self._processes.crash_logs.delete_old()

    def _send_heartbeat(self) -> None:
        self._next_heartbeat = time.monotonic() + runners.HEARTBEAT_S
        self._processes.renew_leases()
        self._processes.terminate_taken_away()
        self._guard(lambda: continue_runs(self._engine))
        busy, current = len(self._processes), self._loader.current
        self._metrics.record_slots(slots=self._slots, busy=busy)
        runners.record_heartbeat(
            self._engine,
            self._me,
            slots=self._slots,
            busy=busy,
            definitions=None if current is None else current.fingerprint.digest,
            load_error=self._loader.load_error,
            metrics=self._metrics.exposition(),
            started_at=self._started_at,
        )
        self._contact.note_heartbeat(time.monotonic())

    def _leave(self, *sockets: socket.socket) -> None:
        signal.set_wakeup_fd(-1)
        self._processes.leave()
        self._loader.close_all()
        for end in sockets:
            end.close()
        self._selector.close()
        self._guard(lambda: runners.record_stop(self._engine, self._me))
