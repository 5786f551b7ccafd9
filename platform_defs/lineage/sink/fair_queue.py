"""Events that wait to be written. Tenants take turns: a thousand events of one do not hold up the one of another."""

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from platform_defs.lineage.sink.answers import Answer
from platform_defs.lineage.sink.pending import PreparedEvent


@dataclass(eq=False, slots=True)
class Entry:
    """An event in the queue, with the answer that its request waits for."""

    event: PreparedEvent
    answer: asyncio.Future[Answer]


class FairQueue:
    """Each tenant's events come in their order; the tenants take turns."""

    def __init__(self) -> None:
        # the first tenant is the next one to have its turn
        self._tenants: dict[int, deque[Entry]] = {}

    def __bool__(self) -> bool:
        return bool(self._tenants)

    def push(self, entry: Entry) -> None:
        self._tenants.setdefault(entry.event.tenant.id, deque()).append(entry)

    def extend(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self.push(entry)

    def peek(self) -> Entry:
        return next(iter(self._tenants.values()))[0]

    def pop(self) -> Entry:
        tenant = next(iter(self._tenants))
        entries = self._tenants.pop(tenant)
        entry = entries.popleft()
        if entries:
            self._tenants[tenant] = entries
        return entry
