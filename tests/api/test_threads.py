"""Threads that callers share: results and errors reach their callers, who take turns, and nothing is begun too late."""

import asyncio
import threading
from collections.abc import Callable, Generator, Iterator
from contextvars import ContextVar
from types import SimpleNamespace
from typing import TypeVar

import pytest

from platform_defs.api.http import threads as threads_module
from platform_defs.api.http.threads import FairThreads
from tests.waiting import PATIENCE_S, until

T = TypeVar("T")

caller: ContextVar[int] = ContextVar("caller", default=0)


@pytest.fixture
def threads() -> Iterator[FairThreads]:
    running = FairThreads(2, "test-worker")
    yield running
    running.close()


def steps(*works: Callable[[], T]) -> Generator[None, None, T]:
    """A call of several steps, which returns what the last one does."""
    for work in works[:-1]:
        work()
        yield
    return works[-1]()


def test_every_caller_of_a_burst_gets_its_own_result_or_error(threads: FairThreads) -> None:
    async def call(number: int) -> int:
        caller.set(number)
        work = steps(caller.get, lambda: 100 // (caller.get() % 10))
        return await threads.run(number % 7, work, seconds=PATIENCE_S)

    async def main() -> list[int | BaseException]:
        return await asyncio.gather(*(call(number) for number in range(200)), return_exceptions=True)

    for number, found in enumerate(asyncio.run(main())):
        if number % 10:
            assert found == 100 // (number % 10)
        else:
            assert isinstance(found, ZeroDivisionError)


def test_callers_take_turns_at_every_step() -> None:
    threads = FairThreads(1, "test-turns")
    free, order = threading.Event(), list[str]()

    def work(*names: str) -> Generator[None, None, None]:
        return steps(*(lambda name=name: order.append(name) for name in names))

    async def main() -> None:
        held = asyncio.create_task(threads.run("c", steps(lambda: free.wait(PATIENCE_S)), seconds=PATIENCE_S))
        calls = [("a", work("a0", "a1", "a2")), ("a", work("a3")), ("b", work("b0", "b1"))]
        tasks = [asyncio.create_task(threads.run(owner, call, seconds=PATIENCE_S)) for owner, call in calls]
        await asyncio.sleep(0)  # all calls are made before the thread is free
        free.set()
        await asyncio.gather(held, *tasks)

    asyncio.run(main())
    threads.close()
    assert order == ["a0", "b0", "a1", "b1", "a2", "a3"]


def test_a_caller_has_one_thread_at_a_time(threads: FairThreads) -> None:
    free = threading.Event()

    async def main() -> int:
        held = [asyncio.create_task(threads.run("a", steps(free.wait), seconds=PATIENCE_S)) for _ in range(4)]
        await asyncio.sleep(0)  # these calls are made before the next one
        found = await threads.run("b", steps(lambda: 7), seconds=PATIENCE_S)
        assert not any(task.done() for task in held)
        free.set()
        await asyncio.gather(*held)
        return found

    assert asyncio.run(main()) == 7


def test_no_answer_waits_for_the_long_turns_of_another_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads_module, "HANDED_OVER_AFTER_S", 0.0)  # every turn is a long one
    threads = FairThreads(1, "test-long")
    began, free, held = threading.Event(), threading.Event(), threading.Event()

    def first() -> bool:
        began.set()
        return free.wait(PATIENCE_S)

    async def main() -> int:
        long = asyncio.create_task(threads.run("a", steps(first, held.wait), seconds=PATIENCE_S))
        await asyncio.to_thread(began.wait, PATIENCE_S)
        short = asyncio.create_task(threads.run("b", steps(lambda: 7), seconds=PATIENCE_S))
        await asyncio.sleep(0)  # the short call is made before the first turn ends
        free.set()
        found = await short
        assert not long.done()
        held.set()
        await long
        return found

    assert asyncio.run(main()) == 7
    threads.close()


def answered_before(threads: FairThreads, *short_turns: Callable[[], object]) -> None:
    """A call gets its answer although the next owner has a turn that goes on, after some that do not."""
    gate, held = threading.Event(), threading.Event()

    async def main() -> int:
        # the thread is busy until all calls are made
        first = asyncio.create_task(threads.run("a", steps(lambda: gate.wait(PATIENCE_S)), seconds=PATIENCE_S))
        second = asyncio.create_task(threads.run("b", steps(lambda: 7), seconds=PATIENCE_S))
        calls = steps(*short_turns, lambda: held.wait(PATIENCE_S))
        long = asyncio.create_task(threads.run("c", calls, seconds=PATIENCE_S))
        await asyncio.sleep(0)
        gate.set()
        await first
        found = await second
        assert not long.done()
        held.set()
        await long
        return found

    try:
        assert asyncio.run(main()) == 7
    finally:
        held.set()
        threads.close()


def test_with_one_answer_at_once_none_waits_for_the_first_long_turn_of_another_caller() -> None:
    answered_before(FairThreads(1, "test-first-long", at_once=1))


def test_an_answer_that_has_waited_is_handed_over_between_the_short_turns_of_another_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [0.0]
    monkeypatch.setattr(threads_module, "time", SimpleNamespace(monotonic=lambda: clock[0]))

    def short() -> None:
        clock[0] += threads_module.HANDED_OVER_AFTER_S * 0.75

    answered_before(FairThreads(1, "test-waited"), short, short)


def test_a_call_that_is_too_late_is_never_begun_and_the_threads_go_on(threads: FairThreads) -> None:
    free, begun = threading.Event(), list[str]()

    async def main() -> int:
        held = [asyncio.create_task(threads.run(owner, steps(free.wait), seconds=PATIENCE_S)) for owner in "ab"]
        await asyncio.sleep(0)  # both calls are made before the next one
        with pytest.raises(TimeoutError):
            await threads.run("c", steps(lambda: begun.append("late")), seconds=0.01)
        free.set()
        await asyncio.gather(*held)
        return await threads.run("c", steps(lambda: 7), seconds=PATIENCE_S)

    assert asyncio.run(main()) == 7
    assert begun == []


def test_a_call_whose_time_is_over_has_no_further_step() -> None:
    threads = FairThreads(1, "test-late")
    free, begun = threading.Event(), list[str]()

    def first() -> None:
        begun.append("first")
        free.wait(PATIENCE_S)

    async def main() -> int:
        while not begun:  # a busy machine may be too late for the first step too
            with pytest.raises(TimeoutError):
                await threads.run("a", steps(first, lambda: begun.append("second")), seconds=0.05)
        free.set()
        return await threads.run("a", steps(lambda: 7), seconds=PATIENCE_S)

    assert asyncio.run(main()) == 7
    assert begun == ["first"]
    threads.close()


def test_closed_threads_end() -> None:
    threads = FairThreads(2, "test-closed")
    assert asyncio.run(threads.run("a", steps(lambda: 1), seconds=PATIENCE_S)) == 1
    threads.close()
    until("the threads to end", lambda: not any("test-closed" in one.name for one in threading.enumerate()))
