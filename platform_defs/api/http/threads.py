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

# A thread hands over what it has done when nothing waits for it, but at the latest after so many calls or seconds.
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
    woken once for several calls.
    """

    def __init__(self, threads: int, name: str) -> None:
        self._lock = threading.Lock()
        self._calls: dict[Hashable, deque[_Call]] = {}
        # owners whose turn comes, each of them once; None ends a thread
        self._turns: queue.SimpleQueue[Hashable | None] = queue.SimpleQueue()
        # owners whose last turn was long: nobody's answer waits until another one has ended
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
        done = _DoneCalls()
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
        if owner in self._long:
            done.hand_over()
        call = self._calls[owner][0]
        began = time.monotonic()
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

    def __init__(self) -> None:
        self._calls: list[_Done] = []
        self._since = 0.0

    def add(self, done: _Done) -> None:
        now = time.monotonic()
        if not self._calls:
            self._since = now
        self._calls.append(done)
        if len(self._calls) == HANDED_OVER_AT_ONCE or now - self._since > HANDED_OVER_AFTER_S:
            self.hand_over()

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
