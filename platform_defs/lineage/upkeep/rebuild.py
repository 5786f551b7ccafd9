"""A tenant's graph anew from its stored events, in place: what they say is written, what none explains is removed.

The events are merged in memory, in the order of their versions, which never needs a rebuild. The store is then brought
to that state in bounded transactions, so it is never empty in between. Events that the sink applied meanwhile may be
undone by that; so the stored events are read again, and those that were not seen before are applied, until there are
none. An event whose row is not yet to be seen then is left to the recovery by its writer (marks.rewritten).

With keep_unexplained the merge does not begin with nothing but with what the graph remembers of events that are stored
no longer (merge/memory.py), and nothing is removed that the merge did not write.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from sqlalchemy import Engine

from platform_defs.access.tenants import Tenant
from platform_defs.graph.model import DeleteEdges, DeleteNodes, Edge, EdgeKey, Node, Operation, UpsertEdges, UpsertNodes
from platform_defs.graph.port import Graph, GraphStore
from platform_defs.lineage.errors import LineageError
from platform_defs.lineage.facts import Renamed
from platform_defs.lineage.merge.changes import difference, whole
from platform_defs.lineage.merge.codec import COUNT, read_node
from platform_defs.lineage.merge.forgotten_events import Memory, Move, is_of_merge, make_older, remembered, take_up
from platform_defs.lineage.merge.rules import take
from platform_defs.lineage.merge.state import NEVER, NeedsRebuild, State, empty_state
from platform_defs.lineage.sink.apply import Stamped, apply_events, stamped_facts
from platform_defs.lineage.upkeep import rebuild_requests
from platform_defs.lineage.version import Version
from platform_defs.store.chunks import chunks

ROWS_PER_TRANSACTION = 2000
EVENTS_PER_GROUP = 200
ROUNDS = 5


@dataclass(frozen=True, slots=True)
class RebuildReport:
    """first: the oldest stored event; the graph is explained from there on. removed: nodes and edges."""

    events: int
    removed: int
    first: Version | None


def rebuild(
    engine: Engine,
    graph: Graph,
    tenant: Tenant,
    *,
    read_events: Callable[[], Iterator[Stamped]],
    progress: Callable[[int], None],
    keep_unexplained: bool = False,
) -> RebuildReport:
    """read_events gives all stored events of the tenant in the order of their versions, each time anew."""
    store = graph.for_tenant(tenant.id)
    removed = 0
    for _ in range(ROUNDS):
        seen: set[Version] = set()
        events = partial(_watched, read_events, seen, progress)
        nothing = Memory(empty_state(str(store.tenant)))
        state = _kept(store, read_events, events, seen) if keep_unexplained else _taken(nothing, events())
        if state is None:
            continue
        removed += _bring(store, _whole(tenant, state), keep_unexplained=keep_unexplained)
        rebuild_requests.rewritten(engine, tenant.id)
        if _apply_unseen(store, tenant, read_events(), seen):
            return RebuildReport(len(seen), removed, min(seen, default=None))
    raise LineageError(f"tenant {tenant.id} gets events out of order faster than its graph can be rebuilt")


def _watched(
    read_events: Callable[[], Iterator[Stamped]], seen: set[Version], progress: Callable[[int], None]
) -> Iterator[Stamped]:
    for event in read_events():
        seen.add(event.version)
        progress(len(seen))
        yield event


def _taken(memory: Memory, events: Iterable[Stamped]) -> State:
    for event in events:
        for at, fact in stamped_facts([event]):
            take(memory.state, [(at, fact)])
            if at in memory.waiting:
                take_up(memory.state, memory.waiting[at])
    return memory.state


def _kept(
    store: GraphStore,
    read_events: Callable[[], Iterator[Stamped]],
    events: Callable[[], Iterator[Stamped]],
    seen: set[Version],
) -> State | None:
    """The events on top of what the graph remembers of others; None where some were forgotten meanwhile."""
    # before the events are looked at: what is applied in between is told again by its event
    items = list(store.stream())
    stored: set[Version] = set()
    moves: list[Move] = []
    for event in read_events():
        stored.add(event.version)
        moves += [(at, fact.ref, fact.new) for at, fact in stamped_facts([event]) if isinstance(fact, Renamed)]
    try:
        state = _taken(remembered(str(store.tenant), items, stored, moves), events())
    except NeedsRebuild:
        # events are forgotten in the order in which they came: one that is stored may be older than one that is not
        memory = remembered(str(store.tenant), items, stored, moves)
        make_older(memory)
        state = _taken(memory, events())
    return state if stored <= seen else None


def _whole(tenant: Tenant, state: State) -> Iterator[Node | Edge]:
    yield Node(state.tenant, frozenset({"Tenant"}), {"code": tenant.code, "name": tenant.name})
    yield from whole(state)


def _apply_unseen(store: GraphStore, tenant: Tenant, events: Iterable[Stamped], seen: set[Version]) -> bool:
    """Whether the graph has them all now; one that came too late to be applied in place asks for another round."""
    unseen = [event for event in events if event.version not in seen]
    return not any(apply_events(store, tenant, some).needs_rebuild for some in chunks(unseen, EVENTS_PER_GROUP))


def _bring(store: GraphStore, wanted: Iterable[Node | Edge], *, keep_unexplained: bool) -> int:
    """Writes what differs and removes the rest; returns how much was removed."""
    nodes: dict[str, Node] = {}
    edges: dict[EdgeKey, Edge] = {}
    for item in wanted:
        if isinstance(item, Node):
            nodes[item.id] = item
        else:
            edges[item.key] = item
    extra_nodes: list[str] = []
    extra_edges: list[EdgeKey] = []
    of_others: set[str] = set()
    for item in store.stream():
        if isinstance(item, Edge):
            edge = edges.get(item.key)
            if edge is not None:
                _settle_for(edges, item.key, difference(item.props, edge.props), edge)
            elif not keep_unexplained or (is_of_merge(item) and item.to_id not in of_others):
                extra_edges.append(item.key)
        elif (node := nodes.get(item.id)) is None:
            if keep_unexplained and not is_of_merge(item):
                of_others.add(item.id)
            else:
                extra_nodes.append(item.id)
        else:
            change = difference(item.props, {**_of_others(item), **node.props})
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
    for step in steps:
        store.apply([step])
    return len(extra_nodes) + len(extra_edges)


def _settle_for(edges: dict[EdgeKey, Edge], key: EdgeKey, change: Mapping[str, object], edge: Edge) -> None:
    if change:
        edges[key] = Edge(*edge.key, change)
    else:
        del edges[key]


def _of_others(stored: Node) -> dict[str, object]:
    """What no fact says: properties that other systems wrote, and the count of runs, which has its own table."""
    if "Tenant" in stored.labels:
        return {}
    state = read_node(stored, NEVER)
    return state.foreign | ({} if state.count is None else {COUNT: state.count})
