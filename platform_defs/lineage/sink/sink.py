"""Group commit: events of many requests become one write; each request is answered when its own events are durable.

While one group is written the next group gathers, so a busy sink never waits on purpose: only the first event after a
pause lingers for a few milliseconds. Tenants take turns in a group, and one that sends wide events gets groups of its
own (lanes.py). Everything except the writes themselves happens on the event loop.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from platform_defs.errors import GraphError, one_line
from platform_defs.lineage.sink.answers import (
    ACCEPTED,
    QUEUE_FULL,
    RATE_LIMITED,
    TOO_LATE,
    TOO_SLOW,
    Answer,
    answer_for_error,
    outcome_label,
    store_down,
)
from platform_defs.lineage.sink.commit import Committer, is_store_unavailable
from platform_defs.lineage.sink.fair_queue import Entry, FairQueue
from platform_defs.lineage.sink.lanes import Lane, Lanes
from platform_defs.lineage.sink.limits import Limits, TokenBuckets
from platform_defs.lineage.sink.metrics import SinkMetrics
from platform_defs.lineage.sink.pace import Pace
from platform_defs.lineage.sink.pending import PreparedEvent
from platform_defs.lineage.sink.store_health import StoreHealth
from platform_defs.lineage.sink.suspects import Suspects, split_slow_group

log = logging.getLogger(__name__)

T = TypeVar("T")

# how long an idle sink waits for another group before it flushes the marks that the committer has postponed
IDLE_S = 0.05


class Sink:
    """Belongs to one event loop; each of its committers, one or two, works in a thread of its own."""

    def __init__(
        self,
        committers: Sequence[Committer],
        limits: Limits,
        buckets: TokenBuckets,
        metrics: SinkMetrics,
        *,
        health: StoreHealth,
        rebuild: Callable[[int], None],
        pace: Pace | None = None,
    ) -> None:
        self._lanes = Lanes(committers)
        if pace is not None:
            pace.others_wait = self._lanes.others_wait
        self._limits = limits
        self._buckets = buckets
        self._metrics = metrics
        self._rebuild = rebuild
        self._health = health
        self._suspects = Suspects()
        self._held_events = 0
        self._held_bytes = 0
        self._bytes_outside = 0
        self._room = asyncio.Event()
        self._rebuilders = ThreadPoolExecutor(1, thread_name_prefix="lineage-rebuild")
        self._rebuilding: set[asyncio.Task[None]] = set()
        metrics.breaker_open.set_function(lambda: float(health.is_away))
        metrics.queue_events.set_function(lambda: self._held_events)
        metrics.queue_bytes.set_function(lambda: self._held_bytes)

    async def submit(self, events: Sequence[PreparedEvent], *, until: float) -> list[Answer]:
        """One answer per event, in order, before the time `until` of the monotonic clock."""
        entries = await self._admit_all(events, until)
        waiting = {entry.answer for entry in entries if isinstance(entry, Entry)}
        if waiting:
            await asyncio.wait(waiting, timeout=max(0.0, until - time.monotonic()))
        answers = [self._collect(entry) if isinstance(entry, Entry) else entry for entry in entries]
        for event, answer in zip(events, answers, strict=True):
            self._metrics.events.labels(str(event.tenant.id), outcome_label(answer)).inc()
        return answers

    def close(self) -> None:
        self._lanes.close()
        self._rebuilders.shutdown(wait=False)
        self._health.close()

    async def _admit_all(self, events: Sequence[PreparedEvent], until: float) -> list[Entry | Answer]:
        """Puts the events into the queue; once the first one is in, the request may wait for room for the others."""
        entries: list[Entry | Answer] = []
        rest = sum(event.size for event in events)
        for event in events:
            entry = self._admit(event)
            while entry is QUEUE_FULL and self._may_wait(entries, rest) and await self._found_room(rest, until):
                entry = self._admit(event)
            entries.append(entry)
            rest -= event.size
        return entries

    def _may_wait(self, entries: Sequence[Entry | Answer], size: int) -> bool:
        """Bytes that wait outside of the queue are bounded like the queue itself; one request alone may exceed that."""
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

    def _admit(self, event: PreparedEvent) -> Entry | Answer:
        """Puts the event into the queue of its lane, or returns the answer that refuses it."""
        limits = self._limits
        if event.size > limits.group_bytes:
            return Answer(413, "payload_too_large", f"expected an event of at most {limits.group_bytes} bytes")
        if self._health.is_away:
            return self._health.refusal
        if self._suspects.is_paused(event.key):
            return TOO_SLOW
        if self._held_events >= limits.queue_events or self._held_bytes + event.size > max(
            limits.queue_bytes, event.size
        ):
            return QUEUE_FULL
        if not self._buckets.take(event.tenant.id):
            return RATE_LIMITED
        entry = Entry(event, asyncio.get_running_loop().create_future())
        self._held_events += 1
        self._held_bytes += event.size
        entry.answer.add_done_callback(lambda _: self._release(event.size))
        self._wake(self._lanes.enter(entry, suspect=self._suspects.most_together(event.key) is not None))
        return entry

    def _wake(self, lane: Lane) -> None:
        lane.queued.set()
        if lane.worker is None or lane.worker.done():
            lane.worker = asyncio.create_task(self._work(lane))

    def _collect(self, entry: Entry) -> Answer:
        if entry.answer.done():
            return entry.answer.result()
        # an event that still waits in the queue will be skipped; a write that has begun goes on to its end
        entry.answer.cancel()
        return TOO_LATE

    async def _work(self, lane: Lane) -> None:
        """Writes the groups of a lane, one after the other, until nothing has come for IDLE_S."""
        await asyncio.sleep(self._limits.linger_s)
        while True:
            while lane.has_events:
                # in turns, so that none waits for ever: each try of suspects writes them or halves their number
                for queue in (lane.queue, lane.wide, lane.suspects):
                    if group := self._next_group(lane, queue):
                        began = time.monotonic()
                        await self._write(lane, group)
                        await self._give_way(lane, self._lanes.pause_after(lane, queue, time.monotonic() - began))
            lane.queued.clear()
            try:
                async with asyncio.timeout(IDLE_S):
                    await lane.queued.wait()
            except TimeoutError:
                await self._flush(lane)
                if not lane.has_events:
                    return

    async def _give_way(self, lane: Lane, seconds: float) -> None:
        """For so long only the others are written, in the other lane or in this one if it is the only one."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            lane.queued.clear()
            if group := self._next_group(lane, lane.queue):
                await self._write(lane, group)
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await lane.queued.wait()

    def _next_group(self, lane: Lane, queue: FairQueue) -> list[Entry]:
        """The next events of the queue, as many as fit into a group. Events whose request was answered are skipped.

        A tenant whose next event does not fit is passed over and is the first one to have its turn in the next group.
        """
        group: list[Entry] = []
        size = facts = 0
        most_events, most_facts = self._limits.group_events, self._lanes.facts_of_group(queue, self._limits.group_facts)
        while len(group) < most_events and (entry := queue.first()) is not None:
            event = entry.event
            bound = self._suspects.most_together(event.key)
            fits = size + event.size <= self._limits.group_bytes and facts + event.facts <= most_facts
            if bound is not None and queue is lane.suspects:
                fits = fits and len(group) < bound
            if group and not fits:
                queue.pass_over()
                continue
            queue.pop()
            if self._suspects.is_paused(event.key):
                _answer_all([entry], TOO_SLOW)
            elif bound is not None and queue is not lane.suspects:
                self._wake(self._lanes.set_apart(lane, entry))
            else:
                group.append(entry)
                size += event.size
                facts += event.facts
                most_events = min(most_events, bound or most_events)
        queue.put_back()
        return [entry for entry in group if not self._changes_lane(lane, entry)]

    def _changes_lane(self, lane: Lane, entry: Entry) -> bool:
        other = self._lanes.must_change(lane, entry)
        if other is not None:
            self._wake(other)
        return other is not None

    async def _write(self, lane: Lane, group: list[Entry]) -> None:
        """Writes a group; one that a store refuses for a single event is split until that event is alone."""
        self._metrics.group_events.observe(len(group))
        began = time.monotonic()
        try:
            with self._lanes.writing(lane, [entry.event.tenant.id for entry in group]):
                committed = await self._in_thread(lane, lambda: lane.committer.commit([entry.event for entry in group]))
        except Exception as error:
            if is_store_unavailable(error) and await self._health.is_event_too_slow(began):
                log.warning("a store takes too long for a group of %d events", len(group), exc_info=error)
                await self._write_without_slow_events(
                    lane, group, error.tenant if isinstance(error, GraphError) else None
                )
            elif is_store_unavailable(error):
                self._health.note_failure(error)
                _answer_all(group, self._health.refusal)
            elif len(group) > 1:
                middle = len(group) // 2
                await self._write(lane, group[:middle])
                await self._write(lane, group[middle:])
            else:
                await self._refuse(lane, group[0], error)
            return
        self._health.note_success()
        self._suspects.clear(entry.event.key for entry in group)
        _answer_all([entry for entry in group if entry.event.key not in committed.waiting], ACCEPTED)
        for tenant_id in sorted(committed.rebuild):
            self._metrics.rebuilds.labels(str(tenant_id)).inc()
            entries = [entry for entry in group if entry.event.tenant.id == tenant_id]
            task = asyncio.create_task(self._rebuild_then_answer(tenant_id, entries))
            self._rebuilding.add(task)
            task.add_done_callback(self._rebuilding.discard)

    async def _write_without_slow_events(self, lane: Lane, group: list[Entry], tenant: int | None) -> None:
        """Splits a group that took too long. The suspects are set apart, and the others are written at once.

        tenant: whose transaction took so long, if that is known.

        What is suspected of an event holds also for the next request with it: this one may be answered already.
        """
        if len(group) == 1:
            self._suspects.pause(group[0].event.key)
            _answer_all(group, TOO_SLOW)
            return
        split = split_slow_group(group, tenant)
        self._suspects.suspect([entry.event.key for entry in split.suspects], len(split.suspects))
        for entry in split.suspects:
            if not entry.answer.done():
                self._wake(self._lanes.set_apart(lane, entry))
        answered = [entry.event.key for entry in split.others if entry.answer.done()]
        if answered and not split.has_reason:
            # the slow event may be one of these, which are not tried now
            self._suspects.suspect(answered, len(split.others))
        # Others of a tenant whose suspects are in the second lane now follow them: they would only wait for each other.
        others = [entry for entry in split.others if not entry.answer.done() and not self._changes_lane(lane, entry)]
        if others:
            await self._write(lane, others)

    async def _refuse(self, lane: Lane, entry: Entry, error: Exception) -> None:
        answer = answer_for_error(error)
        if answer.code == 500:
            log.error("an event could not be stored, for a reason nobody foresaw", exc_info=error)
        try:
            await self._in_thread(lane, lambda: lane.committer.withdraw(entry.event))
        except Exception:
            log.warning("a refused event could not be taken back; the recovery will", exc_info=True)
        _answer_all([entry], answer)

    async def _rebuild_then_answer(self, tenant_id: int, entries: list[Entry]) -> None:
        """Runs beside the next groups: only the events that made the rebuild necessary wait for it."""
        try:
            await asyncio.get_running_loop().run_in_executor(self._rebuilders, self._rebuild, tenant_id)
        except Exception:
            log.warning("the graph of tenant %d could not be rebuilt; the recovery will", tenant_id, exc_info=True)
            _answer_all(entries, store_down())
            return
        _answer_all(entries, ACCEPTED)

    async def _flush(self, lane: Lane) -> None:
        try:
            await self._in_thread(lane, lane.committer.flush)
        except Exception as error:
            # one line without a trace if the store is away: then this is said again and again
            reason, trace = (one_line(error), None) if is_store_unavailable(error) else ("a defect", error)
            message = "marks of applied events are late; the recovery will apply those events again: %s"
            log.warning(message, reason, exc_info=trace)

    async def _in_thread(self, lane: Lane, work: Callable[[], T]) -> T:
        return await self._health.watch(asyncio.get_running_loop().run_in_executor(lane.thread, work))

    def _release(self, size: int) -> None:
        self._held_events -= 1
        self._held_bytes -= size
        self._room.set()


def _answer_all(entries: Sequence[Entry], answer: Answer) -> None:
    for entry in entries:
        if not entry.answer.done():
            entry.answer.set_result(answer)
