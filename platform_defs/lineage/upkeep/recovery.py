"""What a crash or a store's absence left undone: raw events that the graph lacks, and graphs that need a rebuild."""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import Connection, Engine

from platform_defs.access.principal import Principal
from platform_defs.access.tenants import Tenant, find_tenant
from platform_defs.canonical import canonical_json
from platform_defs.graph.port import Graph
from platform_defs.lineage.errors import LineageError
from platform_defs.lineage.intake import dead_letters
from platform_defs.lineage.intake.dead_letters import Refusal
from platform_defs.lineage.sink import raw_events
from platform_defs.lineage.sink.apply import Stamped, apply_events
from platform_defs.lineage.sink.commit import is_of_an_event, is_unavailable
from platform_defs.lineage.sink.raw_events import Key, Stored
from platform_defs.lineage.sink.run_counts import Counts, Run, all_counts, count_runs
from platform_defs.lineage.upkeep import rebuild_requests
from platform_defs.lineage.upkeep.rebuild import RebuildReport, rebuild
from platform_defs.lineage.version import time_of
from platform_defs.store.engine import transact
from platform_defs.store.metadata import now

log = logging.getLogger(__name__)

# longer than any request works on its rows: what is older belongs to nobody
PATIENCE = timedelta(seconds=15)


@dataclass(frozen=True, slots=True)
class Recovered:
    """refused: what a store will never take, now among the dead letters."""

    applied: int = 0
    refused: int = 0
    rebuilt: tuple[int, ...] = ()


def is_needed(engine: Engine) -> bool:
    return bool(raw_events.lacking(engine, before=now() - PATIENCE) or rebuild_requests.pending(engine))


def recover(engine: Engine, graph: Graph, *, patience: timedelta = PATIENCE) -> Recovered:
    """Applies everything that waits, oldest first, then rebuilds the marked tenants; idempotent.

    A tenant whose rebuild fails does not keep the others from theirs; that it failed is raised at the end.
    """
    applied = refused = after = 0
    before = now() - patience
    while rows := raw_events.unapplied(engine, before=before, after_id=after):
        after = rows[-1].id
        good, bad = _apply(engine, graph, rows)
        applied, refused = applied + good, refused + bad
    rebuilt: list[int] = []
    failed: dict[int, Exception] = {}
    for mark in rebuild_requests.pending(engine):
        tenant = find_tenant(engine, mark.tenant_id)
        if tenant is None:
            continue
        try:
            rebuild_tenant(engine, graph, tenant, keep_unexplained=True)
            rebuilt.append(tenant.id)
        except Exception as error:
            log.error("the graph of tenant %d could not be rebuilt", tenant.id, exc_info=error)
            failed[tenant.id] = error
    if failed:
        tenants = ", ".join(map(str, failed))
        raise LineageError(f"the graphs of these tenants could not be rebuilt: {tenants}") from failed.popitem()[1]
    return Recovered(applied, refused, tuple(rebuilt))


def rebuild_tenant(
    engine: Engine,
    graph: Graph,
    tenant: Tenant,
    *,
    keep_unexplained: bool = False,
    progress: Callable[[int], None] = lambda done: None,
) -> RebuildReport:
    """The tenant's graph from its raw events; afterwards they count as applied.

    keep_unexplained: what the graph remembers of events that are stored no longer stays. Only an operator, who is told
    from when on events are stored, may have it removed.
    """
    requested = rebuild_requests.requested(engine, tenant.id)
    lacking: set[Key] = set()

    def read_events() -> Iterator[Stamped]:
        for stored in raw_events.in_version_order(engine, tenant.id):
            if not stored.applied:
                lacking.add(Key(tenant.id, stored.fingerprint))
            yield stored.stamped

    report = rebuild(
        engine, graph, tenant, read_events=read_events, keep_unexplained=keep_unexplained, progress=progress
    )
    store = graph.for_tenant(tenant.id)
    for some in all_counts(engine, tenant.id):
        apply_events(store, tenant, [], some)
    transact(engine, lambda connection: raw_events.mark_applied(connection, list(lacking)))
    first = None if report.first is None else time_of(report.first)
    rebuild_requests.answer(engine, tenant.id, requested, first=first)
    return report


def rebuild_if_small(engine: Engine, graph: Graph, tenant_id: int, *, at_most: int) -> None:
    """For a request that waits: a larger tenant is left to the runner, its mark is durable."""
    if raw_events.count(engine, tenant_id, at_most=at_most + 1) > at_most:
        return
    tenant = find_tenant(engine, tenant_id)
    if tenant is None:
        raise LineageError(f"tenant {tenant_id} is not on record")
    # another request may have asked while an earlier rebuild ran
    if any(mark.tenant_id == tenant_id for mark in rebuild_requests.pending(engine)):
        rebuild_tenant(engine, graph, tenant, keep_unexplained=True)


def _apply(engine: Engine, graph: Graph, rows: Sequence[Stored]) -> tuple[int, int]:
    """Applied and refused; a group that fails for one of its events is split until that one is alone."""
    try:
        return _apply_group(engine, graph, rows), 0
    except Exception as error:
        if is_unavailable(error):
            raise
        if len(rows) == 1 and is_of_an_event(error):
            _refuse(engine, rows[0], error)
            return 0, 1
        if len(rows) == 1:
            # it was accepted: whatever nobody foresaw, the row stays and is tried again
            log.error("raw event %d cannot be applied and waits", rows[0].id, exc_info=error)
            return 0, 0
    middle = len(rows) // 2
    first, second = _apply(engine, graph, rows[:middle]), _apply(engine, graph, rows[middle:])
    return first[0] + second[0], first[1] + second[1]


def _apply_group(engine: Engine, graph: Graph, rows: Sequence[Stored]) -> int:
    runs = [Run(row.tenant.id, row.sql_id, row.event.run_id) for row in rows if row.sql_id and row.event.run_id]
    counts: Counts = transact(engine, lambda connection: count_runs(connection, runs))
    done: list[Key] = []
    for tenant, mine in _by_tenant(rows):
        stamped = [row.stamped for row in mine]
        outcome = apply_events(graph.for_tenant(tenant.id), tenant, stamped, counts.get(tenant.id, {}))
        if outcome.needs_rebuild:
            transact(engine, lambda connection, tenant=tenant: rebuild_requests.request(connection, [tenant.id]))  # type: ignore[misc]
        else:
            done += [Key(tenant.id, row.fingerprint) for row in mine]
    transact(engine, lambda connection: raw_events.mark_applied(connection, done))
    return len(done)


def _refuse(engine: Engine, row: Stored, error: Exception) -> None:
    log.error("raw event %d cannot be applied and goes to the dead letters", row.id, exc_info=error)
    source = Principal("key", "recovery", frozenset(), source_type=row.source_type, tenant=row.tenant)
    dead_letters.keep(engine, source, [Refusal(canonical_json(row.event.raw), f"{type(error).__name__}: {error}")])
    key = Key(row.tenant.id, row.fingerprint)

    def remove(connection: Connection) -> None:
        raw_events.remove_unapplied(connection, [key])

    transact(engine, remove)


def _by_tenant(rows: Sequence[Stored]) -> Iterator[tuple[Tenant, list[Stored]]]:
    groups: dict[int, tuple[Tenant, list[Stored]]] = {}
    for row in rows:
        groups.setdefault(row.tenant.id, (row.tenant, []))[1].append(row)
    yield from groups.values()
