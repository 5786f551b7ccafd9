"""For tests of the sink: events that come to a tenant in any order, through the real committers of each store."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Engine, delete

from platform_defs.access.principal import Principal, SourceType
from platform_defs.access.tenants import Tenant, add_tenant, find_tenant
from platform_defs.graph.port import Graph
from platform_defs.graph.text import graph_lines
from platform_defs.lineage.events import parse_event
from platform_defs.lineage.extract.facts_of import facts_of
from platform_defs.lineage.facts import Ref
from platform_defs.lineage.intake.intake import Intake
from platform_defs.lineage.intake.known_tenants import KnownTenants
from platform_defs.lineage.sink.apply import EventFacts
from platform_defs.lineage.sink.opening import open_committer
from platform_defs.lineage.sink.pending import PreparedEvent
from platform_defs.lineage.upkeep.recovery import recover
from platform_defs.lineage.upkeep.tenant_rebuild import rebuild_tenant
from platform_defs.lineage.version import Version, is_ahead, version_at_arrival
from platform_defs.store.tables.access import tenants
from platform_defs.store.tables.lineage import (
    lineage_events,
    lineage_rebuild,
    lineage_sql,
    lineage_sql_run,
    lineage_symlink,
)
from tests.graph.conftest import random_tenant

_COUNT = re.compile(r'"executionCount": \d+, ')


@dataclass(frozen=True)
class Arrival:
    """An event with the time at which it arrived first: part of the event, because it may decide the order."""

    raw: dict[str, Any]
    at: datetime
    source: SourceType = SourceType.COMPUTE

    @property
    def version(self) -> Version:
        event = parse_event(self.raw)
        return version_at_arrival(event.event_time, self.at, event.payload_hash)


class Deliveries:
    """A new tenant, to which groups of events are delivered as the sink does it."""

    def __init__(self, engine: Engine, graph: Graph) -> None:
        id = random_tenant()
        self.tenant = Tenant(id, f"code{id}", "Somebody")
        self.engine = engine
        self.graph = graph
        self.rebuilds = 0
        add_tenant(engine, self.tenant)
        self.committer = open_committer(engine, graph)
        self._intake = Intake(KnownTenants(engine))

    def prepare(self, arrival: Arrival, principal: Principal | None = None) -> PreparedEvent:
        principal = principal or Principal("key", "test", frozenset(), arrival.source, self.tenant)
        made = self._intake.prepare(principal, arrival.raw).prepared.with_version(arrival.version)
        return replace(made, ahead=is_ahead(made.row["event_time"], arrival.at))

    def deliver(self, group: Sequence[Arrival]) -> None:
        result = self.committer.commit([self.prepare(one) for one in group])
        if result.rebuild:
            self.rebuilds += 1
            self.rebuild(keep=True)

    def rebuild(self, *, keep: bool = False) -> None:
        tenant = find_tenant(self.engine, self.tenant.id)
        assert tenant is not None
        rebuild_tenant(self.engine, self.graph, tenant, keep_unexplained=keep)

    def recover(self) -> None:
        self.committer.flush()
        recover(self.engine, self.graph, patience=timedelta(seconds=-60))

    def lines(self) -> list[str]:
        """Without execution counts, of which the reference knows nothing."""
        return [_COUNT.sub("", line) for line in graph_lines(self.graph.for_tenant(self.tenant.id))]

    def close(self) -> None:
        self.committer.flush()
        self.committer.close()
        self.graph.for_tenant(self.tenant.id).clear()
        with self.engine.begin() as connection:
            for table in (lineage_events, lineage_sql, lineage_sql_run, lineage_symlink, lineage_rebuild, tenants):
                connection.execute(delete(table).where(table.c.tenant_id == self.tenant.id))


def true_facts(arrivals: Iterable[Arrival]) -> list[EventFacts]:
    """The facts of all events, with names that mean what the symlinks of all of them say: slow and plain."""
    in_order = sorted({one.version: one for one in arrivals}.items())
    said = [
        (version, name, table)
        for version, one in in_order
        for name, table in facts_of(parse_event(one.raw), one.source).symlinks.items()
    ]

    def meaning(name: Ref, at: Version) -> Ref:
        mine = [(version, table) for version, linked, table in said if linked == name]
        before = [table for version, table in mine if version <= at]
        after = [table for version, table in mine if version > at]
        return (before[-1:] or after[:1] or [name])[0]

    def facts(version: Version, one: Arrival) -> EventFacts:
        event = parse_event(one.raw)
        names = facts_of(event, one.source).plain_names
        return EventFacts(version, facts_of(event, one.source, {n: meaning(n, version) for n in names}).facts)

    return [facts(version, one) for version, one in in_order]
