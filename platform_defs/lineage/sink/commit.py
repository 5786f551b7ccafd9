"""Writes one group of events to both stores: in one transaction if the graph is embedded, in parallel with Neo4j.

The write to each store is idempotent. If a crash leaves only a part of a group, sending the group again completes it.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DataError, IntegrityError

from platform_defs.access.tenants import Tenant
from platform_defs.errors import GraphError
from platform_defs.graph.embedded import EmbeddedGraph
from platform_defs.graph.errors import GraphConflict, GraphLost, InvalidGraphValue
from platform_defs.graph.port import Graph
from platform_defs.lineage.merge.relinking import Relink
from platform_defs.lineage.sink import own_writes
from platform_defs.lineage.sink.apply import EventFacts, apply_events
from platform_defs.lineage.sink.metrics import SinkMetrics, measure_write
from platform_defs.lineage.sink.pace import Pace, PacedStore, Updatable
from platform_defs.lineage.sink.pending import PendingWrites, PreparedEvent, find_pending, tables_of_names
from platform_defs.lineage.sink.rows import raw_events
from platform_defs.lineage.sink.rows.raw_events import EventKey
from platform_defs.lineage.sink.rows.symlinks import NameWatch
from platform_defs.lineage.upkeep import rebuild_requests
from platform_defs.lineage.upkeep.rebuild_requests import TenantMarks
from platform_defs.lineage.version import Version
from platform_defs.store.engine import is_unavailable, transact
from platform_defs.store.errors import PacketTooLarge
from platform_defs.store.metadata import now

# A request has four seconds: a transaction is repeated once after a deadlock, then the client is asked to send again.
ATTEMPTS = 2

# So many events of a group may be left to a rebuild while the others are applied; each costs another try.
MAX_LATE = 3
# by tenant, the versions of events that need a rebuild
Late = Mapping[int, frozenset[Version]]


@dataclass(frozen=True, slots=True)
class CommitResult:
    """rebuild: ids of tenants whose graph must be rebuilt; the rebuild is requested already.

    waiting: the events that only the rebuild will bring into the graph.
    """

    rebuild: frozenset[int] = frozenset()
    waiting: frozenset[EventKey] = frozenset()


class Committer(Protocol):
    """Writes groups to both stores. It is called from one thread at a time."""

    def commit(self, events: Sequence[PreparedEvent]) -> CommitResult:
        """Returns when both stores hold all of the events."""

    def flush(self) -> None:
        """Writes the marks that were postponed in order to be written together with the next group."""

    def withdraw(self, event: PreparedEvent) -> None:
        """Deletes the raw row of an event that the graph has refused."""

    def close(self) -> None: ...


def is_caused_by_event(error: BaseException) -> bool:
    """Whether a store refuses an event because of its content, so that it would refuse the event again."""
    return isinstance(error, InvalidGraphValue | GraphConflict | DataError | IntegrityError | PacketTooLarge)


def is_store_unavailable(error: BaseException) -> bool:
    """Whether the store failed and not an event: the group is in order and may be sent again."""
    if isinstance(error, GraphError):
        # Neo4j has too many errors of its own to list here: a full disk, a missing right, a database that is gone.
        return not is_caused_by_event(error)
    return is_unavailable(error)


def _request_missed_rebuilds(engine: Engine, graph: Graph, pending: PendingWrites) -> frozenset[int]:
    """Requests rebuilds for tables that another process wrote under a linked name before it could see the symlink.

    To be called after the symlinks are committed. Returns the tenants.
    """
    missed = frozenset(tables_of_names(graph, pending.names.new).keys() - pending.rebuild)
    if missed:
        transact(engine, lambda connection: rebuild_requests.request_rebuild(connection, missed), attempts=ATTEMPTS)
    return missed


def _store_events_ahead(engine: Engine, events: Sequence[PreparedEvent]) -> None:
    """Stores the rows of events whose version depends on their arrival, in a transaction of their own.

    Another process may get the same event at the same time. Only one of the two rows is stored, and both processes then
    find its version in the row.
    """
    rows = [event.row for event in events if event.ahead]
    if rows:
        transact(engine, lambda connection: raw_events.insert_rows(connection, rows), attempts=ATTEMPTS)


def _remove_row(engine: Engine, event: PreparedEvent) -> None:
    transact(engine, lambda connection: raw_events.remove_unapplied(connection, [event.key]), attempts=ATTEMPTS)


def _apply_to_graph(graph: Graph, pending: PendingWrites, pace: Pace | None = None) -> Late:
    """Applies the events and returns, by tenant, those for which the graph must be rebuilt instead."""

    def open_store(tenant_id: int) -> Updatable:
        store = graph.for_tenant(tenant_id)
        return store if pace is None else PacedStore(store, pace)

    late: dict[int, frozenset[Version]] = {}
    for tenant, events in pending.by_tenant():
        counts, relink = pending.counts.get(tenant.id, {}), pending.relinks.get(tenant.id)
        try:
            some = _apply_all_but_late(open_store(tenant.id), tenant, events, counts, relink)
        except GraphError as error:
            error.tenant = tenant.id
            raise
        if some:
            late[tenant.id] = some
    return late


def _apply_all_but_late(
    store: Updatable,
    tenant: Tenant,
    events: Sequence[EventFacts],
    counts: Mapping[str, int],
    relink: Relink | None,
) -> frozenset[Version]:
    """Applies the events except those that need a rebuild, which it returns: all of them if these are too many."""
    late: set[Version] = set()
    while True:
        rest = [event for event in events if event.version not in late]
        result = apply_events(store, tenant, rest, counts, relink)
        if not result.needs_rebuild:
            return frozenset(late)
        # events that are applied anew because of a symlink belong to the event that says it
        if result.late is None or relink is not None or len(late) == MAX_LATE:
            return frozenset(event.version for event in events)
        late.add(result.late)


class EmbeddedCommitter:
    """Writes raw rows, graph and marks in one transaction, for a graph that lives in the same database."""

    def __init__(self, engine: Engine, metrics: SinkMetrics, pace: Pace | None = None) -> None:
        self._engine = engine
        self._metrics = metrics
        self._pace = pace
        self._watch = NameWatch()

    def commit(self, events: Sequence[PreparedEvent]) -> CommitResult:
        with measure_write(self._metrics, "raw", len(events)), measure_write(self._metrics, "graph", len(events)):
            _store_events_ahead(self._engine, events)
            pending, late = transact(
                self._engine, lambda connection: self._write(connection, events), attempts=ATTEMPTS
            )
        self._watch = pending.watch()
        missed = _request_missed_rebuilds(self._engine, EmbeddedGraph.on(self._engine), pending)
        return _result(pending, late, missed)

    def _write(self, connection: Connection, events: Sequence[PreparedEvent]) -> tuple[PendingWrites, Late]:
        with own_writes.granted(connection):
            return self._write_granted(connection, events)

    def _write_granted(self, connection: Connection, events: Sequence[PreparedEvent]) -> tuple[PendingWrites, Late]:
        graph = EmbeddedGraph.in_transaction(connection)
        pending = find_pending(connection, graph, events, self._watch)
        if not pending.events:
            return pending, {}
        late = _apply_to_graph(graph, pending, self._pace)
        applied, unapplied = _split_by_rebuild(pending.fresh, pending.rebuild, late)
        raw_events.insert_rows(connection, [event.row for event in applied], applied_at=now())
        raw_events.insert_rows(connection, [event.row for event in unapplied])
        applied, _ = _split_by_rebuild(pending.waiting, pending.rebuild, late)
        raw_events.mark_applied(connection, [event.key for event in applied])
        if late:
            rebuild_requests.request_rebuild(connection, late)
        return pending, late

    def flush(self) -> None:
        if self._watch.tenants:
            transact(
                self._engine,
                lambda connection: find_pending(connection, EmbeddedGraph.on(self._engine), [], self._watch),
                attempts=ATTEMPTS,
            )
            self._watch = NameWatch()

    def withdraw(self, event: PreparedEvent) -> None:
        """Only a row that was stored before the transaction which the event made fail is left."""
        if event.ahead:
            _remove_row(self._engine, event)

    def close(self) -> None:
        """Does nothing: the engine belongs to the caller."""


@dataclass
class ParallelCommitter:
    """Writes raw rows and graph at the same time, with a thread and a connection pool for each.

    Only the database knows which events of a group are new and how often their SQLs ran. So the graph's thread starts
    when that has been read, while the raw rows are being written. The mark that the graph has an event is written
    together with the next group; a crash before that only means that the recovery applies the event once more.

    No mark is written if a rebuild has written the tenant's graph in the meantime: the rebuild may not have seen the
    event's row yet and may have undone its changes. The recovery then applies the event again.
    """

    engine: Engine
    graph: Graph
    metrics: SinkMetrics
    # called when a group finds that the graph is gone
    on_lost: Callable[[], None] = lambda: None
    # gives way to other committers between the steps of a write to the graph
    pace: Pace | None = None
    _pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="lineage-graph"))
    _unmarked: list[EventKey] = field(default_factory=list)
    # what was on record of the tenants before the events in _unmarked were written to the graph
    _marks: Mapping[int, TenantMarks] = field(default_factory=dict)
    _watch: NameWatch = field(default_factory=NameWatch)

    def commit(self, events: Sequence[PreparedEvent]) -> CommitResult:
        try:
            return self._commit(events)
        except GraphLost:
            # names are looked up in the graph too, before and after the events are written to it
            self.on_lost()
            raise

    def _commit(self, events: Sequence[PreparedEvent]) -> CommitResult:
        _store_events_ahead(self.engine, events)
        handover: Future[PendingWrites] = Future()
        graph_write = self._pool.submit(self._write_graph, handover)
        try:
            with measure_write(self.metrics, "raw", len(events)):
                transact(self.engine, lambda connection: self._store(connection, events, handover), attempts=ATTEMPTS)
        except BaseException as error:
            if not handover.done():
                handover.set_exception(error)
            graph_write.exception()  # waits for the graph's thread: two groups must not write at once
            raise
        self._unmarked = []
        pending = handover.result()
        late = graph_write.result()
        if late:
            transact(
                self.engine,
                lambda connection: rebuild_requests.request_rebuild(connection, late),
                attempts=ATTEMPTS,
            )
        missed = _request_missed_rebuilds(self.engine, self.graph, pending)
        result = _result(pending, late, missed)
        self._unmarked = [event.key for event in pending.events if event.key not in result.waiting]
        self._marks, self._watch = pending.marks, pending.watch()
        return result

    def flush(self) -> None:
        if self._unmarked or self._watch.tenants:
            transact(self.engine, self._mark_last_group, attempts=ATTEMPTS)
            self._unmarked, self._watch = [], NameWatch()

    def withdraw(self, event: PreparedEvent) -> None:
        _remove_row(self.engine, event)

    def close(self) -> None:
        self._pool.shutdown(wait=False)

    def _store(self, connection: Connection, events: Sequence[PreparedEvent], handover: Future[PendingWrites]) -> None:
        pending = find_pending(connection, self.graph, events, self._watch)
        self._mark_applied(connection, pending.marks)
        # when the transaction is repeated after a deadlock, the graph's thread already works on the first reading
        if not handover.done():
            handover.set_result(pending)
        raw_events.insert_rows(connection, [event.row for event in pending.fresh])

    def _mark_last_group(self, connection: Connection) -> None:
        self._mark_applied(connection, find_pending(connection, self.graph, [], self._watch).marks)

    def _mark_applied(self, connection: Connection, marks: Mapping[int, TenantMarks]) -> None:
        """Marks the events of the previous group, unless a rebuild has written their tenant's graph since."""

        def rebuilt_at(key: EventKey, marks: Mapping[int, TenantMarks]) -> datetime | None:
            return marks.get(key.tenant_id, TenantMarks()).rebuilt_at

        not_rewritten = [key for key in self._unmarked if rebuilt_at(key, marks) == rebuilt_at(key, self._marks)]
        raw_events.mark_applied(connection, not_rewritten)

    def _write_graph(self, handover: Future[PendingWrites]) -> Late:
        pending = handover.result()
        with measure_write(self.metrics, "graph", len(pending.events)):
            return _apply_to_graph(self.graph, pending, self.pace)


def _result(pending: PendingWrites, late: Late, missed: frozenset[int]) -> CommitResult:
    renamed = pending.rebuild | missed
    _, waiting = _split_by_rebuild(pending.events, renamed, late)
    return CommitResult(renamed | late.keys(), frozenset(event.key for event in waiting))


def _split_by_rebuild(
    events: Sequence[PreparedEvent], rebuild: frozenset[int], late: Late
) -> tuple[list[PreparedEvent], list[PreparedEvent]]:
    """The events that the graph has now, and those that only a rebuild will bring into it.

    rebuild: tenants of which it will bring all of them, because names have other meanings now.
    """

    def waits(event: PreparedEvent) -> bool:
        id = event.tenant.id
        return id in rebuild or event.event_facts.version in late.get(id, ())

    return [event for event in events if not waits(event)], [event for event in events if waits(event)]
