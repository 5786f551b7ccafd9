"""Health of the two stores: tells a store that hangs from an event that alone takes too long.

A store that hangs opens the breaker, so that new requests are refused at once. An event that alone takes too long, on
stores that still answer a ping, is set apart instead: it must not make all other requests fail.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from platform_defs.lineage.sink.limits import Clock
from platform_defs.lineage.sink.raw_events import EventKey

T = TypeVar("T")

# Both are shares of the request's deadline: a write that takes longer than SLOW_SHARE is slow, and a store that needs
# longer than PING_SHARE to answer a ping counts as down.
SLOW_SHARE, PING_SHARE = 1 / 2, 1 / 4
# seconds between two pings of a store that is down
PING_AGAIN_S = 0.2
# An event that is too slow even alone is not tried again for this long. With Neo4j the recovery, which has more time,
# may bring it into the graph before that.
SLOW_PAUSE_S = 30.0
MAX_SLOW_EVENTS = 1000


class Breaker:
    """Open while a store is known to be down: for a moment after a failed write, and while a write hangs."""

    def __init__(self, pause_s: float = 1.0, clock: Clock = time.monotonic) -> None:
        self._pause = pause_s
        self._clock = clock
        self._until = 0.0
        self._hanging = 0

    @property
    def is_open(self) -> bool:
        return self._hanging > 0 or self._clock() < self._until

    def trip(self) -> None:
        self._until = self._clock() + self._pause

    def hang(self, hanging: bool) -> None:
        """Several writes may hang at once; each that begins to hang also ends it."""
        self._hanging += 1 if hanging else -1

    def close(self) -> None:
        self._until = 0.0


class StoreHealth:
    """Pings the stores when a write takes long, and keeps the breaker. Belongs to one event loop."""

    def __init__(self, ping: Callable[[], None], deadline_s: float, breaker: Breaker | None = None) -> None:
        self.breaker = breaker or Breaker()
        self._ping = ping
        self._deadline_s = deadline_s
        self._pingers = ThreadPoolExecutor(1, thread_name_prefix="lineage-ping")
        self._ping_under_way: asyncio.Future[bool] | None = None
        self._waiting_for_return: asyncio.Task[None] | None = None

    def close(self) -> None:
        self._pingers.shutdown(wait=False)

    async def watch(self, write: asyncio.Future[T]) -> T:
        """The result of a write. While it hangs on a store that answers no ping, the breaker is open."""
        done, _ = await asyncio.wait({write}, timeout=self._deadline_s * SLOW_SHARE)
        hangs = not done and not await self._stores_answer() and not write.done()
        if hangs:
            self.breaker.hang(True)
        try:
            result = await write
        except Exception:
            if hangs:
                self._waiting_for_return = asyncio.create_task(self._close_breaker_on_return())
            raise
        if hangs:
            self.breaker.hang(False)
        return result

    async def is_event_too_slow(self, began: float) -> bool:
        """Whether the write that began then failed because its events take long, not because a store is down."""
        slow = time.monotonic() - began >= self._deadline_s * SLOW_SHARE
        return slow and not self.breaker.is_open and await self._stores_answer()

    async def _close_breaker_on_return(self) -> None:
        while not await self._stores_answer():
            await asyncio.sleep(PING_AGAIN_S)
        self.breaker.hang(False)

    async def _stores_answer(self) -> bool:
        """Whether both stores answer a ping in time. While an earlier ping is under way, no other one is sent."""
        if self._ping_under_way is None or self._ping_under_way.done():
            self._ping_under_way = asyncio.get_running_loop().run_in_executor(self._pingers, self._ping_succeeds)
        done, _ = await asyncio.wait({self._ping_under_way}, timeout=self._deadline_s * PING_SHARE)
        return bool(done) and self._ping_under_way.result()

    def _ping_succeeds(self) -> bool:
        try:
            self._ping()
        except Exception:
            return False
        return True


class SlowEvents:
    """Events that held up their group: suspects are written alone; one that was too slow alone is paused."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._paused_until: dict[EventKey, float] = {}  # 0 for a suspect that was not yet tried alone

    def suspect(self, key: EventKey) -> None:
        self._remember(key, 0.0)

    def pause(self, key: EventKey) -> None:
        self._remember(key, self._clock() + SLOW_PAUSE_S)

    def is_paused(self, key: EventKey) -> bool:
        return self._clock() < self._paused_until.get(key, 0.0)

    def must_go_alone(self, key: EventKey) -> bool:
        return key in self._paused_until

    def _remember(self, key: EventKey, until: float) -> None:
        self._paused_until[key] = until
        if len(self._paused_until) > MAX_SLOW_EVENTS:
            del self._paused_until[next(iter(self._paused_until))]
