"""Events that wait to be written. Tenants take turns: a thousand events of one do not hold up the one of another."""

import asyncio
from collections import deque
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
        # tenants whose next event does not fit into the group that is being put together
        self._passed_over: dict[int, deque[Entry]] = {}

    def __bool__(self) -> bool:
        return bool(self._tenants or self._passed_over)

    def push(self, entry: Entry) -> None:
        self._tenants.setdefault(entry.event.tenant.id, deque()).append(entry)

    def first(self) -> Entry | None:
        """The entry whose turn it is; those whose requests were answered meanwhile are dropped."""
        while self._tenants:
            tenant, entries = next(iter(self._tenants.items()))
            while entries:
                if not entries[0].answer.cancelled():
                    return entries[0]
                entries.popleft()
            del self._tenants[tenant]
        return None

    def pop(self) -> Entry:
        """Takes the first entry; the other entries of its tenant wait for all other tenants to have their turn."""
        tenant = next(iter(self._tenants))
        entries = self._tenants.pop(tenant)
        entry = entries.popleft()
        if entries:
            self._tenants[tenant] = entries
        return entry

    def pass_over(self) -> None:
        """The tenant whose turn it is has none until `put_back`."""
        tenant = next(iter(self._tenants))
        self._passed_over[tenant] = self._tenants.pop(tenant)

    def put_back(self) -> None:
        """The tenants that were passed over have their turns first."""
        self._tenants = self._passed_over | self._tenants
        self._passed_over = {}
