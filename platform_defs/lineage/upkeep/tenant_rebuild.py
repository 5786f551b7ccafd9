"""Rebuilds the graph of one tenant: from the rows of its events, with what names mean and how often each SQL ran."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Set
from functools import partial

from sqlalchemy import Engine

from platform_defs.access.tenants import Tenant, find_tenant
from platform_defs.graph.port import Graph
from platform_defs.lineage.errors import LineageError
from platform_defs.lineage.sink.apply import EventFacts, apply_events
from platform_defs.lineage.sink.rows import raw_events
from platform_defs.lineage.sink.rows.raw_events import EventKey
from platform_defs.lineage.sink.rows.run_counts import SqlRun, read_counts, recount
from platform_defs.lineage.upkeep import rebuild_requests
from platform_defs.lineage.upkeep.rebuild import ROUNDS, RebuildReport, rebuild
from platform_defs.lineage.upkeep.rebuild_requests import Overtaken, RebuildUnderWay
from platform_defs.lineage.upkeep.rebuilt_names import RebuiltNames
from platform_defs.lineage.version import Version, time_of
from platform_defs.store.engine import transact
from platform_defs.store.metadata import now

log = logging.getLogger(__name__)

# The API rebuilds small graphs, one after the other, which keeps a processor busy and its other requests waiting. So
# many events of real engines have 2 MiB; wide ones have a hundred times as much to say.
EVENTS_OF_SMALL, SIZE_OF_SMALL = 500, 4 * 1024 * 1024


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


def rebuild_if_small(engine: Engine, graph: Graph, tenant_id: int) -> None:
    """Rebuilds the graph while an HTTP request waits; if the tenant's events say more, the runner does it later."""
    if not raw_events.are_few(engine, tenant_id, most=EVENTS_OF_SMALL, most_size=SIZE_OF_SMALL):
        return
    tenant = find_tenant(engine, tenant_id)
    if tenant is None:
        raise LineageError(f"tenant {tenant_id} is not on record")
    # a rebuild for an earlier HTTP request may have answered this one's request for a rebuild as well
    if any(request.tenant_id == tenant_id for request in rebuild_requests.list_open(engine)):
        rebuild_tenant(engine, graph, tenant, keep_unexplained=True)
