"""Applies a group of events to a tenant's graph: load the parts that their facts touch, merge, write the differences.

A group costs a few reads and one write, whatever its size. It reads nodes by id and the edges that its facts name; only
a drop, a rename or a new set of columns also needs the assets below. Nodes and edges that do not change are not
written, and a repeated fact updates only the hidden `_facts` property.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from platform_defs.access.tenants import Tenant
from platform_defs.graph.model import DeleteEdges, DeleteNodes, Node, Operation, PatchNodes, UpsertEdges, UpsertNodes
from platform_defs.graph.port import GraphStore, GraphTransaction
from platform_defs.lineage.facts import Fact, Ref
from platform_defs.lineage.indexes import hide_outdated
from platform_defs.lineage.merge.changes import operations
from platform_defs.lineage.merge.deduplication import note_naming_events, without_repeats
from platform_defs.lineage.merge.load import load
from platform_defs.lineage.merge.pruning import Speakers, forget, is_candidate, is_silent
from platform_defs.lineage.merge.relinking import Relink, take_back
from platform_defs.lineage.merge.rules import may_drop, take
from platform_defs.lineage.merge.speech.vouching import NOTHING, vouched_assets
from platform_defs.lineage.merge.state import NEVER, NeedsRebuild, NodeState, Stamp, State, stamp_of
from platform_defs.lineage.sink.pace import Updatable
from platform_defs.lineage.version import Version, version_of
from platform_defs.store.chunks import chunks

log = logging.getLogger(__name__)

PRUNED_AT_ONCE = 500
NAMED_AT = "_named"
# what the merge writes on a Tenant node (tenant_props)
TENANT_PROPS = frozenset({"code", "name", NAMED_AT})


@dataclass(frozen=True, slots=True)
class EventFacts:
    """The facts of one event, with the event's version."""

    version: Version
    facts: tuple[Fact, ...]


@dataclass(frozen=True, slots=True)
class ApplyResult:
    """needs_rebuild: the graph does not remember enough to merge these events in their order; nothing was written.

    writes: how many nodes and edges were written or deleted. late: the event because of which a rebuild is needed, if
    it is known.
    """

    needs_rebuild: bool
    writes: int
    late: Version | None = None


def apply_events(
    store: Updatable,
    tenant: Tenant,
    events: Sequence[EventFacts],
    counts: Mapping[str, int] | None = None,
    relink: Relink | None = None,
) -> ApplyResult:
    """Applies the events in one transaction; `counts` are total execution counts by the id of the SQL node.

    relink: events that are applied already, and are applied anew because names in them mean other tables now.
    """
    all_facts = stamp_facts(events)
    if relink is not None:
        all_facts = sorted(dict([*all_facts, *relink.after]).items(), key=lambda stamped: stamped[0])
    once = without_repeats(all_facts)
    counts = counts or {}
    before, names = ((), frozenset[Ref]()) if relink is None else (relink.before, relink.names)

    def work(transaction: GraphTransaction) -> int:
        facts, state = once, load(transaction, [*before, *once], counts, relinked=names)
        # after a rename the same name may mean different assets at different times, so repeated facts may differ
        if len(once) < len(all_facts) and state.names_moved:
            facts, state = all_facts, load(transaction, [*before, *all_facts], counts, relinked=names)
        if relink is not None:
            take_back(state, relink)
        is_plain = relink is None and not state.names_moved and not any(may_drop(fact) for _, fact in facts)
        take(state, facts, vouched_assets(state, facts) if is_plain else NOTHING)
        if facts is once and len(once) < len(all_facts):
            note_naming_events(state, all_facts)
        hide_outdated_indexes(state)
        set_execution_counts(state, counts)
        steps = [*_tenant_step(state, tenant), *operations(state)]
        transaction.apply(steps)
        return sum(map(_changes_in, steps))

    try:
        return ApplyResult(False, store.update(work))
    except NeedsRebuild as reason:
        log.info("events of tenant %d need a rebuild of its graph: %s", tenant.id, reason)
        return ApplyResult(True, 0, reason.version)


def prune_graph(store: GraphStore, older_than: datetime, *, speakers_before: datetime | None = None) -> int:
    """Forgets drops, renames and cut edges from before that time; returns how many nodes and edges were deleted.

    Speakers who have said nothing since `speakers_before` are forgotten too.
    """
    before = Stamp(version_of(older_than, ""))
    silent_since = NEVER if speakers_before is None else Stamp(version_of(speakers_before, ""))
    speakers = Speakers(silent_since)
    found: dict[str, None] = {}
    for item in store.stream():
        speakers.see(item)
        if is_candidate(item):
            found |= dict.fromkeys([item.id] if isinstance(item, Node) else [item.from_id])
    silent = sum(
        store.update(partial(_forget_silent, ids=some, since=silent_since))
        for some in chunks(speakers.silent, PRUNED_AT_ONCE)
    )
    old = sorted(found.keys() - {str(store.tenant)})
    forget_old = partial(forget, before=before, named=speakers.first_named(), events=silent_since)
    pruned = (
        store.update(partial(_prune_some, ids=some, forget_old=forget_old)) for some in chunks(old, PRUNED_AT_ONCE)
    )
    return silent + sum(pruned)


def _forget_silent(transaction: GraphTransaction, *, ids: Sequence[str], since: Stamp) -> int:
    """Forgets these speakers, unless they have spoken since they were found: a job may run just now, after months."""
    silent = sorted(id for id, node in transaction.nodes(ids).items() if is_silent(node, since))
    transaction.apply([DeleteNodes(silent)])
    return len(silent)


def _prune_some(
    transaction: GraphTransaction, *, ids: Sequence[str], forget_old: Callable[[State, Sequence[str]], None]
) -> int:
    state = load(transaction, [], around=ids)
    forget_old(state, ids)
    steps = operations(state)
    transaction.apply(steps)
    return sum(_changes_in(step) for step in steps if isinstance(step, DeleteNodes | DeleteEdges))


def stamp_facts(events: Sequence[EventFacts]) -> list[tuple[Stamp, Fact]]:
    """All facts with their stamps, in the order of the events' versions; an event that occurs twice is taken once."""
    by_version = {event.version: event for event in events}
    return [
        (stamp_of(version, place), fact)
        for version in sorted(by_version)
        for place, fact in enumerate(by_version[version].facts)
    ]


def hide_outdated_indexes(state: State) -> None:
    """Must follow the merge of facts: which indexes of a table still count is decided by all facts about them."""
    for node in state.nodes.values():
        if node is not None:
            hide_outdated(node.props)


def set_execution_counts(state: State, counts: Mapping[str, int]) -> None:
    """Raises counts and never lowers them: transactions may reach the graph in another order than the database."""
    for id, number in counts.items():
        node = state.nodes[id]
        if node is None:
            node = NodeState(None)
            state.put_node(id, node)
        node.count = max(node.count or 0, number)


def _tenant_step(state: State, tenant: Tenant) -> list[Operation]:
    props = tenant_props(tenant)
    stored = {} if state.tenant_node is None else dict(state.tenant_node.props)
    if is_named_later(stored, tenant) or props.items() <= stored.items():
        return []
    return [UpsertNodes([Node(state.tenant, {"Tenant"}, props)])]


def tenant_props(tenant: Tenant) -> dict[str, str]:
    """The hidden `_named` keeps a process that knows only an older name from writing it."""
    return {"code": tenant.code, "name": tenant.name} | ({NAMED_AT: tenant.named_at} if tenant.named_at else {})


def is_named_later(stored: Mapping[str, Any], tenant: Tenant) -> bool:
    """Whether the stored Tenant node has the name of a newer event."""
    return str(stored.get(NAMED_AT, "")) > tenant.named_at


def _changes_in(step: Operation) -> int:
    match step:
        case UpsertNodes(nodes):
            return len(nodes)
        case PatchNodes(patches):
            return len(patches)
        case UpsertEdges(edges):
            return len(edges)
        case DeleteNodes(ids):
            return len(ids)
        case DeleteEdges(keys):
            return len(keys)
