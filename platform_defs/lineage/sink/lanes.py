"""Two lanes: a tenant that sends wide events is written in a lane of its own, so that the others do not wait for it.

The second lane also has the events that may hold up a group although they are small: drops of schemas and catalogs,
renames of tables, and suspects (suspects.py).

All events of a tenant are in the same lane at a time: two writes to one tenant's graph would only wait for each other.

Where only one transaction can write at a time, in a file of SQLite, there is one lane. Wide events then have groups of
their own, in turns with those of the others, who wait for one wide event or for a small group of them.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from platform_defs.lineage.facts import reaches_far
from platform_defs.lineage.sink.commit import Committer
from platform_defs.lineage.sink.fair_queue import Entry, FairQueue
from platform_defs.lineage.sink.suspects import says_any

# An event with more facts than this is wide. Of 306 real events the widest has 116. One that copies a table of 170
# columns has 518 and should not wait for one with 12,000. If a table of 330 columns (1,000 facts) gets one more, that
# takes 0.2 s, as long as forty narrow events; with 2,000 facts all others would wait for half a second.
WIDE_FACTS = 1000
# A group of wide events has no more facts than this, unless one event alone has. A larger one may take longer than a
# transaction may, and would be written again in parts; and in the only lane all others wait for it.
WIDE_GROUP_FACTS = 3 * WIDE_FACTS
# While others wait, the lane of wide events rests as long as it has worked, but no longer than this many seconds: its
# writes keep the processors and the stores busy, and its own requests have a deadline too.
MAX_PAUSE_S = 0.25
# In the only lane the others are written for as long as a group of wide events was, but no longer than this.
MAX_SHARE_S = 1.0


class Lane:
    """Queues, and the committer and the thread that write their groups one after the other.

    wide: wide events, and others of their tenants if the lane is theirs. suspects: events that may have held up a
    group. No group has events of two queues.
    """

    def __init__(self, committer: Committer, name: str) -> None:
        self.committer = committer
        self.queue = FairQueue()
        self.wide = FairQueue()
        self.suspects = FairQueue()
        self.queued = asyncio.Event()
        self.worker: asyncio.Task[None] | None = None
        self.thread = ThreadPoolExecutor(1, thread_name_prefix=name)

    @property
    def has_events(self) -> bool:
        return bool(self.queue or self.wide or self.suspects)

    def close(self) -> None:
        self.committer.close()
        self.thread.shutdown(wait=False)


class Lanes:
    """The lanes of a sink, one for each committer. If there are two, the second one is for tenants with wide events."""

    def __init__(self, committers: Sequence[Committer]) -> None:
        self.all = [Lane(committer, f"lineage-commit-{number}") for number, committer in enumerate(committers)]
        self._held: Counter[int] = Counter()
        self._in_second_lane: Counter[int] = Counter()

    def enter(self, entry: Entry, *, suspect: bool = False) -> Lane:
        """Puts the entry into a queue of its lane, where it counts until it is answered."""
        tenant = entry.event.tenant.id
        self._held[tenant] += 1
        entry.answer.add_done_callback(lambda _: _leave(self._held, tenant))
        if suspect:
            return self.set_apart(self.all[0], entry)
        wide = entry.event.facts > WIDE_FACTS or says_any(entry.event, reaches_far)
        if wide or self._in_second_lane[tenant]:
            return self._enter_wide(entry)
        self.all[0].queue.push(entry)
        return self.all[0]

    def set_apart(self, lane: Lane, entry: Entry) -> Lane:
        """Puts an entry that was in this lane among the suspects, which are in the second lane if there is one."""
        last = self.all[-1]
        last.suspects.push(entry)
        if lane is not last:
            self._count_until_answered(entry)
        return last

    def must_change(self, lane: Lane, entry: Entry) -> Lane | None:
        """The lane to which an entry that has waited must go, because its tenant has come into the other one since."""
        if lane is self.all[0] and self._in_second_lane[entry.event.tenant.id]:
            return self._enter_wide(entry)
        return None

    @contextmanager
    def writing(self, lane: Lane, tenants: Sequence[int]) -> Iterator[None]:
        """While the second lane writes for tenants they stay in it, also if all their requests have been answered."""
        noted = () if lane is self.all[0] else tenants
        self._in_second_lane.update(noted)
        try:
            yield
        finally:
            for tenant in noted:
                _leave(self._in_second_lane, tenant)

    def facts_of_group(self, queue: FairQueue, limit: int) -> int:
        """How many facts a group of this queue may have, where groups usually have up to `limit`."""
        return min(limit, WIDE_GROUP_FACTS) if queue is self.all[-1].wide else limit

    def others_wait(self) -> bool:
        """Whether events of tenants that belong to the first lane are waiting or being written."""
        return bool(self._held.keys() - self._in_second_lane.keys())

    def pause_after(self, lane: Lane, queue: FairQueue, worked_s: float) -> float:
        """How many seconds the lane gives way to the others, after it has written a group of this queue for so long."""
        if lane is not self.all[0]:
            return min(worked_s, MAX_PAUSE_S) if self.others_wait() else 0.0
        return min(worked_s, MAX_SHARE_S) if queue is not lane.queue and lane.queue else 0.0

    def close(self) -> None:
        for lane in self.all:
            lane.close()

    def _enter_wide(self, entry: Entry) -> Lane:
        last = self.all[-1]
        last.wide.push(entry)
        if last is not self.all[0]:
            self._count_until_answered(entry)
        return last

    def _count_until_answered(self, entry: Entry) -> None:
        tenant = entry.event.tenant.id
        self._in_second_lane[tenant] += 1
        entry.answer.add_done_callback(lambda _: _leave(self._in_second_lane, tenant))


def _leave(counts: Counter[int], tenant: int) -> None:
    counts[tenant] -= 1
    if not counts[tenant]:
        del counts[tenant]
