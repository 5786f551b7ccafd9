"""Runs blocking calls of the event loop in a thread, with a time limit."""

import asyncio
import contextvars
import queue
import threading
import time
from collections.abc import Callable
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
    work: Callable[[], Any]
    context: contextvars.Context
    answer: asyncio.Future[Any]


class _Done(NamedTuple):
    answer: asyncio.Future[Any]
    result: Any
    error: BaseException | None


class WorkerThreads:
    """A few threads for short calls that come in bursts: the event loop is woken once for several of them."""

    def __init__(self, threads: int, name: str) -> None:
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._work, name=f"{name}-{number}", daemon=True) for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    async def run(self, work: Callable[[], T], *, seconds: float) -> T:
        """As `run_in_thread`; a call that has not begun when its time is over is never begun."""
        answer = asyncio.get_running_loop().create_future()
        self._calls.put(_Call(work, contextvars.copy_context(), answer))
        async with asyncio.timeout(seconds):
            result: T = await answer
            return result

    def close(self) -> None:
        for _ in self._threads:
            self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            done: list[_Done] = []
            began = time.monotonic()
            while call is not None:
                done.append(_carry_out(call))
                if len(done) == HANDED_OVER_AT_ONCE or time.monotonic() - began > HANDED_OVER_AFTER_S:
                    break
                try:
                    call = self._calls.get_nowait()
                except queue.Empty:
                    break
            _hand_over(done)
            if call is None:
                return


def _carry_out(call: _Call) -> _Done:
    if call.answer.cancelled():
        return _Done(call.answer, None, None)
    try:
        return _Done(call.answer, call.context.run(call.work), None)
    except BaseException as error:
        return _Done(call.answer, None, error)


def _hand_over(done: list[_Done]) -> None:
    # the calls may be of several event loops, which only tests have
    for loop in {one.answer.get_loop() for one in done}:
        if not loop.is_closed():
            loop.call_soon_threadsafe(_answer, [one for one in done if one.answer.get_loop() is loop])


def _answer(done: list[_Done]) -> None:
    for answer, result, error in done:
        if answer.done():
            continue
        if error is None:
            answer.set_result(result)
        else:
            answer.set_exception(error)
