"""How the partitions of an executor fare, and when fewer of their slices should run at a time (the seed's 5.7 and 9.7).

The rate of requests is lowered by the rate gate, at the first complaint. This is about the number of slices: each
executor counts what it sees of a partition. If too much of it is trouble, it writes down that only half as many slices
may run at a time, for all executors and for some minutes.
"""

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection, Engine, select

from platform_defs.ingest.errors import ResponseError
from platform_defs.ingest.tasks.picking import Partition
from platform_defs.store.engine import read, transact
from platform_defs.store.tables.ingest import ing_partition_limit
from platform_defs.store.upsert import upsert

LOOK_BACK = timedelta(minutes=5)
# Fewer complaints, errors or slow pages than this are no trouble yet.
FEWEST = 3
# How long fewer slices run at a time, counted from the last trouble, and how soon there may be fewer still.
HOLDS_FOR = timedelta(minutes=5)
LOWER_AGAIN_AFTER = timedelta(minutes=1)
_BUCKET = timedelta(seconds=10)


@dataclass(frozen=True)
class Thresholds:
    """What counts as trouble, over LOOK_BACK; the defaults are the seed's (5.7)."""

    most_429: float = 0.05
    most_errors: float = 0.02
    slow_page_s: float = 3.0
    # how long a page waits for the database before it can be written
    slow_database_s: float = 0.2


@dataclass(frozen=True)
class Seen:
    """What one page, or one request that failed, has shown of its source."""

    # also those that were repeated
    requests: int = 0
    count_429: int = 0
    errors: int = 0
    pages: int = 0
    latency_ms: int = 0
    # until the transaction of the page had begun: for a connection, or on SQLite for the other writers
    database_wait_ms: int = 0


@dataclass(frozen=True)
class Trouble:
    """Why fewer slices of a partition should run."""

    reason: str
    # what is slow may be so for other reasons than these slices: no less than half of them run
    keeps_half: bool = False


@dataclass(frozen=True)
class PartitionLimit:
    """For the moment, no more than `max_concurrent` slices of a partition run at a time."""

    partition: Partition
    max_concurrent: int
    reason: str
    holds_until: datetime

    def __str__(self) -> str:
        source, endpoint, operation = self.partition
        slices = "1 slice" if self.max_concurrent == 1 else f"{self.max_concurrent} slices"
        return (
            f"{source}/{endpoint} {operation.lower()}: {slices} at a time until {self.holds_until:%F %T} UTC, because"
            f" {self.reason}"
        )


def trouble_in(seen: Seen, most: Thresholds = Thresholds()) -> Trouble | None:  # noqa: B008  # frozen
    """Whether a partition of which this was seen should do less."""
    minutes = f"within {LOOK_BACK.total_seconds() / 60:.0f} minutes"
    if seen.count_429 >= FEWEST and seen.count_429 > most.most_429 * seen.requests:
        return Trouble(f"the source answered 429 to {seen.count_429} of {seen.requests} requests {minutes}")
    if seen.errors >= FEWEST and seen.errors > most.most_errors * seen.requests:
        return Trouble(f"{seen.errors} of {seen.requests} requests failed {minutes}")
    if seen.pages < FEWEST:
        return None
    page_s, wait_s = seen.latency_ms / seen.pages / 1000, seen.database_wait_ms / seen.pages / 1000
    if page_s > most.slow_page_s:
        return Trouble(f"a page took {page_s:.1f} s on average {minutes}", keeps_half=True)
    if wait_s > most.slow_database_s:
        return Trouble(f"a page waited {wait_s:.1f} s for the database on average {minutes}", keeps_half=True)
    return None


def lowered(now_at_a_time: int, full: int, trouble: Trouble) -> int:
    """How many slices may run at a time after this trouble; at least one."""
    least = max(1, full // 2) if trouble.keeps_half else 1
    return min(now_at_a_time, max(least, now_at_a_time // 2))


def seen_in(counts: Mapping[str, int], database_wait_ms: int = 0) -> Seen:
    """What the counts of a page show."""
    retries, count_429 = counts.get("retryCount", 0), counts.get("429Count", 0)
    return Seen(
        requests=counts.get("reqCount", 0) + retries,
        count_429=count_429,
        errors=max(0, retries - count_429),
        pages=1,
        latency_ms=counts.get("latencyMs", 0),
        database_wait_ms=database_wait_ms,
    )


def seen_in_error(error: ResponseError) -> Seen:
    """What it shows that a page did not come; that the rate gate held it back is no fault of the source."""
    if error.is_held_back:
        return Seen()
    is_429 = error.code == "HTTP_429"
    return Seen(requests=1, count_429=int(is_429), errors=int(not is_429))


class HealthWatch:
    """What this executor has seen of each partition in the last minutes; its threads share it."""

    def __init__(self, thresholds: Thresholds = Thresholds()) -> None:  # noqa: B008  # frozen
        self._thresholds = thresholds
        self._lock = threading.Lock()
        self._seen: dict[Partition, dict[datetime, Counter[str]]] = {}
        self._full: dict[Partition, int] = {}

    def note(self, partition: Partition, seen: Seen, now: datetime, *, full: int) -> None:
        """`full` is how many slices run at a time while all is well."""
        bucket = now - (now - datetime.min.replace(tzinfo=now.tzinfo)) % _BUCKET
        with self._lock:
            self._full[partition] = full
            self._seen.setdefault(partition, {}).setdefault(bucket, Counter()).update(vars(seen))

    def troubles(self, now: datetime) -> dict[Partition, tuple[Trouble, int]]:
        """Partitions with trouble, and how many slices of each run when all is well.

        What led to it is forgotten: the next verdict is about what happens from now on.
        """
        found: dict[Partition, tuple[Trouble, int]] = {}
        with self._lock:
            for partition, buckets in self._seen.items():
                for old in [at for at in buckets if at <= now - LOOK_BACK]:
                    del buckets[old]
                total: Counter[str] = sum(buckets.values(), Counter())
                if (trouble := trouble_in(Seen(**total), self._thresholds)) is not None:
                    found[partition] = (trouble, self._full[partition])
                    buckets.clear()
        return found


def lower_limit(
    engine: Engine, partition: Partition, trouble: Trouble, *, full: int, now: datetime
) -> PartitionLimit | None:
    """Writes down that fewer slices may run; None where another executor has just done so, or only one runs anyway."""
    table = ing_partition_limit.c
    mine = (
        (table.provenance_code == partition[0])
        & (table.endpoint_name == partition[1])
        & (table.operation_code == partition[2])
    )

    def work(connection: Connection) -> PartitionLimit | None:
        query = select(ing_partition_limit).where(mine, table.holds_until > now)
        stands = connection.execute(query.with_for_update()).one_or_none()
        if full <= 1 or (stands is not None and stands.lowered_at > now - LOWER_AGAIN_AFTER):
            return None
        limit = lowered(full if stands is None else stands.max_concurrent, full, trouble)
        row = dict(zip(("provenance_code", "endpoint_name", "operation_code"), partition, strict=True))
        values = {"max_concurrent": limit, "reason": trouble.reason, "lowered_at": now, "holds_until": now + HOLDS_FOR}
        upsert(connection, ing_partition_limit, [row | values], key=list(row))
        return PartitionLimit(partition, limit, trouble.reason, now + HOLDS_FOR)

    return transact(engine, work)


def read_limits(engine: Engine, now: datetime) -> Mapping[Partition, PartitionLimit]:
    """Partitions of which fewer slices run at a time than their tasks say."""
    table = ing_partition_limit.c
    query = select(ing_partition_limit).where(table.holds_until > now).order_by(table.provenance_code)
    rows = read(engine, lambda connection: connection.execute(query).all())
    return {
        (row.provenance_code, row.endpoint_name, row.operation_code): PartitionLimit(
            (row.provenance_code, row.endpoint_name, row.operation_code),
            row.max_concurrent,
            row.reason,
            row.holds_until,
        )
        for row in rows
    }
