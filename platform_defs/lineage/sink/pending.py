"""The events of a group that a store lacks, ready to be written: counted, and with their names resolved."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import Connection

from platform_defs.access.tenants import Tenant, name_tenants
from platform_defs.graph.port import Graph
from platform_defs.lineage.facts import Ref
from platform_defs.lineage.merge.relinking import Relink
from platform_defs.lineage.sink.apply import EventFacts
from platform_defs.lineage.sink.rows import raw_events
from platform_defs.lineage.sink.rows.raw_events import EventKey
from platform_defs.lineage.sink.rows.relinks import find_relink
from platform_defs.lineage.sink.rows.run_counts import Counts, SqlRun, count_runs
from platform_defs.lineage.sink.rows.symlinks import EventNames, NameUse, NameWatch, ResolvedNames, resolve_names
from platform_defs.lineage.upkeep import rebuild_requests
from platform_defs.lineage.upkeep.rebuild_requests import TenantMarks
from platform_defs.lineage.version import Version


@dataclass(frozen=True, slots=True)
class PreparedEvent:
    """An event that is ready to be written: its tenant is known and its facts are extracted.

    row: the row of `lineage_events`. run: the execution to count, if the event ran an SQL. size: bytes of its JSON.
    facts: how many things it says, by which groups are bounded.
    The version in `event_facts` is that of the row, once the row is stored.
    """

    tenant: Tenant
    key: EventKey
    row: dict[str, Any]
    event_facts: EventFacts
    run: SqlRun | None
    size: int
    names: EventNames
    facts: int = 1
    # the event's time is too far in the future, so its version depends on when it arrived
    ahead: bool = False
    # the name that the event or its credential gives to the tenant
    said_name: str | None = None

    def with_version(self, version: Version) -> "PreparedEvent":
        if version == self.event_facts.version:
            return self
        return replace(
            self, row=self.row | {"version": version}, event_facts=replace(self.event_facts, version=version)
        )

    @property
    def name_use(self) -> NameUse:
        return NameUse(self.tenant.id, self.event_facts.version, self.names)

    def with_linked(self, linked: Mapping[Ref, Ref]) -> "PreparedEvent":
        if not linked:
            return self
        return replace(self, event_facts=replace(self.event_facts, facts=self.names.facts_with(linked)))


@dataclass(frozen=True, slots=True)
class PendingWrites:
    """The events of a group that still have to be written.

    waiting: events that were stored before but that the graph lacks. marks: what is on record of each tenant, as it was
    before this group is written. rebuild: tenants whose graph must be rebuilt, because names have other meanings now.
    """

    fresh: list[PreparedEvent]
    waiting: list[PreparedEvent]
    counts: Counts
    names: ResolvedNames
    marks: Mapping[int, TenantMarks]
    # tenants that these events name, as they are called since
    tenants: Mapping[int, Tenant]
    rebuild: frozenset[int] = frozenset()
    # events that were applied before, by tenant, in which names mean other tables now
    relinks: Mapping[int, Relink] = field(default_factory=dict)

    @property
    def events(self) -> list[PreparedEvent]:
        return self.fresh + self.waiting

    def watch(self) -> NameWatch:
        """What finds out later whether names that this group uses have changed their meaning in the meantime."""
        uses = [event.name_use for event in self.events]
        return NameWatch(uses, self.names.linked, {use.tenant_id: self.marks[use.tenant_id][1] for use in uses})

    def by_tenant(self) -> Iterator[tuple[Tenant, list[EventFacts]]]:
        groups: dict[int, tuple[Tenant, list[EventFacts]]] = {}
        for event in self.events:
            tenant = self.tenants.get(event.tenant.id, event.tenant)
            groups.setdefault(tenant.id, (tenant, []))[1].append(event.event_facts)
        for tenant_id in sorted(groups):
            yield groups[tenant_id]


def find_pending(
    connection: Connection, graph: Graph, events: Sequence[PreparedEvent], watch: NameWatch
) -> PendingWrites:
    """Finds the events that must still be written, counts their runs and resolves their names.

    Also requests the rebuilds that symlinks make necessary, in the same transaction, so that a crash cannot lose them.
    """
    marks = rebuild_requests.read_marks(connection, {event.tenant.id for event in events} | watch.tenants)
    changes = _symlink_changes(marks)
    changed = watch.find_changed(connection, changes)
    unique = {event.key: event for event in events}
    stored = raw_events.find_stored(connection, list(unique))
    fresh = [event for key, event in unique.items() if key not in stored]
    waiting = [unique[key].with_version(state.version) for key, state in stored.items() if not state.applied]
    counts = count_runs(connection, [event.run for event in fresh + waiting if event.run])
    names = resolve_names(connection, [event.name_use for event in fresh + waiting], changes)
    meant = [event.with_linked(linked) for event, linked in zip(fresh + waiting, names.linked, strict=True)]
    tenants = name_tenants(connection, _said_names(meant))
    rebuild = changed | names.rebuild
    relinks: dict[int, Relink] = {}
    suspects = names_to_look_for(names, [event.name_use for event in waiting], names.linked[len(fresh) :])
    for tenant_id, found in tables_of_names(graph, suspects).items():
        relink = None if tenant_id in rebuild else find_relink(connection, graph, tenant_id, found)
        if relink is None:
            rebuild.add(tenant_id)
        else:
            relinks[tenant_id] = relink
    if rebuild:
        rebuild_requests.request_rebuild(connection, rebuild)
    return PendingWrites(
        meant[: len(fresh)], meant[len(fresh) :], counts, names, marks, tenants, frozenset(rebuild), relinks
    )


def _said_names(events: Sequence[PreparedEvent]) -> list[Tenant]:
    """Each tenant with the name that the newest of these events gives it."""
    newest: dict[int, Tenant] = {}
    for event in sorted(events, key=lambda event: event.event_facts.version):
        if event.said_name is not None:
            tenant = event.tenant
            newest[tenant.id] = Tenant(tenant.id, tenant.code, event.said_name, event.event_facts.version)
    return list(newest.values())


def _symlink_changes(marks: Mapping[int, TenantMarks]) -> dict[int, int]:
    return {tenant_id: mark.symlink_changes for tenant_id, mark in marks.items()}


def names_to_look_for(
    found: ResolvedNames, waiting: Sequence[NameUse], linked: Sequence[Mapping[Ref, Ref]]
) -> dict[int, set[Ref]]:
    """By tenant, names that mean other tables now, and under which the graph may have what was said of them before.

    waiting: the events that are stored although the graph lacks them. linked: what their plain names mean. A symlink is
    stored with the event that says it; if the graph then failed, what it has under the name is not the linked table's
    yet.
    """
    names = {tenant_id: set(some) for tenant_id, some in found.new.items()}
    for use, others in zip(waiting, linked, strict=True):
        said = {name for name, table in use.names.symlinks.items() if table != name}
        names.setdefault(use.tenant_id, set()).update(others, said)
    return names


def tables_of_names(graph: Graph, names: Mapping[int, Collection[Ref]]) -> dict[int, set[Ref]]:
    """By tenant, those of the names under which the graph has tables, although the names mean other tables now."""
    found: dict[int, set[Ref]] = {}
    for tenant_id, some in names.items():
        stored = graph.for_tenant(tenant_id).nodes(sorted(name.id for name in some)) if some else {}
        if stored:
            found[tenant_id] = {name for name in some if name.id in stored}
    return found
