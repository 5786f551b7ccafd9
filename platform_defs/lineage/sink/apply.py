"""Groups of stamped events into a tenant's graph: load what they touch, merge, write what differs.

A group costs a few reads and one write whatever its size: nodes by id, the edges that its facts name, and more only
where a drop, a rename or a new set of columns asks for what is below. What a group leaves as it was is not written;
of what is only said again, one hidden property changes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from platform_defs.access.tenants import Tenant
from platform_defs.graph.model import DeleteEdges, DeleteNodes, Node, Operation, PatchNodes, UpsertEdges, UpsertNodes
from platform_defs.graph.port import GraphStore, GraphTransaction
from platform_defs.lineage.facts import Fact
from platform_defs.lineage.merge.changes import operations
from platform_defs.lineage.merge.deduplication import has_renames, without_repeats
from platform_defs.lineage.merge.load import load
from platform_defs.lineage.merge.pruning import forget, is_candidate
from platform_defs.lineage.merge.rules import take
from platform_defs.lineage.merge.state import NeedsRebuild, NodeState, Stamp, State, stamp_of
from platform_defs.lineage.version import Version, version_of
from platform_defs.store.chunks import chunks

PRUNED_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class Stamped:
    """The facts of one event under its version."""

    version: Version
    facts: tuple[Fact, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """needs_rebuild: the order of these events cannot be restored from what the graph remembers; nothing was written.

    writes: how many nodes and edges were written or deleted.
    """

    needs_rebuild: bool
    writes: int


def apply_events(
    store: GraphStore, tenant: Tenant, events: Sequence[Stamped], counts: Mapping[str, int] | None = None
) -> Outcome:
    """Applies the events in one transaction; counts are absolute execution counts by the id of the SQL node."""
    all_facts = stamped_facts(events)
    once = without_repeats(all_facts)
    counts = counts or {}

    def work(transaction: GraphTransaction) -> int:
        facts, state = once, load(transaction, once, counts)
        if len(once) < len(all_facts) and has_renames(state):
            facts, state = all_facts, load(transaction, all_facts, counts)
        take(state, facts)
        count(state, counts)
        steps = [*_tenant_step(state, tenant), *operations(state)]
        transaction.apply(steps)
        return sum(map(_size, steps))

    try:
        return Outcome(False, store.update(work))
    except NeedsRebuild:
        return Outcome(True, 0)


def prune(store: GraphStore, older_than: datetime) -> int:
    """Forgets drops, renames and cut edges from before that time; returns how many nodes and edges are gone for it."""
    before = Stamp(version_of(older_than, ""))
    found: dict[str, None] = {}
    for item in store.stream():
        if is_candidate(item):
            found |= dict.fromkeys([item.id] if isinstance(item, Node) else [item.from_id])
    found.pop(str(store.tenant), None)
    return sum(store.update(partial(_prune_some, ids=some, before=before)) for some in chunks(found, PRUNED_AT_ONCE))


def _prune_some(transaction: GraphTransaction, *, ids: Sequence[str], before: Stamp) -> int:
    state = load(transaction, [], around=ids)
    forget(state, ids, before)
    steps = operations(state)
    transaction.apply(steps)
    return sum(_size(step) for step in steps if isinstance(step, DeleteNodes | DeleteEdges))


def stamped_facts(events: Sequence[Stamped]) -> list[tuple[Stamp, Fact]]:
    """In the order of their versions, each event once."""
    by_version = {event.version: event for event in events}
    return [
        (stamp_of(version, place), fact)
        for version in sorted(by_version)
        for place, fact in enumerate(by_version[version].facts)
    ]


def count(state: State, counts: Mapping[str, int]) -> None:
    """A count only grows, so that the answer of an older transaction changes nothing."""
    for id, number in counts.items():
        node = state.nodes[id]
        if node is None:
            node = NodeState(None)
            state.put_node(id, node)
        node.count = max(node.count or 0, number)


def _tenant_step(state: State, tenant: Tenant) -> list[Operation]:
    props = {"code": tenant.code, "name": tenant.name}
    if state.tenant_node is not None and props.items() <= dict(state.tenant_node.props).items():
        return []
    return [UpsertNodes([Node(state.tenant, {"Tenant"}, props)])]


def _size(step: Operation) -> int:
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
