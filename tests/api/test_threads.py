"""Threads for short calls: results and errors reach their callers, and a call whose time is over is never begun."""

import asyncio
import threading
from collections.abc import Iterator
from contextvars import ContextVar

import pytest

from platform_defs.api.http.threads import WorkerThreads
from tests.waiting import PATIENCE_S, until

caller: ContextVar[int] = ContextVar("caller", default=0)


@pytest.fixture
def threads() -> Iterator[WorkerThreads]:
    running = WorkerThreads(2, "test-worker")
    yield running
    running.close()


def test_every_caller_of_a_burst_gets_its_own_result_or_error(threads: WorkerThreads) -> None:
    async def call(number: int) -> int:
        caller.set(number)
        return await threads.run(lambda: 100 // (caller.get() % 10), seconds=PATIENCE_S)

    async def main() -> list[int | BaseException]:
        return await asyncio.gather(*(call(number) for number in range(200)), return_exceptions=True)

    for number, found in enumerate(asyncio.run(main())):
        if number % 10:
            assert found == 100 // (number % 10)
        else:
            assert isinstance(found, ZeroDivisionError)


def test_a_call_that_is_too_late_is_never_begun_and_the_threads_go_on(threads: WorkerThreads) -> None:
    free, begun = threading.Event(), list[str]()

    async def main() -> int:
        held = [asyncio.create_task(threads.run(free.wait, seconds=PATIENCE_S)) for _ in range(2)]
        await asyncio.sleep(0)  # both calls are made before the next one
        with pytest.raises(TimeoutError):
            await threads.run(lambda: begun.append("late"), seconds=0.01)
        free.set()
        await asyncio.gather(*held)
        return await threads.run(lambda: 7, seconds=PATIENCE_S)

    assert asyncio.run(main()) == 7
    assert begun == []


def test_closed_threads_end() -> None:
    threads = WorkerThreads(2, "test-closed")
    assert asyncio.run(threads.run(lambda: 1, seconds=PATIENCE_S)) == 1
    threads.close()
    until("the threads to end", lambda: not any("test-closed" in one.name for one in threading.enumerate()))
