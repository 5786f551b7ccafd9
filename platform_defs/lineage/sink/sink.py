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
from platform_defs.lineage.sink.commit import Committer, Item, is_unavailable
from platform_defs.lineage.sink.limits import Breaker, Buckets
from platform_defs.lineage.sink.metrics import Measures
from platform_defs.lineage.sink.raw_events import Key
from platform_defs.store.errors import PacketTooLarge

log = logging.getLogger(__name__)

T = TypeVar("T")

# how long the sink waits for another group before it writes what it had postponed
IDLE_S = 0.05
# Parts of the deadline: a write that takes longer is slow, and a store that answers a ping later than this is away.
SLOW, PING = 1 / 2, 1 / 4
# between two pings of a store that is away
RETURN_S = 0.2
# An event that alone takes too long holds everybody up: the next try comes later, or the recovery was there before.
SLOW_PAUSE_S = 30.0
REMEMBERED_SLOW = 1000


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
TOO_SLOW = Answer(503, "unavailable", "a store takes too long for this event; send it again later")
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
        ping: Callable[[], None],
        breaker: Breaker | None = None,
    ) -> None:
        self._committer = committer
        self._limits = limits
        self._buckets = buckets
        self._measures = measures
        self._rebuild = rebuild
        self._ping = ping
        self._breaker = breaker or Breaker()
        self._queue: deque[Entry] = deque()
        self._held_events = 0
        self._held_bytes = 0
        self._bytes_outside = 0
        self._slow: dict[Key, float] = {}  # until when they are not tried again
        self._arrival = asyncio.Event()
        self._room = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="lineage-commit")
        self._rebuilders = ThreadPoolExecutor(1, thread_name_prefix="lineage-rebuild")
        self._pingers = ThreadPoolExecutor(1, thread_name_prefix="lineage-ping")
        self._pinging: asyncio.Future[bool] | None = None
        self._returning: asyncio.Task[None] | None = None
        self._rebuilding: set[asyncio.Task[None]] = set()
        measures.breaker_open.set_function(lambda: float(self._breaker.is_open))
        measures.queue_events.set_function(lambda: self._held_events)
        measures.queue_bytes.set_function(lambda: self._held_bytes)

    async def submit(self, items: Sequence[Item], *, until: float) -> list[Answer]:
        """One answer per event, in order, before the time `until` of the monotonic clock."""
        entries = await self._admit_all(items, until)
        waiting = {entry.answer for entry in entries if isinstance(entry, Entry)}
        if waiting:
            await asyncio.wait(waiting, timeout=max(0.0, until - time.monotonic()))
        answers = [self._collect(entry) if isinstance(entry, Entry) else entry for entry in entries]
        for item, answer in zip(items, answers, strict=True):
            self._measures.events.labels(str(item.tenant.id), outcome_of(answer)).inc()
        return answers

    def close(self) -> None:
        self._committer.close()
        self._threads.shutdown(wait=False)
        self._rebuilders.shutdown(wait=False)
        self._pingers.shutdown(wait=False)

    async def _admit_all(self, items: Sequence[Item], until: float) -> list[Entry | Answer]:
        """In waves: a request that has its first event in the queue may wait until there is room for the next ones."""
        entries: list[Entry | Answer] = []
        rest = sum(item.size for item in items)
        for item in items:
            entry = self._admit(item)
            while entry is QUEUE_FULL and self._may_wait(entries, rest) and await self._found_room(rest, until):
                entry = self._admit(item)
            entries.append(entry)
            rest -= item.size
        return entries

    def _may_wait(self, entries: Sequence[Entry | Answer], size: int) -> bool:
        """What waits outside of the queue is bounded as the queue is; one request alone may be larger."""
        if not any(isinstance(entry, Entry) for entry in entries) or entries[-1] is QUEUE_FULL:
            return False
        return not self._bytes_outside or self._bytes_outside + size <= self._limits.queue_bytes

    async def _found_room(self, size: int, until: float) -> bool:
        self._room.clear()
        self._bytes_outside += size
        try:
            async with asyncio.timeout(until - time.monotonic()):
                await self._room.wait()
        except TimeoutError:
            return False
        finally:
            self._bytes_outside -= size
        return True

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
        """The next group: as many as fit, without those whose request was answered meanwhile.

        An event that was slow before goes alone, when nothing else waits.
        """
        group: list[Entry] = []
        slow: list[Entry] = []
        size = 0
        while self._queue and len(group) < self._limits.group_events:
            entry = self._queue[0]
            if group and size + entry.item.size > self._limits.group_bytes:
                break
            self._queue.popleft()
            if entry.answer.cancelled():
                continue
            if time.monotonic() < self._slow.get(entry.item.key, 0.0):
                _tell([entry], TOO_SLOW)
            elif entry.item.key in self._slow:
                slow.append(entry)
            else:
                group.append(entry)
                size += entry.item.size
        if not group and slow:
            group.append(slow.pop(0))
        self._queue.extend(slow)
        return group

    async def _write(self, group: list[Entry]) -> None:
        """A group that fails for one of its events is split until that one is alone."""
        self._measures.group_events.observe(len(group))
        began = time.monotonic()
        try:
            committed = await self._in_thread(lambda: self._committer.commit([entry.item for entry in group]))
        except Exception as error:
            if is_unavailable(error) and await self._was_slow(began):
                log.warning("a store takes too long for a group of %d events", len(group), exc_info=error)
                await self._write_without_the_slow(group)
            elif is_unavailable(error):
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

    async def _was_slow(self, began: float) -> bool:
        """Whether a write failed for what was to be written: the stores took too long for it, but they are there."""
        slow = time.monotonic() - began >= self._limits.deadline_s * SLOW
        return slow and not self._breaker.is_open and await self._answers()

    async def _write_without_the_slow(self, group: list[Entry]) -> None:
        """What is large is what takes long: an event that may be the reason goes alone, after all that waits."""
        if len(group) == 1:
            self._remember_slow(group[0], time.monotonic() + SLOW_PAUSE_S)
            _tell(group, TOO_SLOW)
            return
        small, large = _halves(group)
        if len(large) == 1:
            self._remember_slow(large[0], 0.0)
            self._queue.extend(large)
            large = []
        for half in (small, large):
            if left := [entry for entry in half if not entry.answer.done()]:
                await self._write(left)

    def _remember_slow(self, entry: Entry, until: float) -> None:
        self._slow[entry.item.key] = until
        if len(self._slow) > REMEMBERED_SLOW:
            del self._slow[next(iter(self._slow))]

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
        """Work of the committer; if it hangs, new requests are refused at once until the stores answer again."""
        running = asyncio.get_running_loop().run_in_executor(self._threads, work)
        done, _ = await asyncio.wait({running}, timeout=self._limits.deadline_s * SLOW)
        hangs = not done and not await self._answers() and not running.done()
        if hangs:
            self._breaker.hang(True)
        try:
            result = await running
        except Exception:
            if hangs:
                self._returning = asyncio.create_task(self._wait_for_return())
            raise
        if hangs:
            self._breaker.hang(False)
        return result

    async def _wait_for_return(self) -> None:
        while not await self._answers():
            await asyncio.sleep(RETURN_S)
        self._breaker.hang(False)

    async def _answers(self) -> bool:
        """Whether both stores answer a ping; while one hangs, it says so without another."""
        if self._pinging is not None and not self._pinging.done():
            return False
        self._pinging = asyncio.get_running_loop().run_in_executor(self._pingers, self._pinged)
        done, _ = await asyncio.wait({self._pinging}, timeout=self._limits.deadline_s * PING)
        return bool(done) and self._pinging.result()

    def _pinged(self) -> bool:
        try:
            self._ping()
        except Exception:
            return False
        return True

    def _release(self, size: int) -> None:
        self._held_events -= 1
        self._held_bytes -= size
        self._room.set()


def _tell(entries: Sequence[Entry], answer: Answer) -> None:
    for entry in entries:
        if not entry.answer.done():
            entry.answer.set_result(answer)


def _halves(group: Sequence[Entry]) -> tuple[list[Entry], list[Entry]]:
    """The small ones, and the few large ones that are half of the bytes; both have some of two or more."""
    by_size = sorted(group, key=lambda entry: entry.item.size)
    total = sum(entry.item.size for entry in group)
    large: list[Entry] = []
    while 2 * sum(entry.item.size for entry in large) < total:
        large.append(by_size.pop())
    return by_size, large


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


def outcome_of(answer: Answer) -> str:
    if answer.accepted:
        return "accepted"
    if answer.retriable:
        return answer.status
    return "failed" if answer.code == 500 else "refused"
