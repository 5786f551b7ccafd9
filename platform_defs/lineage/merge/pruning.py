"""Forgets old drops, renames and cut edges; an event that is even older and arrives afterwards would count again."""

from collections.abc import Iterable

from platform_defs.graph.model import Edge, Node
from platform_defs.graph.text import is_hidden
from platform_defs.lineage.facts import SPEAKER, Ref
from platform_defs.lineage.merge.codec import FACTS, read_node
from platform_defs.lineage.merge.names import exists
from platform_defs.lineage.merge.state import DERIVED_TYPES, NEVER, NodeState, Stamp, State


def is_candidate(item: Node | Edge) -> bool:
    """Whether a stored node or edge may hold something to forget."""
    if isinstance(item, Edge):
        return is_hidden(item)
    if item.id.startswith(f"{SPEAKER}:"):
        return False
    return is_hidden(item) or '"renames":' in item.props.get(FACTS, "")


def is_silent_speaker(item: Node | Edge, before: Stamp) -> bool:
    """Whether it remembers a speaker who has said nothing since that time. What such a speaker claims stays."""
    if isinstance(item, Edge) or not item.id.startswith(f"{SPEAKER}:"):
        return False
    speaker = read_node(item, NEVER).speaker
    return speaker is None or max((run.newest for run in speaker.runs.values()), default=NEVER) < before


def forget(state: State, ids: Iterable[str], before: Stamp) -> None:
    """Forgets what these nodes and the edges at them remember from before that time."""
    for id in ids:
        node = state.nodes[id]
        if node is not None and node.ref is not None:
            existing = exists(state, node.ref)
            if not existing and NEVER < node.floor < before:
                _leave_set(state, node.ref)
            _forget(node, before, existing=existing)
    for key in state.edges_of(ids):
        edge = state.edges[key]
        if key.type in DERIVED_TYPES or edge.linked or edge.claims:
            continue
        if max(edge.at, edge.first) < before:
            edge.at, edge.first = NEVER, NEVER


def _leave_set(state: State, ref: Ref) -> None:
    """Without its drop a column of the newest set would come back; it leaves the set instead."""
    table = None if ref.kind != "column" or ref.parent is None else state.find(ref.parent)
    if table is not None and table.columns is not None and ref.name[-1] in table.columns.lacked:
        del table.columns.lacked[ref.name[-1]]
        table.columns.digest = None


def _forget(node: NodeState, before: Stamp, *, existing: bool) -> None:
    node.renames = {stamp: new for stamp, new in node.renames.items() if stamp >= before}
    if existing:
        return
    node.incoming_renames = [incoming for incoming in node.incoming_renames if incoming.at >= before]
    node.link_sets = {type: stamp for type, stamp in node.link_sets.items() if stamp >= before}
    node.column_link_sets = {type: stamp for type, stamp in node.column_link_sets.items() if stamp >= before}
    if node.floor < before:
        node.floor = NEVER
    if node.column_renamed_at < before:
        node.column_renamed_at = NEVER
