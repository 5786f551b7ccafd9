"""Recovery after a crash or an outage: applies raw events that the graph lacks and rebuilds graphs that need it."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from sqlalchemy import Connection, Engine

from platform_defs.access.principal import Principal
from platform_defs.access.tenants import Tenant, find_tenant, find_tenants
from platform_defs.canonical import canonical_json
from platform_defs.errors import one_line
from platform_defs.graph.errors import GraphInterrupted, GraphTooSlow, GraphUnavailable
from platform_defs.graph.port import Graph
from platform_defs.lineage.errors import LineageError
from platform_defs.lineage.facts import Ref, weight_of
from platform_defs.lineage.intake import dead_letters
from platform_defs.lineage.intake.dead_letters import Refusal
from platform_defs.lineage.sink.apply import EventFacts, apply_events
from platform_defs.lineage.sink.commit import is_caused_by_event, is_store_unavailable
from platform_defs.lineage.sink.pending import names_to_look_for, tables_of_names
from platform_defs.lineage.sink.rows import raw_events
from platform_defs.lineage.sink.rows.raw_events import EventKey, StoredEvent
from platform_defs.lineage.sink.rows.run_counts import Counts, SqlRun, count_runs, read_counts, recount
from platform_defs.lineage.sink.rows.symlinks import resolve_names
from platform_defs.lineage.upkeep import rebuild_requests, recovery_failures
from platform_defs.lineage.upkeep.rebuild import ROUNDS, RebuildReport, rebuild
from platform_defs.lineage.upkeep.rebuild_requests import Overtaken, RebuildUnderWay
from platform_defs.lineage.upkeep.rebuilt_names import RebuiltNames
from platform_defs.lineage.version import Version, time_of
from platform_defs.store.engine import transact
from platform_defs.store.metadata import now

log = logging.getLogger(__name__)

# No request works on its rows for as long as this, so an unapplied row that is older belongs to no request any more.
ABANDONED_AFTER = timedelta(seconds=15)

# A group of the recovery has at most so many facts, unless one event alone has more.
GROUP_FACTS = 10_000
# Of so many tenants one recovery leaves the events to a rebuild or to the next recovery, because the graph has ended
# their transactions. If there are more, it is not the events or a lock but a store that is too slow.
MAX_LEFT = 2
# So many transactions of one recovery may end like that, which takes ten seconds each. Finding the one event that is
# too wide among the 500 that are read at once takes two or three of them, or ten if others have more facts.
MAX_ENDED = 12


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """refused: events that the graph can never hold; they are dead letters now. rebuilt: ids of tenants.

    waiting: events that could not be applied for a reason nobody foresaw; they are tried again. why: the last reason.
    too_wide: ids of tenants with an event that one transaction cannot write in time; their graphs are rebuilt, which
    writes them in parts. held: ids of tenants whose graph something else has locked, so that their events wait.
    held_by: what the graph said of the last one. ended: how many transactions it has ended for one of the two reasons.
    """

    applied: int = 0
    refused: int = 0
    waiting: int = 0
    why: str = ""
    rebuilt: tuple[int, ...] = ()
    too_wide: frozenset[int] = frozenset()
    held: frozenset[int] = frozenset()
    held_by: str = ""
    ended: int = 0

    @property
    def left(self) -> frozenset[int]:
        """Ids of tenants of which this recovery applies no more events."""
        return self.too_wide | self.held


def is_recovery_needed(engine: Engine) -> bool:
    return bool(
        raw_events.count_unapplied(engine, before=now() - ABANDONED_AFTER) or rebuild_requests.list_open(engine)
    )


def recover(engine: Engine, graph: Graph, *, patience: timedelta = ABANDONED_AFTER) -> RecoveryReport:
    """Applies all waiting events, oldest first, then rebuilds the graphs for which a rebuild is requested.

    It is idempotent. If the rebuild of one tenant fails, the other tenants are rebuilt all the same; then the failure
    is raised. Failures are counted until the next success; an event that could not be applied is one, too.
    """
    try:
        report = _recover(engine, graph, patience)
    except Exception as error:
        recovery_failures.record_failure(engine, error)
        raise
    if report.waiting:
        reason = LineageError(f"{report.waiting} events cannot be applied and wait: {report.why}")
        recovery_failures.record_failure(engine, reason)
    else:
        recovery_failures.record_success(engine)
    return report


def _recover(engine: Engine, graph: Graph, patience: timedelta) -> RecoveryReport:
    report, stopped_by = _apply_waiting(engine, graph, now() - patience)
    report = replace(report, rebuilt=_rebuild_requested(engine, graph))
    if stopped_by is not None:
        raise stopped_by
    if report.held:
        tenants = ", ".join(map(str, sorted(report.held)))
        raise LineageError(f"events of the tenants {tenants} wait, because their graphs are locked: {report.held_by}")
    return report


def _apply_waiting(engine: Engine, graph: Graph, before: datetime) -> tuple[RecoveryReport, GraphUnavailable | None]:
    """Applies what was stored before that time, until a graph proves to be too slow for anything."""
    report = RecoveryReport()
    for rows in raw_events.read_unapplied(engine, before=before):
        for group in _groups(rows):
            try:
                report = _apply(engine, graph, group, report)
            except (GraphTooSlow, GraphInterrupted) as error:
                return report, error
    return report, None


def _rebuild_requested(engine: Engine, graph: Graph) -> tuple[int, ...]:
    rebuilt: list[int] = []
    failed: dict[int, Exception] = {}
    for request in rebuild_requests.list_open(engine):
        tenant = find_tenant(engine, request.tenant_id)
        if tenant is None:
            continue
        try:
            rebuild_tenant(engine, graph, tenant, keep_unexplained=True)
            rebuilt.append(tenant.id)
        except Exception as error:
            log.error("the graph of tenant %d could not be rebuilt", tenant.id, exc_info=error)
            failed[tenant.id] = error
    if failed:
        tenants, cause = ", ".join(map(str, failed)), failed.popitem()[1]
        raise LineageError(f"the graphs of tenants {tenants} could not be rebuilt: {one_line(cause)}") from cause
    return tuple(rebuilt)


def rebuild_tenant(
    engine: Engine,
    graph: Graph,
    tenant: Tenant,
    *,
    keep_unexplained: bool = False,
    progress: Callable[[int], None] = lambda done: None,
    forgotten: Set[Version] = frozenset(),
) -> RebuildReport:
    """Rebuilds the tenant's graph from its raw events and marks them as applied.

    keep_unexplained: facts whose events retention has deleted stay in the graph. Only an operator, who is told how far
    back the stored events reach, may have such facts removed. The graph becomes as if the `forgotten` events had never
    been sent.
    """
    if not keep_unexplained:
        raw_events.renew_versions(engine, tenant.id)
    for _ in range(ROUNDS):
        try:
            return _rebuild_once(engine, graph, tenant, keep_unexplained, progress, forgotten)
        except Overtaken:
            log.info("the graph of tenant %d was rebuilt by another process meanwhile; begins again", tenant.id)
    raise LineageError(f"the graph of tenant {tenant.id} is rebuilt by other processes again and again")


def _rebuild_once(
    engine: Engine,
    graph: Graph,
    tenant: Tenant,
    keep_unexplained: bool,
    progress: Callable[[int], None],
    forgotten: Set[Version],
) -> RebuildReport:
    began, began_at = time.monotonic(), now()
    under_way = RebuildUnderWay(engine, tenant.id)
    unapplied: dict[Version, EventKey] = {}
    read: set[int] = set()
    runs: set[SqlRun] = set()
    names = RebuiltNames(engine, tenant.id)

    def read_events() -> Iterator[EventFacts]:
        names.begin()
        for stored in raw_events.read_in_version_order(engine, tenant.id):
            if stored.event_facts.version in forgotten:
                continue
            read.add(stored.id)
            if not stored.applied:
                unapplied[stored.event_facts.version] = EventKey(tenant.id, stored.fingerprint)
            if stored.sql_id and stored.event.run_id:
                runs.add(SqlRun(tenant.id, stored.sql_id, stored.event.run_id))
            yield stored.facts_with(names.linked(stored.name_use))
        names.end()

    report = rebuild(
        engine,
        graph,
        tenant,
        read_events=read_events,
        keep_unexplained=keep_unexplained,
        progress=progress,
        forgotten=forgotten,
        counts=None if keep_unexplained else lambda: Counter(run.sql_id for run in runs),
        # whoever forgets events repeats that after a crash, and the recovery would bring them back
        before_write=(lambda: None) if forgotten else under_way.before_write,
    )
    names.finish()
    store = graph.for_tenant(tenant.id)
    if not keep_unexplained:
        recount(engine, tenant.id, runs, read_events=read, since=began_at)
    for some in read_counts(engine, tenant.id):
        apply_events(store, tenant, [], some)
    done = [key for version, key in unapplied.items() if version not in report.late]
    transact(engine, lambda connection: raw_events.mark_applied(connection, done))
    if report.late:
        transact(engine, partial(rebuild_requests.request_rebuild, tenant_ids=[tenant.id]))
    took = time.monotonic() - began
    message = (
        "rebuilt the graph of tenant %d from %d events in %.1f s; %d that came meanwhile wait for the next rebuild"
    )
    log.info(message, tenant.id, report.events, took, len(report.late))
    under_way.answer(None if report.first is None else time_of(report.first))
    return report


def rebuild_if_small(engine: Engine, graph: Graph, tenant_id: int, *, at_most: int) -> None:
    """Rebuilds the graph while an HTTP request waits; if the tenant has more events, the runner does it later."""
    if raw_events.count_events(engine, tenant_id, at_most=at_most + 1) > at_most:
        return
    tenant = find_tenant(engine, tenant_id)
    if tenant is None:
        raise LineageError(f"tenant {tenant_id} is not on record")
    # a rebuild for an earlier HTTP request may have answered this one's request for a rebuild as well
    if any(request.tenant_id == tenant_id for request in rebuild_requests.list_open(engine)):
        rebuild_tenant(engine, graph, tenant, keep_unexplained=True)


def _groups(rows: Sequence[StoredEvent]) -> Iterator[list[StoredEvent]]:
    """The rows in groups that one transaction of the graph can write in time, as the sink forms them."""
    group: list[StoredEvent] = []
    facts = 0
    for row in rows:
        weight = _weight(row)
        if group and facts + weight > GROUP_FACTS:
            yield group
            group, facts = [], 0
        group.append(row)
        facts += weight
    if group:
        yield group


def _weight(row: StoredEvent) -> int:
    return sum(map(weight_of, row.event_facts.facts))


def _apply(engine: Engine, graph: Graph, rows: Sequence[StoredEvent], before: RecoveryReport) -> RecoveryReport:
    """Adds these events to the report. A group that fails is split until the bad event is alone."""
    # what a rebuild or the next recovery will apply needs no try of its own
    rows = [row for row in rows if row.tenant.id not in before.left]
    if not rows:
        return before
    try:
        return replace(before, applied=before.applied + _apply_group(engine, graph, rows))
    except (GraphTooSlow, GraphInterrupted) as error:
        if len(before.left) >= MAX_LEFT or before.ended >= MAX_ENDED:
            raise
        report = replace(before, ended=before.ended + 1)
        if isinstance(error, GraphInterrupted) and len({row.tenant.id for row in rows}) == 1:
            return _leave_to_next(rows[0].tenant, report, error)
        if len(rows) == 1:
            return _leave_to_rebuild(engine, rows[0], report)
        parts = _suspects_apart(rows)
    except Exception as error:
        if is_store_unavailable(error):
            raise
        if len(rows) == 1 and is_caused_by_event(error):
            _refuse(engine, rows[0], error)
            return replace(before, refused=before.refused + 1)
        if len(rows) == 1:
            # The client was told that this event is accepted. So an error that nobody foresaw must not discard it:
            # the row stays and is tried again.
            log.error("raw event %d cannot be applied and waits", rows[0].id, exc_info=error)
            return replace(before, waiting=before.waiting + 1, why=f"{type(error).__name__}: {one_line(error)}")
        report, parts = before, [rows[: len(rows) // 2], rows[len(rows) // 2 :]]
    for part in parts:
        report = _apply(engine, graph, part, report)
    return report


def _suspects_apart(rows: Sequence[StoredEvent]) -> list[Sequence[StoredEvent]]:
    """Parts of what took too long: its tenants, which are written apart; of one tenant the widest event first."""
    tenants: list[Sequence[StoredEvent]] = [mine for _, mine in _by_tenant(rows)]
    if len(tenants) > 1:
        return tenants
    widest = max(range(len(rows)), key=lambda index: _weight(rows[index]))
    others = [*rows[:widest], *rows[widest + 1 :]]
    parts = [rows[widest : widest + 1], others[: len(others) // 2], others[len(others) // 2 :]]
    return [part for part in parts if part]


def _leave_to_rebuild(engine: Engine, row: StoredEvent, before: RecoveryReport) -> RecoveryReport:
    message = "raw event %d of tenant %d takes longer than a transaction may; a rebuild of the graph writes it in parts"
    log.warning(message, row.id, row.tenant.id)
    transact(engine, partial(rebuild_requests.request_rebuild, tenant_ids=[row.tenant.id]))
    return replace(before, too_wide=before.too_wide | {row.tenant.id})


def _leave_to_next(tenant: Tenant, before: RecoveryReport, error: GraphInterrupted) -> RecoveryReport:
    """A rebuild would wait for the same lock, and the next recovery comes soon."""
    log.warning("the events of tenant %d wait for the next recovery: %s", tenant.id, one_line(error))
    return replace(before, held=before.held | {tenant.id}, held_by=one_line(error))


def _apply_group(engine: Engine, graph: Graph, rows: Sequence[StoredEvent]) -> int:
    runs = [SqlRun(row.tenant.id, row.sql_id, row.event.run_id) for row in rows if row.sql_id and row.event.run_id]
    counts: Counts = transact(engine, lambda connection: count_runs(connection, runs))
    linked = transact(engine, lambda connection: _resolve_names(connection, graph, rows))
    done: list[EventKey] = []
    on_record = find_tenants(engine, {row.tenant.id for row in rows})
    for of_row, mine in _by_tenant(rows):
        tenant = on_record.get(of_row.id, of_row)
        facts = [row.facts_with(linked[row.id]) for row in mine]
        result = apply_events(graph.for_tenant(tenant.id), tenant, facts, counts.get(tenant.id, {}))
        if result.needs_rebuild:
            transact(engine, partial(rebuild_requests.request_rebuild, tenant_ids=[tenant.id]))
        else:
            done += [EventKey(tenant.id, row.fingerprint) for row in mine]
    transact(engine, lambda connection: raw_events.mark_applied(connection, done))
    return len(done)


def _resolve_names(connection: Connection, graph: Graph, rows: Sequence[StoredEvent]) -> dict[int, Mapping[Ref, Ref]]:
    """What names mean, by the id of the row. Also requests the rebuilds that the events' symlinks make necessary."""
    changes = rebuild_requests.read_marks(connection, {row.tenant.id for row in rows})
    uses = [row.name_use for row in rows]
    found = resolve_names(connection, uses, {id: marks.symlink_changes for id, marks in changes.items()})
    suspects = names_to_look_for(found, uses, found.linked)
    if rebuild := found.rebuild | tables_of_names(graph, suspects).keys():
        rebuild_requests.request_rebuild(connection, rebuild)
    return {row.id: linked for row, linked in zip(rows, found.linked, strict=True)}


def _refuse(engine: Engine, row: StoredEvent, error: Exception) -> None:
    log.error("raw event %d cannot be applied and goes to the dead letters", row.id, exc_info=error)
    source = Principal("key", "recovery", frozenset(), source_type=row.source_type, tenant=row.tenant)
    dead_letters.store_refusals(
        engine, source, [Refusal(canonical_json(row.event.raw), f"{type(error).__name__}: {error}")]
    )
    key = EventKey(row.tenant.id, row.fingerprint)

    def remove(connection: Connection) -> None:
        raw_events.remove_unapplied(connection, [key])

    transact(engine, remove)


def _by_tenant(rows: Sequence[StoredEvent]) -> Iterator[tuple[Tenant, list[StoredEvent]]]:
    groups: dict[int, tuple[Tenant, list[StoredEvent]]] = {}
    for row in rows:
        groups.setdefault(row.tenant.id, (row.tenant, []))[1].append(row)
    yield from groups.values()
