"""A sink over stores that only remember the groups they get, for tests of what forms these groups."""

import asyncio
import threading
from collections.abc import Sequence

from prometheus_client import CollectorRegistry

from platform_defs.access.tenants import Tenant
from platform_defs.lineage.facts import Fact
from platform_defs.lineage.sink.answers import Answer
from platform_defs.lineage.sink.apply import EventFacts
from platform_defs.lineage.sink.commit import CommitResult
from platform_defs.lineage.sink.lanes import WIDE_FACTS
from platform_defs.lineage.sink.limits import Limits, TokenBuckets
from platform_defs.lineage.sink.metrics import SinkMetrics
from platform_defs.lineage.sink.pace import Pace
from platform_defs.lineage.sink.pending import PreparedEvent
from platform_defs.lineage.sink.rows.raw_events import EventKey
from platform_defs.lineage.sink.rows.symlinks import EventNames
from platform_defs.lineage.sink.sink import Sink
from platform_defs.lineage.sink.store_health import StoreHealth
from platform_defs.lineage.version import Version
from tests.waiting import PATIENCE_S, until

LIMITS = Limits(
    group_events=4,
    group_bytes=1000,
    group_facts=10 * WIDE_FACTS,
    linger_s=0,
    deadline_s=PATIENCE_S,
    queue_events=1000,
    queue_bytes=10**6,
)


class Groups:
    """Takes groups and remembers them. It stands for the stores, which have their own tests: here only groups count."""

    def __init__(self, *, held: bool = False) -> None:
        self.groups: list[list[str]] = []
        self.free = threading.Event()
        if not held:
            self.free.set()

    def commit(self, events: Sequence[PreparedEvent]) -> CommitResult:
        self.groups.append([event.key.fingerprint for event in events])
        self.free.wait(PATIENCE_S)
        return CommitResult()

    def flush(self) -> None: ...

    def withdraw(self, event: PreparedEvent) -> None: ...

    def close(self) -> None: ...


def prepared(tenant: int, name: str, *, facts: int = 1, size: int = 1, says: tuple[Fact, ...] = ()) -> PreparedEvent:
    return PreparedEvent(
        Tenant(tenant, f"t{tenant}", f"T{tenant}"),
        EventKey(tenant, name),
        {},
        EventFacts(Version(name), says),
        None,
        size=size,
        names=EventNames({}, frozenset(), lambda linked: ()),
        facts=facts,
    )


def open_sink(*committers: Groups, limits: Limits = LIMITS, pace: Pace | None = None) -> Sink:
    metrics = SinkMetrics(CollectorRegistry())
    health = StoreHealth({}, limits.deadline_s)
    return Sink(committers, limits, TokenBuckets(0, 1), metrics, health=health, rebuild=lambda tenant: None, pace=pace)


def submit(sink: Sink, *events: PreparedEvent) -> asyncio.Task[list[Answer]]:
    loop = asyncio.get_running_loop()
    return asyncio.create_task(sink.submit(events, until=loop.time() + PATIENCE_S))


async def seen(committer: Groups, count: int) -> None:
    await asyncio.to_thread(until, f"{count} groups", lambda: len(committer.groups) >= count)
