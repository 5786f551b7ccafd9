"""Forgets old drops, renames and removed edges, and the last types of columns that are gone for long.

If an event arrives afterwards that is even older, it counts again, as if the drop had never been. A column that comes
back afterwards has no type until somebody says one.
"""

from collections.abc import Iterable, Mapping

from platform_defs.graph.model import Edge, Node
from platform_defs.graph.text import is_hidden
from platform_defs.lineage.facts import SPEAKER, Ref
from platform_defs.lineage.merge.codec import FACTS, read_facts, read_node
from platform_defs.lineage.merge.names import exists, table_above
from platform_defs.lineage.merge.state import AFTER_ALL, DERIVED_TYPES, LAST_TYPE, NEVER, NodeState, Stamp, State


def is_candidate(item: Node | Edge) -> bool:
    """Whether a stored node or edge may hold something to forget."""
    if isinstance(item, Edge):
        return is_hidden(item)
    if item.id.startswith(f"{SPEAKER}:"):
        return False
    return is_hidden(item) or _has_renames(item) or _has_several_arrivals(item)


def _has_renames(node: Node) -> bool:
    return '"renames":' in node.props.get(FACTS, "")


def _has_several_arrivals(node: Node) -> bool:
    return '"arrivals":' in node.props.get(FACTS, "") and len(read_facts(node)["arrivals"]) > 1


def is_silent(node: Node, since: Stamp) -> bool:
    """Whether this speaker has said nothing since then."""
    speaker = read_node(node, NEVER).speaker
    return speaker is None or max((run.newest for run in speaker.runs.values()), default=NEVER) < since


class Speakers:
    """The speakers of a graph: which of them may be forgotten, and which renames the others still need.

    When a speaker takes back a statement about a table that was renamed since, only the rename tells where the claims
    of that statement are now.
    """

    def __init__(self, silent_since: Stamp) -> None:
        self.silent: list[str] = []
        self._silent_since = silent_since
        # the tables that statements name, with the first times at which they do
        self._named: dict[str, Stamp] = {}
        self._renamed: dict[Ref, dict[Stamp, Ref]] = {}

    def see(self, item: Node | Edge) -> None:
        """Takes note of one item of the graph."""
        if isinstance(item, Edge):
            return
        if item.id.startswith(f"{SPEAKER}:"):
            speaker = read_node(item, NEVER).speaker
            if speaker is None or is_silent(item, self._silent_since):
                # its claims stay
                self.silent.append(item.id)
                return
            for table, at in speaker.tables().items():
                self._named[table.id] = min(at, self._named.get(table.id, at))
        elif _has_renames(item):
            node = read_node(item, NEVER)
            if node.ref is not None:
                self._renamed[node.ref] = node.renames

    def first_named(self) -> dict[str, Stamp]:
        """Since when remembered statements name tables, by the ids that these had then and later."""
        renames = {ref.id: moves for ref, moves in self._renamed.items() if ref.kind == "table"}
        waiting = list(self._named.items())
        while waiting:
            id, at = waiting.pop()
            for stamp, new in renames.get(id, {}).items():
                if stamp > at and (new.id not in self._named or self._named[new.id] > at):
                    self._named[new.id] = at
                    waiting.append((new.id, at))
        return self._named


def forget(state: State, ids: Iterable[str], before: Stamp, named: Mapping[str, Stamp], events: Stamp) -> None:
    """Forgets what these nodes and the edges at them remember from before that time.

    named: see `Speakers.first_named`. events: how far back events are stored.
    """
    for id in ids:
        node = state.nodes[id]
        if node is not None and node.ref is not None:
            existing = exists(state, node.ref)
            if not existing and NEVER < node.floor < before:
                _leave_set(state, node.ref)
            named_at = named.get(table_above(node.ref).id, AFTER_ALL)
            # what a remembered statement names is found by the renames since then
            since = min(before, named_at) if any(stamp > named_at for stamp in node.renames) else before
            _forget(node, since, existing=existing)
            if existing:
                # a rebuild that applies a rename again looks here for what the rename has moved
                since = min(since, named_at, events)
                arrivals = node.incoming_renames
                node.incoming_renames = [one for one in arrivals if one.at >= since or one is arrivals[-1]]
    for key in state.edges_of(ids):
        edge = state.edges[key]
        if key.type in DERIVED_TYPES or edge.linked or edge.is_claimed:
            continue
        if max(edge.at, edge.first) < before:
            edge.at, edge.first = NEVER, NEVER


def _leave_set(state: State, ref: Ref) -> None:
    """Takes a column out of its table's newest ColumnSet, which would revive the column once its drop is forgotten."""
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
    # a type that was said long ago may be that of a column that went today
    if LAST_TYPE in node.props and max(node.props[LAST_TYPE][0], node.unclaimed_at) < before:
        del node.props[LAST_TYPE]
