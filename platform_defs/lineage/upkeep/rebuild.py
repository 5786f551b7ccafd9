"""Rebuilds a tenant's graph in place from its stored events, and removes the nodes and edges that no event explains.

The events are merged in memory in the order of their versions, an order that the merge can always decide. Then the
differences are written to the graph in bounded transactions, so the graph is never empty in between. These writes may
undo events that the sink has applied in the meantime. Therefore the stored events are read again, and those that were
not seen the first time are applied. Some of them may need a rebuild themselves, or more time than a transaction has:
they wait for the next one, so that such events, if they keep coming, do not keep a rebuild from its end. If the row of
an event is not yet visible even then, the event's writer leaves it to the recovery (see
rebuild_requests.record_rewrite).

With keep_unexplained the merge starts from the facts whose events retention has deleted (merge/forgotten_events.py),
and only nodes and edges that the merge itself once wrote may be removed. Facts of `forgotten` events are not kept, as
if these had never been sent.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial

from sqlalchemy import Engine

from platform_defs.access.tenants import Tenant
from platform_defs.graph.errors import GraphTooSlow
from platform_defs.graph.model import DeleteEdges, DeleteNodes, Edge, EdgeKey, Node, Operation, UpsertEdges, UpsertNodes
from platform_defs.graph.port import Graph, GraphStore
from platform_defs.lineage.errors import LineageError
from platform_defs.lineage.facts import Renamed
from platform_defs.lineage.merge.changes import difference, whole_graph
from platform_defs.lineage.merge.codec import COUNT, read_node
from platform_defs.lineage.merge.forgotten_events import (
    ForgottenFacts,
    Move,
    is_of_merge,
    make_older,
    read_forgotten_facts,
    take_up,
)
from platform_defs.lineage.merge.rules import take
from platform_defs.lineage.merge.state import NEVER, NeedsRebuild, State, empty_state
from platform_defs.lineage.sink.apply import (
    NAMED_AT,
    TENANT_PROPS,
    EventFacts,
    apply_events,
    hide_outdated_indexes,
    set_execution_counts,
    stamp_facts,
    tenant_props,
)
from platform_defs.lineage.upkeep import rebuild_requests
from platform_defs.lineage.upkeep.groups import MAX_ENDED, groups_in_time, halves, weight_of_all, widest_apart
from platform_defs.lineage.upkeep.rebuilt_names import NamesChanged
from platform_defs.lineage.version import Version
from platform_defs.store.chunks import chunks

ROWS_PER_TRANSACTION = 2000
ROUNDS = 5


@dataclass(frozen=True, slots=True)
class RebuildReport:
    """first: the version of the oldest stored event. removed: how many nodes and edges were removed.

    late: events that came while the graph was rebuilt, and that only the next rebuild can bring into it.
    """

    events: int
    removed: int
    first: Version | None
    late: frozenset[Version] = frozenset()


def rebuild(
    engine: Engine,
    graph: Graph,
    tenant: Tenant,
    *,
    read_events: Callable[[], Iterator[EventFacts]],
    progress: Callable[[int], None],
    keep_unexplained: bool = False,
    forgotten: Set[Version] = frozenset(),
    counts: Callable[[], Mapping[str, int]] | None = None,
    before_write: Callable[[], None] = lambda: None,
) -> RebuildReport:
    """read_events reads all stored events of the tenant in the order of their versions, anew at each call.

    It raises NamesChanged if names mean other tables than it has said before. counts: how often the SQL nodes were
    executed by the events that were read; without it they keep the counts that they have. before_write: called before
    each transaction that changes the graph; what it raises ends the rebuild.
    """
    store = graph.for_tenant(tenant.id)
    removed = 0
    for _ in range(ROUNDS):
        seen: set[Version] = set()
        events = partial(_read_and_note, read_events, seen, progress)
        try:
            if keep_unexplained:
                state = _merge_onto_forgotten(store, read_events, events, seen, forgotten)
            else:
                state = _merge_events(ForgottenFacts(empty_state(str(store.tenant))), events())
            if state is None:
                continue
            if counts is not None:
                set_execution_counts(state, counts())
            steps, extra = _find_differences(
                store, _graph_of(tenant, state), keep_unexplained=keep_unexplained, keep_counts=counts is None
            )
            for step in steps:
                before_write()
                store.apply([step])
            removed += extra
            rebuild_requests.record_rewrite(engine, tenant.id)
            late = _apply_unseen(store, tenant, read_events(), seen)
            return RebuildReport(len(seen), removed, min(seen, default=None), late)
        except NamesChanged:
            continue
    raise LineageError(f"names of tenant {tenant.id} are linked to other tables faster than its graph can be rebuilt")


def _read_and_note(
    read_events: Callable[[], Iterator[EventFacts]], seen: set[Version], progress: Callable[[int], None]
) -> Iterator[EventFacts]:
    """The events, while their versions are added to `seen` and the progress is reported."""
    for event in read_events():
        seen.add(event.version)
        progress(len(seen))
        yield event


def _merge_events(start: ForgottenFacts, events: Iterable[EventFacts]) -> State:
    for event in events:
        for at, fact in stamp_facts([event]):
            take(start.state, [(at, fact)])
            if at in start.waiting:
                take_up(start.state, start.waiting[at])
    hide_outdated_indexes(start.state)
    return start.state


def _merge_onto_forgotten(
    store: GraphStore,
    read_events: Callable[[], Iterator[EventFacts]],
    events: Callable[[], Iterator[EventFacts]],
    seen: set[Version],
    forgotten_versions: Set[Version],
) -> State | None:
    """Merges the events onto the facts of deleted events. None if retention has deleted more events in the meantime."""
    # The graph is read before the events. So an event that is applied in between is read as well, and says its facts
    # again; in the other order its facts would look like those of a deleted event.
    items = list(store.stream())
    stored: set[Version] = set(forgotten_versions)
    moves: list[Move] = []
    for event in read_events():
        stored.add(event.version)
        moves += [(at, fact.ref, fact.new) for at, fact in stamp_facts([event]) if isinstance(fact, Renamed)]
    try:
        state = _merge_events(read_forgotten_facts(str(store.tenant), items, stored, moves), events())
    except NeedsRebuild:
        # Retention deletes events in the order in which they were received, so a deleted event may be newer than a
        # stored one. Here the merge could not put such events in order: the deleted ones now count as the older ones.
        forgotten = read_forgotten_facts(str(store.tenant), items, stored, moves)
        make_older(forgotten)
        state = _merge_events(forgotten, events())
    return state if stored - forgotten_versions <= seen else None


def _graph_of(tenant: Tenant, state: State) -> Iterator[Node | Edge]:
    yield Node(state.tenant, frozenset({"Tenant"}), tenant_props(tenant))
    yield from whole_graph(state)


def _apply_unseen(
    store: GraphStore, tenant: Tenant, events: Iterable[EventFacts], seen: set[Version]
) -> frozenset[Version]:
    """Applies the events that the rebuild has not seen, except those that need another rebuild, which it returns."""
    tail = _Tail(store, tenant)
    unseen = [event for event in events if event.version not in seen]
    return frozenset[Version]().union(*map(tail.apply, groups_in_time(unseen, _weight)))


class _Tail:
    """Writes the events that came while the graph was rebuilt. What takes too long is left to the next rebuild.

    It would not help to fail instead: all the graph would be rebuilt again, and more events would have come by then.
    """

    def __init__(self, store: GraphStore, tenant: Tenant) -> None:
        self._store = store
        self._tenant = tenant
        self._ended = 0

    def apply(self, events: Sequence[EventFacts]) -> frozenset[Version]:
        """Returns the versions of those that it could not apply."""
        if self._ended >= MAX_ENDED:
            return frozenset(event.version for event in events)
        try:
            if not apply_events(self._store, self._tenant, events).needs_rebuild:
                return frozenset()
            parts = halves(events)
        except GraphTooSlow:
            self._ended += 1
            parts = widest_apart(events, _weight)
        if len(events) == 1:
            return frozenset({events[0].version})
        return frozenset[Version]().union(*map(self.apply, parts))


def _weight(event: EventFacts) -> int:
    return weight_of_all(event.facts)


def _find_differences(
    store: GraphStore, wanted: Iterable[Node | Edge], *, keep_unexplained: bool, keep_counts: bool
) -> tuple[list[Operation], int]:
    """What brings the stored graph to the wanted one, and how many nodes and edges that removes."""
    nodes: dict[str, Node] = {}
    edges: dict[EdgeKey, Edge] = {}
    for item in wanted:
        if isinstance(item, Node):
            nodes[item.id] = item
        else:
            edges[item.key] = item
    extra_nodes: list[str] = []
    extra_edges: list[EdgeKey] = []
    foreign_ids: set[str] = set()
    for item in store.stream():
        if isinstance(item, Edge):
            edge = edges.get(item.key)
            if edge is not None:
                _replace_by_change(edges, item.key, difference(item.props, edge.props), edge)
            elif not keep_unexplained or (is_of_merge(item) and item.to_id not in foreign_ids):
                extra_edges.append(item.key)
        elif _is_newer_tenant(item, nodes.get(item.id)):
            del nodes[item.id]
        elif (node := nodes.get(item.id)) is None:
            if keep_unexplained and not is_of_merge(item):
                foreign_ids.add(item.id)
            else:
                extra_nodes.append(item.id)
        else:
            change = difference(item.props, {**_props_without_facts(item, keep_counts), **node.props})
            if change or not node.labels <= item.labels:
                nodes[item.id] = Node(item.id, node.labels, change)
            else:
                del nodes[item.id]
    steps: list[Operation] = [
        *(DeleteEdges(some) for some in chunks(extra_edges, ROWS_PER_TRANSACTION)),
        *(DeleteNodes(some) for some in chunks(extra_nodes, ROWS_PER_TRANSACTION)),
        *(UpsertNodes(some) for some in chunks(list(nodes.values()), ROWS_PER_TRANSACTION)),
        *(UpsertEdges(some) for some in chunks(list(edges.values()), ROWS_PER_TRANSACTION)),
    ]
    return steps, len(extra_nodes) + len(extra_edges)


def _is_newer_tenant(stored: Node, wanted: Node | None) -> bool:
    """Whether the stored Tenant node has the name of an event that came after the rebuild had begun."""
    return wanted is not None and str(stored.props.get(NAMED_AT, "")) > str(wanted.props.get(NAMED_AT, ""))


def _replace_by_change(edges: dict[EdgeKey, Edge], key: EdgeKey, change: Mapping[str, object], edge: Edge) -> None:
    if change:
        edges[key] = Edge(*edge.key, change)
    else:
        del edges[key]


def _props_without_facts(stored: Node, keep_counts: bool) -> dict[str, object]:
    """Properties that no fact decides: those that other systems wrote, and the execution count."""
    if "Tenant" in stored.labels:
        return {name: value for name, value in stored.props.items() if name not in TENANT_PROPS}
    state = read_node(stored, NEVER)
    return state.foreign | ({COUNT: state.count} if keep_counts and state.count is not None else {})
