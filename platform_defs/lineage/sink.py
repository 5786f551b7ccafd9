"""Group commit: events of many requests become one write; each request is answered when its own are durable.

While one group is written the next one gathers, so a busy sink needs no waiting: only the first event after a pause
lingers for a few milliseconds. Everything but the writing itself happens on the event loop.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from sqlalchemy.exc import DataError, IntegrityError

from platform_defs.graph.errors import GraphConflict, InvalidGraphValue
from platform_defs.lineage.commit import Committer, Item, is_unavailable
from platform_defs.lineage.limits import Breaker, Buckets
from platform_defs.lineage.measures import Measures
from platform_defs.store.errors import PacketTooLarge

log = logging.getLogger(__name__)

T = TypeVar("T")

# how long the sink waits for another group before it writes what it had postponed
IDLE_S = 0.05


@dataclass(frozen=True, slots=True)
class Limits:
    group_events: int
    group_bytes: int
    linger_s: float
    deadline_s: float
    queue_events: int
    queue_bytes: int


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of one event, as the wire says it."""

    code: int
    status: str
    message: str = ""
    poison: bool = False  # refused by a store for what it is: belongs to the dead letters

    @property
    def accepted(self) -> bool:
        return self.code == 201

    @property
    def retriable(self) -> bool:
        return self.code == 503


ACCEPTED = Answer(201, "accepted")
RATE_LIMITED = Answer(503, "rate_limited", "this tenant sends more events than it may; send again later")
QUEUE_FULL = Answer(503, "unavailable", "too many events wait already; send again later")
STORE_DOWN = Answer(503, "unavailable", "a store does not answer; send again later")
TOO_LATE = Answer(503, "unavailable", "the event could not be stored in time; send it again")


@dataclass(eq=False, slots=True)
class Entry:
    item: Item
    answer: asyncio.Future[Answer]


class Sink:
    """Belongs to one event loop; its committer works in one thread."""

    def __init__(
        self,
        committer: Committer,
        limits: Limits,
        buckets: Buckets,
        measures: Measures,
        *,
        rebuild: Callable[[int], None],
        breaker: Breaker | None = None,
    ) -> None:
        self._committer = committer
        self._limits = limits
        self._buckets = buckets
        self._measures = measures
        self._rebuild = rebuild
        self._breaker = breaker or Breaker()
        self._queue: deque[Entry] = deque()
        self._held_events = 0
        self._held_bytes = 0
        self._arrival = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="lineage-commit")
        self._rebuilders = ThreadPoolExecutor(1, thread_name_prefix="lineage-rebuild")
        self._rebuilding: set[asyncio.Task[None]] = set()
        measures.breaker_open.set_function(lambda: float(self._breaker.is_open))
        measures.queue_events.set_function(lambda: self._held_events)
        measures.queue_bytes.set_function(lambda: self._held_bytes)

    async def submit(self, items: Sequence[Item], *, until: float) -> list[Answer]:
        """One answer per event, in order, before the time `until` of the monotonic clock."""
        entries = [self._admit(item) for item in items]
        waiting = {entry.answer for entry in entries if isinstance(entry, Entry)}
        if waiting:
            await asyncio.wait(waiting, timeout=max(0.0, until - time.monotonic()))
        answers = [self._collect(entry) if isinstance(entry, Entry) else entry for entry in entries]
        for item, answer in zip(items, answers, strict=True):
            self._measures.events.labels(str(item.tenant.id), _outcome(answer)).inc()
        return answers

    def close(self) -> None:
        self._committer.close()
        self._threads.shutdown(wait=False)
        self._rebuilders.shutdown(wait=False)

    def _admit(self, item: Item) -> Entry | Answer:
        limits = self._limits
        if item.size > limits.group_bytes:
            return Answer(413, "payload_too_large", f"expected an event of at most {limits.group_bytes} bytes")
        if self._breaker.is_open:
            return STORE_DOWN
        if self._held_events >= limits.queue_events or self._held_bytes + item.size > max(
            limits.queue_bytes, item.size
        ):
            return QUEUE_FULL
        if not self._buckets.take(item.tenant.id):
            return RATE_LIMITED
        entry = Entry(item, asyncio.get_running_loop().create_future())
        self._held_events += 1
        self._held_bytes += item.size
        entry.answer.add_done_callback(lambda _: self._release(item.size))
        self._queue.append(entry)
        self._arrival.set()
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        return entry

    def _collect(self, entry: Entry) -> Answer:
        if entry.answer.done():
            return entry.answer.result()
        entry.answer.cancel()  # what has not begun is not begun any more; what has, ends by itself
        return TOO_LATE

    async def _work(self) -> None:
        await asyncio.sleep(self._limits.linger_s)
        while True:
            while self._queue:
                if group := self._take():
                    await self._write(group)
            self._arrival.clear()
            try:
                async with asyncio.timeout(IDLE_S):
                    await self._arrival.wait()
            except TimeoutError:
                await self._flush()
                if not self._queue:
                    return

    def _take(self) -> list[Entry]:
        """The next group: as many as fit, without those whose request was answered meanwhile."""
        group: list[Entry] = []
        size = 0
        while self._queue and len(group) < self._limits.group_events:
            entry = self._queue[0]
            if group and size + entry.item.size > self._limits.group_bytes:
                break
            self._queue.popleft()
            if not entry.answer.cancelled():
                group.append(entry)
                size += entry.item.size
        return group

    async def _write(self, group: list[Entry]) -> None:
        """A group that fails for one of its events is split until that one is alone."""
        self._measures.group_events.observe(len(group))
        try:
            committed = await self._in_thread(lambda: self._committer.commit([entry.item for entry in group]))
        except Exception as error:
            if is_unavailable(error):
                log.warning("a store does not take a group of %d events", len(group), exc_info=error)
                self._breaker.trip()
                _tell(group, STORE_DOWN)
            elif len(group) > 1:
                middle = len(group) // 2
                await self._write(group[:middle])
                await self._write(group[middle:])
            else:
                await self._refuse(group[0], error)
            return
        self._breaker.close()
        _tell([entry for entry in group if entry.item.tenant.id not in committed.rebuild], ACCEPTED)
        for tenant_id in sorted(committed.rebuild):
            mine = [entry for entry in group if entry.item.tenant.id == tenant_id]
            task = asyncio.create_task(self._rebuild_then_answer(tenant_id, mine))
            self._rebuilding.add(task)
            task.add_done_callback(self._rebuilding.discard)

    async def _refuse(self, entry: Entry, error: Exception) -> None:
        answer = _refusal(error)
        if answer.code == 500:
            log.error("an event could not be stored, for a reason nobody foresaw", exc_info=error)
        try:
            await self._in_thread(lambda: self._committer.withdraw(entry.item))
        except Exception:
            log.warning("a refused event could not be taken back; the recovery will", exc_info=True)
        _tell([entry], answer)

    async def _rebuild_then_answer(self, tenant_id: int, entries: list[Entry]) -> None:
        """Beside the next groups: only those events wait that made it necessary."""
        try:
            await asyncio.get_running_loop().run_in_executor(self._rebuilders, self._rebuild, tenant_id)
        except Exception:
            log.warning("the graph of tenant %d could not be rebuilt; the recovery will", tenant_id, exc_info=True)
            _tell(entries, STORE_DOWN)
            return
        _tell(entries, ACCEPTED)

    async def _flush(self) -> None:
        try:
            await self._in_thread(self._committer.flush)
        except Exception:
            log.warning("marks of applied events are late; the recovery will apply those events again", exc_info=True)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Work of the committer; while it takes too long, new requests are refused at once."""
        running = asyncio.get_running_loop().run_in_executor(self._threads, work)
        # half of it: what comes after that could not be written in time either
        done, _ = await asyncio.wait({running}, timeout=self._limits.deadline_s / 2)
        if not done:
            self._breaker.hang(True)
        try:
            return await running
        finally:
            self._breaker.hang(False)

    def _release(self, size: int) -> None:
        self._held_events -= 1
        self._held_bytes -= size


def _tell(entries: Sequence[Entry], answer: Answer) -> None:
    for entry in entries:
        if not entry.answer.done():
            entry.answer.set_result(answer)


def _refusal(error: Exception) -> Answer:
    """What is said of an event that a store refuses on its own."""
    if isinstance(error, PacketTooLarge):
        return Answer(413, "payload_too_large", "expected an event that fits one statement of the database")
    if isinstance(error, InvalidGraphValue):
        return Answer(400, "bad_request", str(error), poison=True)
    if isinstance(error, GraphConflict):
        return Answer(400, "bad_request", "tenantCode: expected a code that no other tenant has", poison=True)
    if isinstance(error, DataError | IntegrityError):
        return Answer(400, "bad_request", "event: expected values that the database can hold", poison=True)
    return Answer(500, "internal_error", "the event could not be stored; the log has more", poison=True)


def _outcome(answer: Answer) -> str:
    if answer.accepted:
        return "accepted"
    if answer.retriable:
        return answer.status
    return "failed" if answer.code == 500 else "refused"
