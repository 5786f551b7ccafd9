"""One group of events into both stores: in one transaction where the graph is embedded, in parallel on Neo4j.

Each store's write is idempotent alone, so whatever a crash leaves of a group, sending it again completes it.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Protocol

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DatabaseError, DataError, DBAPIError, IntegrityError, ProgrammingError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from platform_defs.access.tenants import Tenant
from platform_defs.errors import GraphError
from platform_defs.graph.embedded import EmbeddedGraph
from platform_defs.graph.errors import GraphConflict, InvalidGraphValue
from platform_defs.graph.port import Graph
from platform_defs.lineage.sink import raw_events
from platform_defs.lineage.sink.apply import Stamped, apply_events
from platform_defs.lineage.sink.metrics import Measures, timed
from platform_defs.lineage.sink.raw_events import Key
from platform_defs.lineage.sink.run_counts import Counts, Run, count_runs
from platform_defs.lineage.upkeep import rebuild_requests
from platform_defs.store.engine import is_transient, transact
from platform_defs.store.errors import PacketTooLarge, StoreUnavailable
from platform_defs.store.metadata import now

# a request has four seconds: one repetition after a deadlock, then the client is told
ATTEMPTS = 2


@dataclass(frozen=True, slots=True)
class Item:
    """An event that was read, given to a tenant and understood: what the stores need of it."""

    tenant: Tenant
    key: Key
    row: dict[str, Any]
    stamped: Stamped
    run: Run | None
    size: int


@dataclass(frozen=True, slots=True)
class Committed:
    """`rebuild`: tenants whose graph cannot take these events in place; that is recorded with the raw rows."""

    rebuild: frozenset[int] = frozenset()


class Committer(Protocol):
    """Called from one thread at a time."""

    def commit(self, items: Sequence[Item]) -> Committed:
        """Returns when both stores hold all of the items."""

    def flush(self) -> None:
        """Writes what was postponed for the sake of the next group."""

    def withdraw(self, item: Item) -> None:
        """Takes back what a refused event left in the raw table."""

    def close(self) -> None: ...


def is_of_an_event(error: BaseException) -> bool:
    """Whether a store refuses an event for what it is, so that it would do so again."""
    return isinstance(error, InvalidGraphValue | GraphConflict | DataError | IntegrityError | PacketTooLarge)


def is_unavailable(error: BaseException) -> bool:
    """Whether it is the store that fails, not an event: then nothing is wrong with the group, and it may come again."""
    if isinstance(error, StoreUnavailable | PoolTimeout):
        return True
    if isinstance(error, GraphError):
        # a full disk, a missing right, a database that is gone: Neo4j has no end of errors of its own
        return not is_of_an_event(error)
    if isinstance(error, DBAPIError):
        of_an_event = DataError | IntegrityError | ProgrammingError
        return is_transient(error) or (isinstance(error, DatabaseError) and not isinstance(error, of_an_event))
    return False


@dataclass(frozen=True, slots=True)
class Due:
    """What of a group still has to be written."""

    fresh: list[Item]
    waiting: list[Item]  # stored before, but the graph lacks them
    counts: Counts
    rewritten_at: Mapping[int, datetime] = field(default_factory=dict)

    @property
    def items(self) -> list[Item]:
        return self.fresh + self.waiting

    def by_tenant(self) -> Iterator[tuple[Tenant, list[Stamped]]]:
        groups: dict[int, tuple[Tenant, list[Stamped]]] = {}
        for item in self.items:
            groups.setdefault(item.tenant.id, (item.tenant, []))[1].append(item.stamped)
        for tenant_id in sorted(groups):
            yield groups[tenant_id]


def _due(connection: Connection, items: Sequence[Item]) -> Due:
    unique = {item.key: item for item in items}
    known = raw_events.known(connection, list(unique))
    fresh = [item for key, item in unique.items() if key not in known]
    waiting = [item for key, item in unique.items() if known.get(key) is False]
    counts = count_runs(connection, [item.run for item in fresh + waiting if item.run])
    return Due(fresh, waiting, counts)


def _apply(graph: Graph, due: Due) -> frozenset[int]:
    """The tenants that need a rebuild instead."""
    return frozenset(
        tenant.id
        for tenant, events in due.by_tenant()
        if apply_events(graph.for_tenant(tenant.id), tenant, events, due.counts.get(tenant.id, {})).needs_rebuild
    )


class EmbeddedCommitter:
    """Raw rows, graph and mark in one transaction."""

    def __init__(self, engine: Engine, measures: Measures) -> None:
        self._engine = engine
        self._measures = measures

    def commit(self, items: Sequence[Item]) -> Committed:
        with timed(self._measures, "raw", len(items)), timed(self._measures, "graph", len(items)):
            return transact(self._engine, lambda connection: self._work(connection, items), attempts=ATTEMPTS)

    def _work(self, connection: Connection, items: Sequence[Item]) -> Committed:
        due = _due(connection, items)
        if not due.items:
            return Committed()
        rebuild = _apply(EmbeddedGraph.in_transaction(connection), due)
        applied, lacking = _split(due.fresh, rebuild)
        raw_events.insert(connection, [item.row for item in applied], applied_at=now())
        raw_events.insert(connection, [item.row for item in lacking])
        raw_events.mark_applied(connection, [item.key for item in _split(due.waiting, rebuild)[0]])
        if rebuild:
            rebuild_requests.request(connection, rebuild)
        return Committed(rebuild)

    def flush(self) -> None:
        """Nothing is postponed."""

    def withdraw(self, item: Item) -> None:
        """Nothing to take back: the transaction was."""

    def close(self) -> None:
        """Nothing to close: the engine is the caller's."""


@dataclass
class ParallelCommitter:
    """Raw rows and graph at the same time, on a connection pool and a thread each.

    What of a group is new, and how often its SQLs ran, is known to the database alone: the graph's thread starts when
    that has been read, while the rows are being written. The mark that the graph has a row is written with the next
    group: a crash before it only means that the row is applied once more. So it is left out where a rebuild wrote the
    tenant's graph meanwhile, which may have undone what it did not yet find among the rows; the recovery comes to it.
    """

    engine: Engine
    graph: Graph
    measures: Measures
    _pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="lineage-graph"))
    _unmarked: list[Key] = field(default_factory=list)
    # as it was before the graph was written
    _rewritten_at: Mapping[int, datetime] = field(default_factory=dict)

    def commit(self, items: Sequence[Item]) -> Committed:
        handover: Future[Due] = Future()
        graph = self._pool.submit(self._write_graph, handover)
        try:
            with timed(self.measures, "raw", len(items)):
                transact(self.engine, lambda connection: self._store(connection, items, handover), attempts=ATTEMPTS)
        except BaseException as error:
            if not handover.done():
                handover.set_exception(error)
            graph.exception()  # two groups must not write at once
            raise
        self._unmarked = []
        due = handover.result()
        rebuild = graph.result()
        if rebuild:
            transact(self.engine, lambda connection: rebuild_requests.request(connection, rebuild), attempts=ATTEMPTS)
        self._unmarked = [item.key for item in _split(due.items, rebuild)[0]]
        self._rewritten_at = due.rewritten_at
        return Committed(rebuild)

    def flush(self) -> None:
        if self._unmarked:
            transact(self.engine, lambda connection: self._mark(connection, []), attempts=ATTEMPTS)
            self._unmarked = []

    def withdraw(self, item: Item) -> None:
        transact(self.engine, lambda connection: raw_events.remove_unapplied(connection, [item.key]), attempts=ATTEMPTS)

    def close(self) -> None:
        self._pool.shutdown(wait=False)

    def _store(self, connection: Connection, items: Sequence[Item], handover: Future[Due]) -> None:
        rewritten_at = self._mark(connection, items)
        due = replace(_due(connection, items), rewritten_at=rewritten_at)
        if not handover.done():  # a repetition after a deadlock finds the graph's thread at work already
            handover.set_result(due)
        raw_events.insert(connection, [item.row for item in due.fresh])

    def _mark(self, connection: Connection, items: Sequence[Item]) -> Mapping[int, datetime]:
        """Marks what the graph has; returns when the graphs of all tenants in question were last rewritten."""
        tenants = {key.tenant_id for key in self._unmarked} | {item.tenant.id for item in items}
        now_at, then = rebuild_requests.rewritten_at(connection, tenants), self._rewritten_at
        kept = [key for key in self._unmarked if now_at.get(key.tenant_id) == then.get(key.tenant_id)]
        raw_events.mark_applied(connection, kept)
        return now_at

    def _write_graph(self, handover: Future[Due]) -> frozenset[int]:
        due = handover.result()
        with timed(self.measures, "graph", len(due.items)):
            return _apply(self.graph, due)


def _split(items: Sequence[Item], rebuild: frozenset[int]) -> tuple[list[Item], list[Item]]:
    """Those that the graph has now, and those that a rebuild will bring."""
    return (
        [item for item in items if item.tenant.id not in rebuild],
        [item for item in items if item.tenant.id in rebuild],
    )
