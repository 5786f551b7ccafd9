"""Runs blocking calls of the event loop in a thread, with a time limit."""

import asyncio
import contextvars
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Hashable
from typing import Any, NamedTuple, TypeVar

import anyio.to_thread
from anyio import CapacityLimiter

T = TypeVar("T")

# A thread hands over what it has done when nothing waits for it, but at the latest after so many calls, or before the
# first turn that begins so many seconds later.
HANDED_OVER_AT_ONCE = 16
HANDED_OVER_AFTER_S = 0.002


async def run_in_thread(work: Callable[[], T], *, seconds: float, limiter: CapacityLimiter) -> T:
    """Runs `work` in a thread. After `seconds` it raises TimeoutError and leaves the thread to end by itself."""
    async with asyncio.timeout(seconds):
        return await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=limiter)


class _Call(NamedTuple):
    steps: Generator[None, None, Any]
    context: contextvars.Context
    answer: asyncio.Future[Any]
    until: float


class _Done(NamedTuple):
    answer: asyncio.Future[Any]
    result: Any
    error: BaseException | None


class FairThreads:
    """A few threads for calls that come in bursts. The owners of the calls take turns, as tenants do.

    A call is a generator, and what it does up to its next `yield` is one turn of its owner. An owner has one thread at
    a time, so that another one finds a thread that is free; its calls are carried out in their order. The event loop is
    woken once for up to `at_once` calls; with 1 no answer waits for another call.
    """

    def __init__(self, threads: int, name: str, *, at_once: int = HANDED_OVER_AT_ONCE) -> None:
        self._at_once = at_once
        self._lock = threading.Lock()
        self._calls: dict[Hashable, deque[_Call]] = {}
        # owners whose turn comes, each of them once; None ends a thread
        self._turns: queue.SimpleQueue[Hashable | None] = queue.SimpleQueue()
        # Owners whose last turn was long. Finished answers are handed over before the next turn of such an owner.
        self._long: set[Hashable] = set()
        self._threads = [
            threading.Thread(target=self._work, name=f"{name}-{number}", daemon=True) for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    async def run(self, owner: Hashable, steps: Generator[None, None, T], *, seconds: float) -> T:
        """What the generator returns. After `seconds` it raises TimeoutError, and no further step is begun."""
        answer = asyncio.get_running_loop().create_future()
        call = _Call(steps, contextvars.copy_context(), answer, time.monotonic() + seconds)
        with self._lock:
            calls = self._calls.get(owner)
            if calls is None:
                self._calls[owner] = deque([call])
                self._turns.put(owner)
            else:
                calls.append(call)
        async with asyncio.timeout(seconds):
            result: T = await answer
            return result

    def close(self) -> None:
        for _ in self._threads:
            self._turns.put(None)

    def _work(self) -> None:
        done = _DoneCalls(self._at_once)
        while (owner := self._next_owner(done)) is not None:
            while self._take_turn(owner, done):
                # a thread that goes on with its owner while nobody else waits need not wake another thread
                if not self._turns.empty():
                    self._turns.put(owner)
                    break
        done.hand_over()

    def _next_owner(self, done: "_DoneCalls") -> Hashable | None:
        try:
            return self._turns.get_nowait()
        except queue.Empty:
            done.hand_over()
            return self._turns.get()

    def _take_turn(self, owner: Hashable, done: "_DoneCalls") -> bool:
        """One step of the owner's first call. Returns whether the owner has more to do."""
        began = time.monotonic()
        if owner in self._long or done.have_waited(began):
            done.hand_over()
        call = self._calls[owner][0]
        ended = _take_step(call, began)
        if time.monotonic() - began > HANDED_OVER_AFTER_S:
            self._long.add(owner)
        else:
            self._long.discard(owner)
        if ended is None:
            return True
        done.add(ended)
        with self._lock:
            calls = self._calls[owner]
            calls.popleft()
            if not calls:
                del self._calls[owner]
            return bool(calls)


class _DoneCalls:
    """What a thread has done and has not yet handed over to the event loops."""

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._calls: list[_Done] = []
        self._since = 0.0

    def add(self, done: _Done) -> None:
        now = time.monotonic()
        if not self._calls:
            self._since = now
        self._calls.append(done)
        if len(self._calls) == self._at_once:
            self.hand_over()

    def have_waited(self, now: float) -> bool:
        """Whether the first of them has waited as long as it may."""
        return bool(self._calls) and now - self._since > HANDED_OVER_AFTER_S

    def hand_over(self) -> None:
        done, self._calls = self._calls, []
        # the calls may be of several event loops, which only tests have
        for loop in {one.answer.get_loop() for one in done}:
            if not loop.is_closed():
                loop.call_soon_threadsafe(_answer, [one for one in done if one.answer.get_loop() is loop])


def _take_step(call: _Call, now: float) -> _Done | None:
    """What came of the call, if this was its last step. A call that is answered or too late has no further step."""
    if call.answer.done():
        return _Done(call.answer, None, None)
    if now >= call.until:
        return _Done(call.answer, None, TimeoutError())
    try:
        call.context.run(next, call.steps)
    except StopIteration as end:
        return _Done(call.answer, end.value, None)
    except BaseException as error:
        return _Done(call.answer, None, error)
    return None


def _answer(done: list[_Done]) -> None:
    for answer, result, error in done:
        if answer.done():
            continue
        if error is None:
            answer.set_result(result)
        else:
            answer.set_exception(error)
