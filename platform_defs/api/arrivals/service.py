"""Table arrival as the API process runs it: one look for all who wait, reports afterwards, webhooks in a thread."""

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

from platform_defs.api.http.threads import off_loop
from platform_defs.api.system import Service
from platform_defs.arrivals.executions.recovery import settle_dead_executions
from platform_defs.arrivals.executions.task_log import Task, TaskStatus, ended_tasks, recovery_tasks
from platform_defs.arrivals.intake import Arrival, ArrivalOutcome, record_arrival
from platform_defs.arrivals.kinds_of_work import ARRIVAL_REPORT
from platform_defs.errors import PlatformError
from platform_defs.settings import Settings
from platform_defs.webhooks.sender import open_sender
from platform_defs.work import rows
from platform_defs.work.processes import hostname
from platform_defs.work.wake import wake

log = logging.getLogger(__name__)

WRITERS = 8
RECORD_TIMEOUT_S = 30.0
# How often those who wait look, all of them by one query.
LOOK_S = 0.02
LOOK_WHEN_LONG_S = 0.2
LONG_S = 5.0
# A task whose process died is closed by whoever looks first; the sensor looks too, but not as often.
SETTLE_EVERY_S = 1.0
# Arrivals within this time are reported to Dagster together.
REPORT_EVERY_S = 5.0
# Less urgent than anything somebody waits for.
REPORT_PRIORITY = 200


@dataclass
class _Waiter:
    future: asyncio.Future[Task | None]
    since: float


class ArrivalService(Service):
    """What POST /api/open/kpi/srcTableComplete needs; `close()` at the end."""

    def __init__(self, settings: Settings, engine: Engine, registry: CollectorRegistry) -> None:
        self._engine = engine
        self._home = settings.home
        self._writers = CapacityLimiter(WRITERS)
        self._waiting: dict[int, list[_Waiter]] = {}
        self._watcher: asyncio.Task[None] | None = None
        self._settled_at = 0.0
        self._closing = threading.Event()
        self._unreported = threading.Event()
        owner = f"{hostname()}:{os.getpid()}"
        self._sender = open_sender(settings, engine, owner=owner, registry=registry)
        self._threads = [
            threading.Thread(target=self._report, name="arrival-reports", daemon=True),
            threading.Thread(target=self._sender.run, args=[self._closing], name="webhooks", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    async def arrive(self, arrival: Arrival) -> ArrivalOutcome:
        """Recorded when it returns; TimeoutError where the database takes too long."""
        outcome = await off_loop(
            partial(record_arrival, self._engine, arrival), seconds=RECORD_TIMEOUT_S, limiter=self._writers
        )
        if outcome.queued:
            wake(self._home)
        return outcome

    async def ended(self, task_ids: Sequence[int], seconds: float) -> dict[int, Task]:
        """Those of the tasks that end in time; the others still run."""
        if not task_ids or seconds <= 0 or self._closing.is_set():
            return {}
        loop, now = asyncio.get_running_loop(), time.monotonic()
        futures = {task_id: loop.create_future() for task_id in task_ids}
        for task_id, future in futures.items():
            self._waiting.setdefault(task_id, []).append(_Waiter(future, now))
        if self._watcher is None or self._watcher.done():
            self._watcher = loop.create_task(self._watch())
        try:
            await asyncio.wait(futures.values(), timeout=seconds)
        finally:
            self._forget(list(futures.values()))
        found = {task_id: future.result() for task_id, future in futures.items() if future.done()}
        return {task_id: task for task_id, task in found.items() if task is not None}

    def report_soon(self) -> None:
        """An arrival was recorded: Dagster hears of it soon, together with others."""
        self._unreported.set()

    def stop_waiting(self) -> None:
        """The process drains: whoever waits is told that its models run."""
        self._closing.set()
        for waiters in self._waiting.values():
            for waiter in waiters:
                if not waiter.future.done():
                    waiter.future.set_result(None)

    def close(self) -> None:
        self._closing.set()
        self._unreported.set()
        for thread in self._threads:
            thread.join(timeout=5)
        self._sender.close()

    # -- waiting ----------------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        while self._waiting:
            try:
                found = await off_loop(self._look, seconds=RECORD_TIMEOUT_S, limiter=self._writers)
            except (PlatformError, SQLAlchemyError, TimeoutError):
                log.warning("the task log cannot be read; looking again", exc_info=True)
                found = {}
            for task_id, task in found.items():
                for waiter in self._waiting.pop(task_id, []):
                    if isinstance(task, int):
                        self._waiting.setdefault(task, []).append(waiter)
                    elif not waiter.future.done():
                        waiter.future.set_result(task)
            since = max((waiter.since for waiters in self._waiting.values() for waiter in waiters), default=0.0)
            await asyncio.sleep(LOOK_S if time.monotonic() - since < LONG_S else LOOK_WHEN_LONG_S)

    def _look(self) -> Mapping[int, Task | int]:
        """What became of those waited for: the task as it ended, or the one that makes it again."""
        if time.monotonic() - self._settled_at > SETTLE_EVERY_S:
            self._settled_at = time.monotonic()
            if settle_dead_executions(self._engine, datetime.now(UTC)).queued:
                wake(self._home)
        ended = ended_tasks(self._engine, list(self._waiting))
        failed = [task for task in ended.values() if task.status is TaskStatus.FAILED]
        return ended | recovery_tasks(self._engine, failed)

    def _forget(self, futures: Sequence[asyncio.Future[Task | None]]) -> None:
        forgotten = {id(future) for future in futures}
        for task_id, waiters in list(self._waiting.items()):
            left = [waiter for waiter in waiters if id(waiter.future) not in forgotten]
            if left:
                self._waiting[task_id] = left
            else:
                del self._waiting[task_id]

    # -- reporting --------------------------------------------------------------------------------------------------

    def _report(self) -> None:
        while not self._closing.is_set():
            self._unreported.wait()
            if self._closing.is_set():
                return
            self._unreported.clear()
            try:
                # one for all processes; what comes after it was executed is the sensor's, which looks as often
                interval = int(time.time() // REPORT_EVERY_S)
                key = f"{ARRIVAL_REPORT}:{interval}"
                rows.enqueue(self._engine, ARRIVAL_REPORT, {}, key=key, priority=REPORT_PRIORITY)
                wake(self._home)
            except (PlatformError, SQLAlchemyError):
                log.warning("arrivals wait for the sensor to be reported", exc_info=True)
            self._closing.wait(REPORT_EVERY_S)
