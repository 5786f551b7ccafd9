"""Table arrival in the API process: records arrivals, waits for their tasks, has them reported, sends webhooks.

One query at a time looks up the tasks of all waiting requests. Reports to Dagster, webhooks and the end of left queries
have a thread each.
"""

import asyncio
import logging
import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from anyio import CapacityLimiter
from prometheus_client import CollectorRegistry
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from platform_defs.access.tenants import list_tenants
from platform_defs.api.http.threads import run_in_thread
from platform_defs.api.system import Service
from platform_defs.arrivals.executions.recovery import settle_dead_executions
from platform_defs.arrivals.executions.statements import end_left_statements
from platform_defs.arrivals.executions.task_log import Task, TaskStatus, ended_tasks, recovery_tasks
from platform_defs.arrivals.intake import Arrival, ArrivalOutcome, record_arrival
from platform_defs.arrivals.kinds_of_work import ARRIVAL_REPORT
from platform_defs.arrivals.notify.subscriptions import references_of_teams
from platform_defs.errors import PlatformError, one_line
from platform_defs.logs import SparseLog
from platform_defs.settings import Settings
from platform_defs.sources.named import Sources
from platform_defs.webhooks.environment_names import why_foreign
from platform_defs.webhooks.sender import open_sender
from platform_defs.work import rows
from platform_defs.work.processes import hostname
from platform_defs.work.wake import wake

log = logging.getLogger(__name__)

WRITERS = 8
RECORD_TIMEOUT_S = 30.0
# Pauses between two looks into the task log: short while a request has waited for less than LONG_S.
LOOK_S = 0.02
LOOK_WHEN_LONG_S = 0.2
LONG_S = 5.0
# Pause between two looks for dead executions. The sensor looks for them too, but less often.
SETTLE_EVERY_S = 1.0
# Arrivals of one such interval are reported to Dagster by one run.
REPORT_EVERY_S = 5.0
# How long the threads together may take to end. What one of them leaves, such as a query that hangs, others repeat.
THREADS_END_S = 3.0
# Less urgent than the default of 100: no request waits for a report.
REPORT_PRIORITY = 200


@dataclass
class _Waiter:
    """A request that waits for a task; the future's result is None if the task still runs when the process drains."""

    future: asyncio.Future[Task | None]
    since: float


class ArrivalService(Service):
    """The part of POST /api/open/kpi/srcTableComplete that outlives a request; to be closed with the process."""

    def __init__(self, settings: Settings, engine: Engine, registry: CollectorRegistry) -> None:
        self._engine = engine
        self._home = settings.home
        self._writers = CapacityLimiter(WRITERS)
        # task id -> the requests that wait for it
        self._waiters: dict[int, list[_Waiter]] = {}
        self._watcher: asyncio.Task[None] | None = None
        self._settled_at = 0.0
        self._failures = SparseLog(log)
        self._closing = threading.Event()
        self._unreported = threading.Event()
        self._left_statements = threading.Event()
        self._sources = Sources(engine, settings.sources)
        owner = f"{hostname()}:{os.getpid()}"
        self._sender = open_sender(settings, engine, owner=owner, registry=registry)
        self._threads = [
            threading.Thread(target=self._report, name="arrival-reports", daemon=True),
            threading.Thread(target=self._end_statements, name="left-statements", daemon=True),
            threading.Thread(target=self._sender.run, args=[self._closing], name="webhooks", daemon=True),
        ]
        self._log_foreign_references()
        for thread in self._threads:
            thread.start()

    def _log_foreign_references(self) -> None:
        """Names subscriptions that refer to a variable which their tenant may not refer to any more over HTTP."""
        try:
            codes = [tenant.code for tenant in list_tenants(self._engine)]
            references = references_of_teams(self._engine)
        except (PlatformError, SQLAlchemyError) as error:
            log.warning("the references of subscriptions could not be checked: %s", one_line(error))
            return
        for reference in references:
            if (reason := why_foreign(reference, codes)) is not None:
                log.warning("subscription %d sends a foreign variable: %s", reference.subscription_id, reason)

    async def record(self, arrival: Arrival) -> ArrivalOutcome:
        """Records an arrival and queues its models; raises TimeoutError if the database takes too long."""
        outcome = await run_in_thread(
            partial(record_arrival, self._engine, arrival), seconds=RECORD_TIMEOUT_S, limiter=self._writers
        )
        if outcome.queued:
            wake(self._home)
        return outcome

    async def wait_for_tasks(self, task_ids: Sequence[int], seconds: float) -> dict[int, Task]:
        """Waits until the tasks have ended, at most so long; returns those that have, by their ids."""
        if not task_ids or seconds <= 0 or self._closing.is_set():
            return {}
        loop, now = asyncio.get_running_loop(), time.monotonic()
        futures = {task_id: loop.create_future() for task_id in task_ids}
        for task_id, future in futures.items():
            self._waiters.setdefault(task_id, []).append(_Waiter(future, now))
        if self._watcher is None or self._watcher.done():
            self._watcher = loop.create_task(self._watch())
        try:
            await asyncio.wait(futures.values(), timeout=seconds)
        finally:
            self._remove_waiters(list(futures.values()))
        found = {task_id: future.result() for task_id, future in futures.items() if future.done()}
        return {task_id: task for task_id, task in found.items() if task is not None}

    def report_soon(self) -> None:
        """Has the recorded arrivals reported to Dagster within a few seconds."""
        self._unreported.set()

    def stop_waiting(self) -> None:
        """Ends all waits when the process drains: the waiting requests are answered that their models are RUNNING."""
        self._closing.set()
        for waiters in self._waiters.values():
            for waiter in waiters:
                if not waiter.future.done():
                    waiter.future.set_result(None)

    def close(self) -> None:
        self._closing.set()
        self._unreported.set()
        self._left_statements.set()
        give_up_at = time.monotonic() + THREADS_END_S
        for thread in self._threads:
            thread.join(timeout=max(0.0, give_up_at - time.monotonic()))
        self._sender.close()

    # -- waiting ----------------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Looks into the task log until no request waits any more."""
        while self._waiters:
            try:
                found = await run_in_thread(self._look_up_tasks, seconds=RECORD_TIMEOUT_S, limiter=self._writers)
            except (PlatformError, SQLAlchemyError, TimeoutError) as error:
                self._failures.write(logging.WARNING, f"the task log cannot be read; looking again: {one_line(error)}")
                found = {}
            for task_id, task in found.items():
                for waiter in self._waiters.pop(task_id, []):
                    if isinstance(task, int):
                        self._waiters.setdefault(task, []).append(waiter)
                    elif not waiter.future.done():
                        waiter.future.set_result(task)
            since = max((waiter.since for waiters in self._waiters.values() for waiter in waiters), default=0.0)
            await asyncio.sleep(LOOK_S if time.monotonic() - since < LONG_S else LOOK_WHEN_LONG_S)

    def _look_up_tasks(self) -> Mapping[int, Task | int]:
        """For each awaited task that has ended: the task, or the id of the task that executes its batch once more."""
        if time.monotonic() - self._settled_at > SETTLE_EVERY_S:
            self._settled_at = time.monotonic()
            settled = settle_dead_executions(self._engine, datetime.now(UTC))
            if settled.queued:
                wake(self._home)
            if settled.closed:
                self._left_statements.set()
        ended = ended_tasks(self._engine, list(self._waiters))
        failed = [task for task in ended.values() if task.status is TaskStatus.FAILED]
        return ended | recovery_tasks(self._engine, failed)

    def _remove_waiters(self, futures: Sequence[asyncio.Future[Task | None]]) -> None:
        removed = {id(future) for future in futures}
        for task_id, waiters in list(self._waiters.items()):
            left = [waiter for waiter in waiters if id(waiter.future) not in removed]
            if left:
                self._waiters[task_id] = left
            else:
                del self._waiters[task_id]

    def _end_statements(self) -> None:
        """Ends the queries of executions that this process closed. A thread of its own: the source may not answer."""
        while True:
            self._left_statements.wait()
            if self._closing.is_set():
                return
            self._left_statements.clear()
            try:
                end_left_statements(self._engine, self._sources, datetime.now(UTC))
            except (PlatformError, SQLAlchemyError) as error:
                log.warning("queries of closed executions are left to the sensor: %s", one_line(error))

    # -- reporting --------------------------------------------------------------------------------------------------

    def _report(self) -> None:
        """Queues a run that reports arrivals to Dagster, at most one per interval, whenever an arrival was recorded."""
        while not self._closing.is_set():
            self._unreported.wait()
            if self._closing.is_set():
                return
            self._unreported.clear()
            try:
                # The key makes it one row of work per interval for all API processes. An arrival that comes after that
                # run is reported by the sensor.
                interval = int(time.time() // REPORT_EVERY_S)
                key = f"{ARRIVAL_REPORT}:{interval}"
                rows.enqueue(self._engine, ARRIVAL_REPORT, {}, key=key, priority=REPORT_PRIORITY)
                wake(self._home)
            except (PlatformError, SQLAlchemyError) as error:
                log.warning("arrivals wait for the sensor to be reported: %s", one_line(error))
            self._closing.wait(REPORT_EVERY_S)
