"""How many requests of a key are under way at once, over all processes: leases that end by themselves.

A process that is killed gives its leases back by doing nothing: they run out. They are short, so that this is soon, and
a thread extends those whose requests take longer.
"""

import logging
import threading
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Engine, Update, bindparam, func, null, select, update

from platform_defs.errors import one_line
from platform_defs.rate_gate.outage import DatabaseSilent, Outage
from platform_defs.rate_gate.sql import Number, StoreClock, number
from platform_defs.store.driver import Prepared
from platform_defs.store.engine import transact_by_driver
from platform_defs.store.tables.rate_gate import rate_gate_lease
from platform_defs.store.types import is_mysql
from platform_defs.store.upsert import upsert

_lease = rate_gate_lease.c
_MICRO = 1_000_000
_ATTEMPTS = 2
# how long the lease of a process that was killed stays taken
LEASE_S = 20.0

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Lease:
    """The right to have one request of a key under way."""

    key: str
    owner: str
    # given by the process itself because the database did not answer
    is_local: bool = False


class RequestLeases:
    """Takes and gives back leases; thread-safe."""

    def __init__(self, engine: Engine, outage: Outage, now_us: Callable[[], int] | None = None) -> None:
        self._engine = engine
        self._outage = outage
        self._clock = StoreClock(engine, now_us)
        now = self._clock.now
        self._take = Prepared(_taking(now, is_mysql(engine.dialect)))
        self._extend = Prepared(_owned().values(leased_until_us=now + number("ttl_us")))
        self._release = Prepared(_owned().values(owner=null(), leased_until_us=0))
        self._count = Prepared(
            select(func.count()).where(_lease.gate_key == bindparam("key"), _lease.slot_no < number("limit")),
        )
        self._lock = threading.Lock()
        self._under_way: Counter[str] = Counter()
        # of each key: what is set for the threads that wait for a lease
        self._waiting: defaultdict[str, list[threading.Event]] = defaultdict(list)

    def take(self, key: str, limit: int, *, ttl_s: float) -> Lease | None:
        """One of the key's `limit` leases, for `ttl_s` seconds; None while all of them are taken."""
        with self._lock:
            if self._under_way[key] >= limit:
                return None
            self._under_way[key] += 1
            is_alone = self._under_way[key] == 1
        lease = None
        try:
            lease = self._outage.attempt(lambda: self._take_in_database(key, limit, ttl_s))
        except DatabaseSilent:
            # nobody knows what the others do: one request of this process at a time
            lease = Lease(key, "", is_local=True) if is_alone else None
        finally:
            if lease is None:
                self._leave(key)
        return lease

    def extend(self, lease: Lease, *, ttl_s: float) -> None:
        """Lets a lease run until `ttl_s` from now."""
        if not lease.is_local:
            self._quietly(self._extend, {"key": lease.key, "owner": lease.owner, "ttl_us": round(ttl_s * _MICRO)})

    def release(self, lease: Lease) -> None:
        try:
            if not lease.is_local:
                self._quietly(self._release, {"key": lease.key, "owner": lease.owner})
        finally:
            self._leave(lease.key)

    @contextmanager
    def waiting(self, key: str) -> Iterator[threading.Event]:
        """An event that is set when a thread of this process gives a lease of the key back.

        Of the leases that other processes give back it does not tell.
        """
        freed = threading.Event()
        with self._lock:
            self._waiting[key].append(freed)
        try:
            yield freed
        finally:
            with self._lock:
                self._waiting[key].remove(freed)
                if not self._waiting[key]:
                    del self._waiting[key]

    def _take_in_database(self, key: str, limit: int, ttl_s: float) -> Lease | None:
        owner = uuid.uuid4().hex
        values = {"key": key, "limit": limit, "owner": owner, "ttl_us": round(ttl_s * _MICRO)}
        if self._run(self._take, values):
            return Lease(key, owner)
        if self._add_missing(key, limit) and self._run(self._take, values):
            return Lease(key, owner)
        return None

    def _add_missing(self, key: str, limit: int) -> bool:
        """The rows that leases are taken from; they are added when the first request comes, or the limit grows."""

        def add(connection: Connection) -> bool:
            found = int(self._count.run(connection, {"key": key, "limit": limit}).rows[0][0])
            rows: list[dict[str, Any]] = [{"gate_key": key, "slot_no": slot} for slot in range(limit)]
            if found < limit:
                upsert(connection, rate_gate_lease, rows, key=["gate_key", "slot_no"], update="nothing")
            return found < limit

        return transact_by_driver(self._engine, add, attempts=_ATTEMPTS)

    def _quietly(self, statement: Prepared, values: dict[str, Any]) -> None:
        """A lease that the silent database keeps runs out by itself."""
        try:
            self._outage.attempt(lambda: self._run(statement, values))
        except DatabaseSilent:
            return

    def _run(self, statement: Prepared, values: dict[str, Any]) -> int:
        def run(connection: Connection) -> int:
            return statement.run(connection, values | self._clock.values()).rowcount

        return transact_by_driver(self._engine, run, attempts=_ATTEMPTS)

    def _leave(self, key: str) -> None:
        with self._lock:
            self._under_way[key] -= 1
            for freed in self._waiting.get(key, ()):
                freed.set()


class LeaseKeeper:
    """Extends leases for as long as their requests are under way, by one thread that ends when there are none."""

    def __init__(self, leases: RequestLeases, *, lease_s: float = LEASE_S) -> None:
        self._leases = leases
        self.lease_s = lease_s
        self._lock = threading.Lock()
        self._kept: dict[str, Lease] = {}
        self._thread: threading.Thread | None = None

    @contextmanager
    def kept(self, lease: Lease) -> Iterator[None]:
        """Extends the lease for as long as the block lasts."""
        with self._lock:
            self._kept[lease.owner] = lease
            if self._thread is None:
                self._thread = threading.Thread(target=self._keep, daemon=True, name="rate-gate-leases")
                self._thread.start()
        try:
            yield
        finally:
            with self._lock:
                self._kept.pop(lease.owner, None)

    def _keep(self) -> None:
        while True:
            time.sleep(self.lease_s / 4)
            with self._lock:
                kept = list(self._kept.values())
                if not kept:
                    self._thread = None
                    return
            for lease in kept:
                try:
                    self._leases.extend(lease, ttl_s=self.lease_s)
                except Exception as error:
                    # the others must be extended all the same; this one runs out at worst
                    _logger.warning("rate gate: a lease of %s was not extended: %s", lease.key, one_line(error))


def _taking(now: Number, on_mysql: bool) -> Update:
    free = (_lease.gate_key == bindparam("key")) & (_lease.slot_no < number("limit")) & (_lease.leased_until_us <= now)
    taken = update(rate_gate_lease).values(owner=bindparam("owner"), leased_until_us=now + number("ttl_us"))
    if on_mysql:
        return taken.where(free).with_dialect_options(mysql_limit=1)
    first = select(func.min(_lease.slot_no)).where(free).scalar_subquery()
    return taken.where(_lease.gate_key == bindparam("key"), _lease.slot_no == first)


def _owned() -> Update:
    return update(rate_gate_lease).where(_lease.gate_key == bindparam("key"), _lease.owner == bindparam("owner"))
