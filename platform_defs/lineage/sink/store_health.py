"""Health of the two stores: tells a store that is away from an event that alone takes too long.

While a store is away new requests are refused, and only pings ask whether it is back. An event that alone takes too
long, on stores that still answer a ping, is set apart instead: it must not make all other requests fail.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from platform_defs.errors import GraphError, one_line
from platform_defs.graph.errors import GraphUnavailable
from platform_defs.lineage.sink import own_writes
from platform_defs.lineage.sink.answers import WARMING_UP, Answer, store_down
from platform_defs.lineage.sink.limits import Clock
from platform_defs.lineage.sink.rows.raw_events import EventKey
from platform_defs.store import engine

log = logging.getLogger(__name__)

T = TypeVar("T")

DATABASE, GRAPH = "the database", "the graph"
# Both are shares of the request's deadline: a write that takes longer than SLOW_SHARE is slow, and a store that needs
# longer than PING_SHARE to answer a ping counts as away.
SLOW_SHARE, PING_SHARE = 1 / 2, 1 / 4
# After a failed write events are refused for so long, even if the store answers a ping: its disk may be full.
PAUSE_S = 1.0
# seconds between two pings of a store that is away, and between two lines of the log that say so
PING_AGAIN_S = 0.2
LOGGED_EVERY_S = 30.0
# How long a request waits for the return of a store that is away. Without that, clients that send again at once would
# keep this process so busy with refusals that a store which is back is not warmed up for minutes.
HOLD_S = 1.0
LOOK_S = 0.05
# More requests than this do not wait, but are refused at once.
MAX_HELD = 1000
# An event that is too slow even alone is not tried again for this long. With Neo4j the recovery, which has more time,
# may bring it into the graph before that.
SLOW_PAUSE_S = 30.0
MAX_SLOW_EVENTS = 1000


def is_refusal(error: BaseException) -> bool:
    """Whether a store that is away for events answers, but lets the platform do nothing."""
    return (isinstance(error, GraphError) and not isinstance(error, GraphUnavailable)) or engine.is_refusal(error)


class StoreHealth:
    """Knows whether a store is away: from a write that fails or hangs until both stores answer a ping.

    Belongs to one event loop. is_warm: False while a graph that was away is not yet fast enough to take events.
    """

    def __init__(
        self, pings: Mapping[str, Callable[[], None]], deadline_s: float, is_warm: Callable[[], bool] = lambda: True
    ) -> None:
        self._stores = {name: _Store(ping) for name, ping in pings.items()}
        self._deadline_s = deadline_s
        self._is_warm = is_warm
        self._away: frozenset[str] = frozenset()
        # of the stores that are away, those that answer, but with a refusal
        self._refusing: frozenset[str] = frozenset()
        # for each write that hangs, the stores that answered no ping
        self._hanging: list[frozenset[str]] = []
        self._held = 0
        self._waiting_for_answers: asyncio.Task[None] | None = None
        self._waiting_for_return: asyncio.Task[None] | None = None

    @property
    def is_away(self) -> bool:
        return bool(self._away or self._hanging) or not self._is_warm()

    @property
    def holds(self) -> bool:
        """Whether a request waits now: a store is away, and there is room for one more."""
        return self.is_away and self._held < MAX_HELD

    @property
    def refusal(self) -> Answer:
        """Says what is away."""
        silent = self._away.union(*self._hanging)
        return store_down(sorted(silent), self._refusing) if silent or self._is_warm() else WARMING_UP

    def close(self) -> None:
        for store in self._stores.values():
            store.close()

    def note_failure(self, error: Exception) -> None:
        """To be called when a write failed because a store is away: no event is taken until both stores answer."""
        failed = {GRAPH if isinstance(error, GraphError) else DATABASE}
        self._away |= failed
        self._refusing = self._refusing | failed if is_refusal(error) else self._refusing - failed
        if self._waiting_for_answers is None or self._waiting_for_answers.done():
            log.warning("%s: events are refused until it is back: %s", self._troubles(self._away), one_line(error))
            self._waiting_for_answers = asyncio.create_task(self._wait_for_answers(PAUSE_S))

    def note_success(self) -> None:
        """To be called when a write succeeded: both stores answer, unless the graph was lost during that write."""
        if self._away and self._is_warm() and self._waiting_for_answers is not None:
            self._waiting_for_answers.cancel()
            self._away = frozenset()

    async def wait_for_return(self, until: float) -> bool:
        """Whether events are taken. While a store is away the caller waits for a moment, at most until that time."""
        if not self.is_away:
            return True
        if not self._is_warm():
            self._find_out_what_is_away()
        if not self.holds:
            return False
        if self._waiting_for_return is None or self._waiting_for_return.done():
            self._waiting_for_return = asyncio.create_task(self._look_for_return())
        self._held += 1
        try:
            await asyncio.wait({self._waiting_for_return}, timeout=max(0.0, min(HOLD_S, until - time.monotonic())))
        finally:
            self._held -= 1
        return not self.is_away

    async def watch(self, write: asyncio.Future[T]) -> T:
        """The result of a write. While it hangs on a store that answers no ping, no event is taken."""
        done, _ = await asyncio.wait({write}, timeout=self._deadline_s * SLOW_SHARE)
        silent = frozenset() if done else await self._find_silent()
        if not silent or write.done():
            return await write
        self._hanging.append(silent)
        try:
            return await write
        except Exception as error:
            self.note_failure(error)
            raise
        finally:
            self._hanging.remove(silent)

    async def is_event_too_slow(self, began: float) -> bool:
        """Whether the write that began then failed because its events take long, not because a store is away."""
        slow = time.monotonic() - began >= self._deadline_s * SLOW_SHARE
        return slow and not self.is_away and not await self._find_silent()

    def _find_out_what_is_away(self) -> None:
        """For a graph that was lost while nobody wrote to it: a ping tells whether it is back, and being warmed up."""
        if self._waiting_for_answers is None or self._waiting_for_answers.done():
            log.warning("the graph was lost: events are refused until it is back and warm")
            self._waiting_for_answers = asyncio.create_task(self._wait_for_answers(pause_s=0.0))

    async def _wait_for_answers(self, pause_s: float) -> None:
        """Also looks on while the graph is not warm: a server that is being stopped may still answer a ping."""
        began = logged_at = time.monotonic()
        await asyncio.sleep(pause_s)
        while (silent := await self._find_silent()) or not self._is_warm():
            self._away = silent
            if silent and time.monotonic() - logged_at >= LOGGED_EVERY_S:
                logged_at = time.monotonic()
                log.warning("%s for %.0f s: events are refused", self._troubles(silent), logged_at - began)
            await asyncio.sleep(PING_AGAIN_S)
        self._away = frozenset()
        log.info("the stores answer again after %.0f s", time.monotonic() - began)

    async def _look_for_return(self) -> None:
        while self.is_away:
            await asyncio.sleep(LOOK_S)

    async def _find_silent(self) -> frozenset[str]:
        """The stores that do not answer a ping in time."""
        stores = self._stores.items()
        waits_for_us = own_writes.is_under_way()
        answers = await asyncio.gather(*(store.answers(self._deadline_s * PING_SHARE) for _, store in stores))
        silent = frozenset(name for (name, _), answer in zip(stores, answers, strict=True) if not answer)
        self._refusing = self._refusing - silent | {name for name in silent if self._stores[name].refuses}
        if (waits_for_us or own_writes.is_under_way()) and DATABASE not in self._refusing:
            silent -= {DATABASE}
        return silent

    def _troubles(self, stores: Iterable[str]) -> str:
        """For the log."""
        return store_down(sorted(stores), self._refusing).message.partition(";")[0]


class _Store:
    """Is pinged by a thread of its own, because a store that hangs keeps the thread."""

    def __init__(self, ping: Callable[[], None]) -> None:
        self._ping = ping
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="lineage-ping")
        self._under_way: asyncio.Future[bool] | None = None
        # whether the last ping was answered with a refusal
        self.refuses = False

    def close(self) -> None:
        self._thread.shutdown(wait=False)

    async def answers(self, seconds: float) -> bool:
        """While an earlier ping is under way, no other one is sent."""
        if self._under_way is None or self._under_way.done():
            self.refuses = False
            self._under_way = asyncio.get_running_loop().run_in_executor(self._thread, self._ping_succeeds)
        done, _ = await asyncio.wait({self._under_way}, timeout=seconds)
        return bool(done) and self._under_way.result()

    def _ping_succeeds(self) -> bool:
        try:
            self._ping()
        except Exception as error:
            self.refuses = is_refusal(error)
            return False
        return True


class SlowEvents:
    """Events that held up their group: suspects are written alone; one that was too slow alone is paused."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._paused_until: dict[EventKey, float] = {}  # 0 for a suspect that was not yet tried alone

    def suspect(self, key: EventKey) -> None:
        self._remember(key, 0.0)

    def __bool__(self) -> bool:
        return bool(self._paused_until)

    def pause(self, key: EventKey) -> None:
        self._remember(key, self._clock() + SLOW_PAUSE_S)

    def forget(self, key: EventKey) -> None:
        self._paused_until.pop(key, None)

    def is_paused(self, key: EventKey) -> bool:
        return self._clock() < self._paused_until.get(key, 0.0)

    def must_go_alone(self, key: EventKey) -> bool:
        return key in self._paused_until

    def _remember(self, key: EventKey, until: float) -> None:
        self._paused_until[key] = until
        if len(self._paused_until) > MAX_SLOW_EVENTS:
            del self._paused_until[next(iter(self._paused_until))]
