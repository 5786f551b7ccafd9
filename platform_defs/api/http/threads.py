"""Runs blocking calls of the event loop in a thread, with a time limit."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

import anyio.to_thread
from anyio import CapacityLimiter

T = TypeVar("T")


async def run_in_thread(work: Callable[[], T], *, seconds: float, limiter: CapacityLimiter) -> T:
    """Runs `work` in a thread. After `seconds` it raises TimeoutError and leaves the thread to end by itself."""
    async with asyncio.timeout(seconds):
        return await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=limiter)
