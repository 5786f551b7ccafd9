"""An executor: works on leased tasks in threads, keeps their leases alive, and stops when nothing is left to do.

A run of a Dagster partition drains its own plan, `platform ingest execute` drains everything; any number of them may
work at the same time.
"""

import gc
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

from sqlalchemy import Engine, select
from sqlalchemy.exc import SQLAlchemyError

from platform_defs.errors import PlatformError, one_line
from platform_defs.ingest.codes import PlanStatus, TaskStatus
from platform_defs.ingest.errors import LeaseLost
from platform_defs.ingest.execution.task_ends import TaskEnds
from platform_defs.ingest.execution.task_run import TaskRun
from platform_defs.ingest.fetching.page_fetching import CompiledSnapshot
from platform_defs.ingest.fetching.source import Source
from platform_defs.ingest.planning.planner import plan_spec
from platform_defs.ingest.spec.model import Spec
from platform_defs.ingest.tasks.health import HealthWatch, lower_limit, read_limits
from platform_defs.ingest.tasks.leases import (
    HEARTBEAT,
    LeasedTask,
    cancelled_tasks,
    end_task,
    lease_tasks,
    renew_leases,
)
from platform_defs.ingest.tasks.picking import Partition
from platform_defs.ingest.tasks.waiting import next_open_task, queue_pending, waits_long
from platform_defs.store.engine import read, transact
from platform_defs.store.errors import StoreUnavailable
from platform_defs.store.tables.ingest import ing_plan

# How often an executor with free threads looks for tasks.
LOOK_S = 1.0
# How often it asks whether a partition with trouble has a lower limit for the moment (health.py).
LIMITS_S = 5.0
# How often one that serves and has nothing to do asks for slices without a task, which takes longer the more there are.
PENDING_S = 5.0
# How long it waits for a database that does not answer: its tasks are left to their leases meanwhile.
OUTAGE_S = 300.0
_log = logging.getLogger(__name__)

OpenSource = Callable[[Spec], Source]


def utc_now() -> datetime:
    return datetime.now(UTC)


def executor_name() -> str:
    """A name that no other executor ever has: the pid alone may be given to another process."""
    return f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:12]}"


class _Stop(threading.Event):
    """Tells the thread of one task to stop: with the whole round, or alone."""

    def __init__(self, parent: threading.Event) -> None:
        super().__init__()
        self._parent = parent

    def is_set(self) -> bool:
        """Whether to stop; a thread that waits hears of the parent when the executor next looks at its threads."""
        return super().is_set() or self._parent.is_set()


@dataclass(frozen=True)
class _Working:
    """A task that a thread works on, and what tells that thread to stop."""

    leased: LeasedTask
    stop: _Stop


@dataclass
class _Round:
    """One call of an executor: its threads, what they work on, and how they are told to stop."""

    pool: ThreadPoolExecutor
    plan_ids: Sequence[int] | None
    # set by the executor's own, or alone: after an error the threads of this round must stop, but `serve` goes on
    stop: _Stop
    running: dict[Future[TaskStatus | None], _Working] = field(default_factory=dict)
    ended: int = 0
    has_told_of_others: bool = False
    next_beat: float = field(default_factory=lambda: time.monotonic() + HEARTBEAT.total_seconds())
    next_look: float = field(default_factory=lambda: time.monotonic() + LOOK_S)

    @property
    def task_ids(self) -> list[int]:
        return [each.leased.task_id for each in self.running.values()]

    def begin(self, leased: LeasedTask, execute: Callable[[LeasedTask, threading.Event], TaskStatus | None]) -> None:
        stop = _Stop(self.stop)
        self.running[self.pool.submit(execute, leased, stop)] = _Working(leased, stop)

    def stop_all(self) -> None:
        """The threads hear of it at once, also those that wait, and give their tasks back."""
        self.stop.set()
        for working in self.running.values():
            working.stop.set()


@contextmanager
def rare_collections() -> Iterator[None]:
    """Lets the garbage collector look less often: a page makes thousands of objects, and none of them is a cycle.

    With Python's own thresholds it takes two thirds of the time in which a page is parsed.
    """
    before = gc.get_threshold()
    gc.set_threshold(20_000, 20, 20)
    try:
        yield
    finally:
        gc.set_threshold(*before)


@dataclass
class Executor:
    """Leases tasks and works on them in threads.

    `open_source` returns what requests of a spec are sent through. `on_end` is called for every task that ended or
    waits again (its status is then None), and `on_look` about once a second.
    """

    engine: Engine
    open_source: OpenSource
    threads: int = 4
    # tasks of one (source, endpoint, operation) that all executors work on at a time; None: as the Registry says
    per_partition: int | None = None
    clock: Callable[[], datetime] = utc_now
    on_end: Callable[[LeasedTask, TaskStatus | None], None] = lambda leased, status: None
    on_look: Callable[[], None] = lambda: None
    name: str = field(default_factory=executor_name)
    cancel: threading.Event = field(default_factory=threading.Event)
    # is told how long sources and the database take, and how often they fail
    watch: HealthWatch = field(default_factory=HealthWatch)
    _snapshots: dict[int, tuple[CompiledSnapshot, Source]] = field(default_factory=dict, init=False)
    _limits: Mapping[Partition, int] = field(default_factory=dict, init=False)
    _look_at_limits: float = field(default=0.0, init=False)
    _look_for_pending: float = field(default=0.0, init=False)

    def drain_plans(self, plan_ids: Sequence[int]) -> dict[int, PlanStatus]:
        """Works until the plans are over or nothing of them can go on soon; others may help. Returns how they stand."""
        self._work(plan_ids)
        return self._plan_states(plan_ids)

    def drain_everything(self) -> int:
        """Works until no task is due; returns how many tasks it ended."""
        return self._work(None)

    def serve(self) -> None:
        """Works on whatever is due until `cancel` is set; nothing that the database or a source does ends it."""
        while not self.cancel.is_set():
            try:
                self._work(None)
            except (PlatformError, SQLAlchemyError, OSError) as error:
                _log.error("the executor goes on after: %s", one_line(error))
            self.cancel.wait(LOOK_S)

    def _work(self, plan_ids: Sequence[int] | None) -> int:
        with rare_collections(), ThreadPoolExecutor(self.threads, thread_name_prefix="ingest") as pool:
            work = _Round(pool, plan_ids, _Stop(self.cancel))
            try:
                return self._loop(work)
            finally:
                work.stop_all()

    def _loop(self, work: _Round) -> int:
        """Works until the round is over; returns how many tasks ended.

        A database that does not answer is waited for, up to OUTAGE_S.
        """
        silent_since: float | None = None
        while True:
            try:
                if self._step(work):
                    return work.ended
                silent_since = None
            except StoreUnavailable as error:
                now = time.monotonic()
                if silent_since is None:
                    _log.warning("the executor waits up to %.0f s for its database: %s", OUTAGE_S, error)
                silent_since = silent_since or now
                if self.cancel.is_set() or now - silent_since > OUTAGE_S:
                    raise
                self.cancel.wait(LOOK_S)

    def _step(self, work: _Round) -> bool:
        """One look at the queue and at the threads; whether the round is over."""
        running = work.running
        self.on_look()
        if self.cancel.is_set():
            work.stop_all()
        else:
            for leased in self._lease(self.threads - len(running), work.plan_ids):
                work.begin(leased, self._execute)
        if not running and (self.cancel.is_set() or not self._wait_for_more(work)):
            return True
        done, _ = wait(running, timeout=LOOK_S, return_when=FIRST_COMPLETED)
        for future in done:
            leased = running.pop(future).leased
            work.ended += 1
            self.on_end(leased, future.result())
        self._do_less()
        if running and time.monotonic() >= work.next_look:
            self._stop_cancelled(work)
            work.next_look = time.monotonic() + LOOK_S
        if running and time.monotonic() >= work.next_beat:
            renew_leases(self.engine, self.name, work.task_ids, self.clock())
            work.next_beat = time.monotonic() + HEARTBEAT.total_seconds()
        return False

    def _stop_cancelled(self, work: _Round) -> None:
        """Stops what somebody cancelled: a page that waits for its source would tell of it only when it has come."""
        cancelled = cancelled_tasks(self.engine, work.task_ids)
        for working in work.running.values():
            if working.leased.task_id in cancelled:
                working.stop.set()

    def _lease(self, free: int, plan_ids: Sequence[int] | None) -> list[LeasedTask]:
        if free <= 0:
            return []
        return lease_tasks(
            self.engine,
            self.name,
            free,
            now=self.clock(),
            per_partition=self.per_partition,
            plan_ids=plan_ids,
            lowered=self._lowered(),
        )

    def _lowered(self) -> Mapping[Partition, int]:
        """How many slices of which partitions may run at a time for the moment, as all executors have found."""
        if time.monotonic() >= self._look_at_limits:
            limits = read_limits(self.engine, self.clock())
            self._limits = {partition: limit.max_concurrent for partition, limit in limits.items()}
            self._look_at_limits = time.monotonic() + LIMITS_S
        return self._limits

    def _do_less(self) -> None:
        """Lets fewer slices of partitions with trouble run from now on."""
        now = self.clock()
        for partition, (trouble, full) in self.watch.troubles(now).items():
            if limit := lower_limit(self.engine, partition, trouble, full=full, now=now):
                _log.warning("%s", limit)
                self._look_at_limits = 0.0

    def _wait_for_more(self, work: _Round) -> bool:
        """Whether something of the plans may soon become due: others work on it, it waits, or it has no task yet.

        What waits for an operator to unblock its endpoint is not waited for, nor what is due much later. Who works on
        everything takes only what is due, but also gives tasks to slices that had none.
        """
        if self._queue_pending(work):
            return True
        found = None if work.plan_ids is None else next_open_task(self.engine, work.plan_ids)
        if found is None or (found.lease_owner is None and waits_long(found.scheduled_at, self.clock())):
            return False
        if found.lease_owner is not None and not work.has_told_of_others:
            work.has_told_of_others = True
            told = "another executor works on task %d: waiting for it; if it is dead, its lease ends at %s UTC"
            _log.warning(told, found.task_id, f"{found.leased_until:%F %T}")
        if not self.cancel.is_set():
            self.cancel.wait(LOOK_S)
        return True

    def _queue_pending(self, work: _Round) -> bool:
        """Whether slices that had no task were given one; who serves and has nothing to do looks less often."""
        if work.plan_ids is None and not work.ended and time.monotonic() < self._look_for_pending:
            return False
        self._look_for_pending = time.monotonic() + PENDING_S
        return queue_pending(self.engine, work.plan_ids, self.clock()) > 0

    def _execute(self, leased: LeasedTask, stop: threading.Event) -> TaskStatus | None:
        try:
            snapshot, source = self._snapshot(leased.plan_id)
            ends = TaskEnds(self.engine, snapshot, leased, self.clock, self.watch)
            return TaskRun(self.engine, source, snapshot, leased, self.clock, stop, ends).execute()
        except (StoreUnavailable, LeaseLost) as error:
            # nothing can be written now: the lease runs out, and the task is tried again
            _log.error("task %d is left to its lease: %s", leased.task_id, error)
            return None
        except Exception as error:
            # a fault of ours, or a record that a store cannot hold: it fails here, where everybody sees it
            _log.exception("task %d failed", leased.task_id)
            return self._fail(leased, one_line(error))

    def _fail(self, leased: LeasedTask, reason: str) -> TaskStatus | None:
        now = self.clock()
        try:
            transact(
                self.engine,
                lambda connection: end_task(
                    connection, leased, TaskStatus.FAILED, now=now, stats={}, error_code="INTERNAL", error=reason
                ),
            )
        except (PlatformError, SQLAlchemyError) as error:
            _log.error("task %d is left to its lease: %s", leased.task_id, one_line(error))
            return None
        return TaskStatus.FAILED

    def _snapshot(self, plan_id: int) -> tuple[CompiledSnapshot, Source]:
        if plan_id not in self._snapshots:
            query = select(ing_plan).where(ing_plan.c.id == plan_id)
            spec = plan_spec(read(self.engine, lambda connection: connection.execute(query).one()))
            self._snapshots[plan_id] = (CompiledSnapshot.of(spec), self.open_source(spec))
        return self._snapshots[plan_id]

    def _plan_states(self, plan_ids: Sequence[int]) -> dict[int, PlanStatus]:
        query = select(ing_plan.c.id, ing_plan.c.status_code).where(ing_plan.c.id.in_(plan_ids))
        rows = read(self.engine, lambda connection: connection.execute(query).all())
        return {row.id: PlanStatus(row.status_code) for row in rows}
