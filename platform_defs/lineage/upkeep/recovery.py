"""Recovery after a crash or an outage: applies raw events that the graph lacks and rebuilds graphs that need it."""

import logging
from collections.abc import Iterator, Mapping, Sequence
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
from platform_defs.lineage.facts import Ref
from platform_defs.lineage.intake import dead_letters
from platform_defs.lineage.intake.dead_letters import Refusal
from platform_defs.lineage.sink.apply import apply_events
from platform_defs.lineage.sink.commit import is_caused_by_event, is_store_unavailable
from platform_defs.lineage.sink.pending import names_to_look_for, tables_of_names
from platform_defs.lineage.sink.rows import raw_events
from platform_defs.lineage.sink.rows.raw_events import EventKey, StoredEvent
from platform_defs.lineage.sink.rows.run_counts import Counts, SqlRun, count_runs
from platform_defs.lineage.sink.rows.symlinks import resolve_names
from platform_defs.lineage.upkeep import rebuild_requests, recovery_failures
from platform_defs.lineage.upkeep.groups import MAX_ENDED, groups_in_time, halves, weight_of_all, widest_apart
from platform_defs.lineage.upkeep.tenant_rebuild import rebuild_tenant
from platform_defs.store.engine import transact
from platform_defs.store.metadata import now

log = logging.getLogger(__name__)

# No request works on its rows for as long as this, so an unapplied row that is older belongs to no request any more.
ABANDONED_AFTER = timedelta(seconds=15)

# Of so many tenants one recovery leaves the events to a rebuild or to the next recovery, because the graph has ended
# their transactions. If there are more, it is not the events or a lock but a store that is too slow.
MAX_LEFT = 2


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
    def passed_over(self) -> frozenset[int]:
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
        for group in groups_in_time(rows, _weight):
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


def _weight(row: StoredEvent) -> int:
    return weight_of_all(row.event_facts.facts)


def _apply(engine: Engine, graph: Graph, rows: Sequence[StoredEvent], before: RecoveryReport) -> RecoveryReport:
    """Adds these events to the report. A group that fails is split until the bad event is alone."""
    # what a rebuild or the next recovery will apply needs no try of its own
    rows = [row for row in rows if row.tenant.id not in before.passed_over]
    if not rows:
        return before
    try:
        return replace(before, applied=before.applied + _apply_group(engine, graph, rows))
    except (GraphTooSlow, GraphInterrupted) as error:
        if len(before.passed_over) >= MAX_LEFT or before.ended >= MAX_ENDED:
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
        report, parts = before, halves(rows)
    for part in parts:
        report = _apply(engine, graph, part, report)
    return report


def _suspects_apart(rows: Sequence[StoredEvent]) -> list[Sequence[StoredEvent]]:
    """Parts of what took too long: its tenants, which are written apart; of one tenant the widest event first."""
    tenants: list[Sequence[StoredEvent]] = [mine for _, mine in _by_tenant(rows)]
    if len(tenants) > 1:
        return tenants
    return widest_apart(rows, _weight)


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
