"""Operations that bring the graph store to the merged state: only differences from what was loaded are written."""

from collections.abc import Iterator, Mapping
from typing import Any

from platform_defs.graph.asset_kinds import ASSET_KINDS
from platform_defs.graph.model import (
    DeleteEdges,
    DeleteNodes,
    Edge,
    EdgeKey,
    Node,
    Operation,
    Patch,
    PatchNodes,
    UpsertEdges,
    UpsertNodes,
)
from platform_defs.graph.vocabulary import GONE_PREFIX, TOMBSTONE
from platform_defs.lineage.facts import SPEAKER, Ref
from platform_defs.lineage.merge.codec import written_edge, written_node
from platform_defs.lineage.merge.names import exists, floor, named_since_drop
from platform_defs.lineage.merge.renames import lives
from platform_defs.lineage.merge.speech.crowds import bound_claims, shows_first
from platform_defs.lineage.merge.speech.past_runs import bound_runs
from platform_defs.lineage.merge.speech.statement_bodies import DERIVES_FROM
from platform_defs.lineage.merge.state import (
    LAST_TYPE,
    NEVER,
    EdgeState,
    NeedsRebuild,
    NodeState,
    Stamp,
    State,
    path,
)


def operations(state: State) -> list[Operation]:
    """Deletions first, then nodes, then edges. Raises NeedsRebuild as `settle` does."""
    settle(state)
    new_nodes: list[Node] = []
    patches: list[Patch] = []
    new_edges: list[Edge] = []
    gone_nodes = sorted(id for id, node in state.nodes.items() if node is None and id in state.stored_nodes)
    gone_edges: list[EdgeKey] = []
    for id in sorted(state.nodes):
        node, stored = state.nodes[id], state.stored_nodes.get(id)
        if node is None:
            continue
        shown = node.ref is not None and exists(state, node.ref)
        wanted = written_node(id, node, _label(node) if shown else None, _set_at(state, node.ref))
        if stored is None:
            new_nodes.append(wanted)
        elif wanted.labels != stored.labels:
            new_nodes.append(Node(id, wanted.labels, difference(stored.props, wanted.props)))
        elif change := difference(stored.props, wanted.props):
            patches.append(Patch(id, change))
        if node.ref is not None and (stored is None or _is_hidden(stored) == shown):
            stands, falls = _derived(state, node.ref, shown)
            new_edges += [Edge(*key) for key in stands]
            gone_edges += falls if stored is not None else []
    fact_edges = {key: written_edge(key, edge, shown=_stands(state, key, edge)) for key, edge in state.edges.items()}
    wanted_keys = {edge.key for edge in fact_edges.values()}
    for _, edge in sorted(fact_edges.items()):
        before = state.stored_edges.get(edge.key)
        edge_change = edge.props if before is None else difference(before.props, edge.props)
        if before is None or edge_change:
            new_edges.append(Edge(*edge.key, edge_change))
    absent = set(gone_nodes)
    gone_edges += [key for key in state.stored_edges if key not in wanted_keys]
    cut = [key for key in gone_edges if key.from_id not in absent and key.to_id not in absent]
    steps: list[Operation] = []
    if cut:
        steps.append(DeleteEdges(sorted(cut)))
    if gone_nodes:
        steps.append(DeleteNodes(gone_nodes))
    if new_nodes:
        steps.append(UpsertNodes(new_nodes))
    if patches:
        steps.append(PatchNodes(patches))
    if new_edges:
        steps.append(UpsertEdges(new_edges))
    return steps


def whole_graph(state: State) -> Iterator[Node | Edge]:
    """All nodes and edges, hidden ones too, of a state that holds the whole graph."""
    settle(state)
    for id, node in state.nodes.items():
        if node is not None:
            shown = node.ref is not None and exists(state, node.ref)
            yield written_node(id, node, _label(node) if shown else None, _set_at(state, node.ref))
            if node.ref is not None:
                yield from (Edge(*key) for key in _derived(state, node.ref, shown)[0])
    for key, edge in state.edges.items():
        yield written_edge(key, edge, shown=_stands(state, key, edge))


def settle(state: State) -> None:
    """Removes what is dead from the state: facts up to their floor, and nodes of which nothing is left to remember.

    Also reduces what is remembered of speakers and claims to what is stored (bounds.py). Raises NeedsRebuild if it is
    then not known which properties an asset should show.
    """
    for key in list(state.edges):
        if not lives(state, key):
            edge = state.edges[key]
            if edge.first or edge.is_claimed:
                state.put_edge(key, EdgeState(NEVER, False, first=edge.first, claims=edge.claims, crowd=edge.crowd))
            else:
                del state.edges[key]
    for node in state.nodes.values():
        if node is not None and node.ref is not None:
            node.named_in = named_since_drop(state, node.ref)
            _forget_dead(node, floor(state, node.ref))
    for speaker in [node.speaker for node in state.nodes.values() if node is not None and node.speaker is not None]:
        bound_runs(state, speaker)
    _bound_claims(state)
    needed = {end for key in state.edges for end in (key.from_id, key.to_id)}
    deepest_first = sorted(
        (node.ref for node in state.nodes.values() if node is not None and node.ref is not None),
        key=lambda ref: -len(ref.name),
    )
    for ref in deepest_first:
        node = state.node(ref)
        # a stored node of which not all edges are loaded may be needed by one of them
        unsure = ref.id in state.stored_nodes and ref.id not in state.surrounded
        if unsure or ref.id in needed or exists(state, ref) or _is_remembered(state, node, ref):
            for above in path(ref):
                state.node(above)
                needed.add(above.id)
        else:
            state.put_node(ref.id, None)


def _bound_claims(state: State) -> None:
    claimed: list[NodeState | EdgeState] = [edge for key, edge in state.edges.items() if key.type == DERIVES_FROM]
    claimed += [node for node in state.nodes.values() if node is not None]
    for item in claimed:
        if item.claims or item.crowd.size:
            bound_claims(item)
            if state.is_partial and not shows_first(item):
                raise NeedsRebuild("speakers took back properties that are shown, and a crowd may claim others")


def _forget_dead(node: NodeState, dead_at: Stamp) -> None:
    if dead_at == NEVER:
        return
    node.props = {name: said for name, said in node.props.items() if said[0] > dead_at}
    node.link_sets = {type: stamp for type, stamp in node.link_sets.items() if stamp > dead_at}
    node.column_link_sets = {type: stamp for type, stamp in node.column_link_sets.items() if stamp > dead_at}
    if node.entries_at <= dead_at:
        node.entries_at = NEVER
    if node.columns is not None and node.columns.at <= dead_at:
        node.columns = None
    if node.exists_at <= dead_at:
        node.exists_at = NEVER
    if node.label_at <= dead_at:
        node.label, node.label_at = None, NEVER


def _is_remembered(state: State, node: NodeState, ref: Ref) -> bool:
    """Whether a node that does not exist must be kept as a tombstone, because late events may depend on it."""
    if node.renames or node.incoming_renames or node.link_sets or node.column_link_sets:
        return True
    if node.count is not None or node.column_renamed_at or node.speaker is not None or LAST_TYPE in node.props:
        return True
    return node.floor > (NEVER if ref.parent is None else floor(state, ref.parent))


def _stands(state: State, key: EdgeKey, edge: EdgeState) -> bool:
    ends = state.nodes[key.from_id], state.nodes[key.to_id]
    said = edge.linked or edge.is_claimed
    return said and all(end is not None and end.ref is not None and exists(state, end.ref) for end in ends)


def _derived(state: State, ref: Ref, shown: bool) -> tuple[list[EdgeKey], list[EdgeKey]]:
    """The edges that follow from the name: those to write and those to delete."""
    if ref.kind == SPEAKER:
        return [], []
    if ref.parent is None:
        key = EdgeKey(ASSET_KINDS[ref.kind].edge, state.tenant, ref.id)
        return ([key], []) if shown else ([], [key])
    key = EdgeKey(ASSET_KINDS[ref.kind].edge, ref.parent.id, ref.id)
    hidden = EdgeKey(f"{GONE_PREFIX}{key.type}", key.from_id, key.to_id)
    return ([key], [hidden]) if shown else ([hidden], [key])


def _label(node: NodeState) -> str:
    assert node.ref is not None
    return node.label or ASSET_KINDS[node.ref.kind].labels[0]


def _set_at(state: State, ref: Ref | None) -> Stamp:
    """For a column, the stamp of its table's newest ColumnSet; NEVER for other assets and without such a set."""
    table = None if ref is None or ref.kind != "column" or ref.parent is None else state.find(ref.parent)
    return NEVER if table is None or table.columns is None else table.columns.at


def _is_hidden(node: Node) -> bool:
    return TOMBSTONE in node.labels


def difference(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The properties to write so that the stored ones become the wanted ones; None removes a property.

    Values are compared by their repr, because in Python True equals 1 and 1.0.
    """
    change: dict[str, Any] = {name: None for name in stored if name not in wanted}
    for name, value in wanted.items():
        if name not in stored or repr(stored[name]) != repr(value):
            change[name] = value
    return change
