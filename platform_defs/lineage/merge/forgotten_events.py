"""Starting state for a rebuild that must keep facts whose events retention has deleted.

A fact of an event that is still stored is left out, because the rebuild will apply that event again; so a graph whose
events are all stored gives an empty state. Facts that a stored rename has moved go back to the old name first, because
the rebuild will apply that rename again. If the new name had facts of its own, the two can no longer be told apart:
they wait, and are added when the rebuild has applied the rename. Facts that a stored event has overwritten or dropped
are not in the graph any more, so they cannot be kept.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from platform_defs.graph.model import Edge, EdgeKey, Node
from platform_defs.lineage.facts import Ref
from platform_defs.lineage.merge.codec import read_edge, read_facts, read_node
from platform_defs.lineage.merge.load import table_of
from platform_defs.lineage.merge.renames import joined, joined_claims, joined_edges, living_facts
from platform_defs.lineage.merge.speech.claims import claim_again, name_crowds
from platform_defs.lineage.merge.speech.crowds import joined_crowds
from platform_defs.lineage.merge.speech.speakers import SpeakerState
from platform_defs.lineage.merge.speech.unstored import lacking_speakers, state_again
from platform_defs.lineage.merge.state import (
    BEFORE_ALL,
    DERIVED_TYPES,
    LAST_TYPE,
    NEVER,
    NO_CROWD,
    Claim,
    ColumnsState,
    Crowd,
    EdgeState,
    NodeState,
    Stamp,
    State,
    empty_state,
    version_in,
)
from platform_defs.lineage.version import Version

# a rename: its stamp, the old name, the new name
Move = tuple[Stamp, Ref, Ref]


@dataclass(slots=True)
class Waiting:
    """Facts from before a rename about the asset that has the name `new` since, and about all below it."""

    new: Ref
    nodes: dict[str, NodeState] = field(default_factory=dict)
    edges: dict[EdgeKey, EdgeState] = field(default_factory=dict)


@dataclass(slots=True)
class ForgottenFacts:
    """state: the facts of deleted events. waiting: those to add when the rename of this stamp has been merged."""

    state: State
    waiting: dict[Stamp, Waiting] = field(default_factory=dict)


def read_forgotten_facts(
    tenant: str, items: Iterable[Node | Edge], stored: set[Version], moves: Sequence[Move]
) -> ForgottenFacts:
    """Finds the facts in the graph whose events are not stored any more.

    items: the whole graph. stored: the versions of all stored events. moves: their renames.
    """
    state = _whole(tenant, items)
    name_crowds(state)
    lacking = lacking_speakers(state)
    forgotten = ForgottenFacts(state)
    mixed = {incoming.at: incoming.mixed for node in _nodes(state) for incoming in node.incoming_renames}

    def kept(stamp: Stamp) -> Stamp:
        return NEVER if version_in(stamp) in stored else stamp

    _restamp(forgotten, kept)
    for at, ref, new in sorted(moves, key=lambda move: move[0], reverse=True):
        # a rename that the graph does not know has moved nothing
        if at in mixed:
            origin = new if mixed[at] else ref
            found = _taken_out(state, at, new, origin)
            if not mixed[at]:
                _put_back(state, found)
            elif found.nodes or found.edges:
                forgotten.waiting[at] = found
    state_again(state, lacking)
    claim_again(state)
    _leave_out_empty(forgotten)
    return forgotten


def make_older(forgotten: ForgottenFacts) -> None:
    """Makes all forgotten facts older than every event, so that the stored events can be merged after them."""
    _restamp(forgotten, lambda stamp: Stamp(f"{BEFORE_ALL}{stamp}") if stamp else NEVER)


def take_up(state: State, waiting: Waiting) -> None:
    """Adds the facts that waited for a rename to the state, in which that rename has just been merged."""
    family = {one: living_facts(state, one, flat=True) for one in (waiting.new, *state.below(waiting.new))}
    root = state.node(waiting.new)
    for one, node in family.items():
        state.put_node(one.id, node)
    for id, node in waiting.nodes.items():
        known = state.nodes[id]
        state.put_node(id, node if known is None else joined(known, node))
    renamed = state.node(waiting.new)
    renamed.renames = root.renames
    renamed.incoming_renames = [
        *root.incoming_renames[:-1],
        *(replace(last, mixed=True) for last in root.incoming_renames[-1:]),
    ]
    for key, edge in waiting.edges.items():
        known_edge = state.edges.get(key)
        state.put_edge(key, edge if known_edge is None else joined_edges(known_edge, edge))


def is_of_merge(item: Node | Edge) -> bool:
    """Whether the merge wrote it, and not another system: a node with a name, or an edge with a fact or by names."""
    if isinstance(item, Node):
        return read_node(item, NEVER).ref is not None
    key, edge = read_edge(item)
    return key.type in DERIVED_TYPES or bool(edge.at or edge.first or edge.is_claimed)


def _whole(tenant: str, items: Iterable[Node | Edge]) -> State:
    """The whole stored graph as a state."""
    state = empty_state(tenant)
    # renames are also changed in place below, which `put_node` does not notice
    state.names_moved = True
    nodes: list[Node] = []
    for item in items:
        if isinstance(item, Node):
            nodes.append(item)
        elif is_of_merge(item):
            key, edge = read_edge(item)
            if key.type not in DERIVED_TYPES:
                state.put_edge(key, edge)
    # Tables first: a column may store a mark in place of the stamp of its table's ColumnSet (codec.OF_SET).
    for node in sorted(nodes, key=lambda node: node.id.startswith("column:")):
        facts = read_facts(node)
        table = table_of(node.id, facts)
        above = None if table is None else state.nodes[table.id]
        read = read_node(node, NEVER if above is None or above.columns is None else above.columns.at, facts)
        if read.ref is not None:
            state.put_node(node.id, read)
    return state


def _nodes(state: State) -> list[NodeState]:
    return [node for node in state.nodes.values() if node is not None]


def _restamp(forgotten: ForgottenFacts, new: Callable[[Stamp], Stamp]) -> None:
    """Replaces every stamp; a fact whose stamp becomes NEVER is removed."""
    for node in (
        *_nodes(forgotten.state),
        *(node for some in forgotten.waiting.values() for node in some.nodes.values()),
    ):
        _restamp_node(node, new)
    for edges in (forgotten.state.edges, *(some.edges for some in forgotten.waiting.values())):
        for key, edge in list(edges.items()):
            edge.at, edge.first = new(edge.at), new(edge.first)
            edge.claims = _restamped_claims(edge.claims, new)
            edge.crowd = _restamped_crowd(edge.crowd, new)
            if not edge.at and (edge.first or edge.is_claimed):
                edges[key] = EdgeState(NEVER, False, first=edge.first, claims=edge.claims, crowd=edge.crowd)
            elif not edge.at:
                del edges[key]


def _restamped_claims(claims: dict[str, Claim], new: Callable[[Stamp], Stamp]) -> dict[str, Claim]:
    return {name: Claim(at, claim.props) for name, claim in claims.items() if (at := new(claim.at))}


def _restamped_crowd(crowd: Crowd, new: Callable[[Stamp], Stamp]) -> Crowd:
    """A crowd is never removed: after `name_crowds` it holds only claims of speakers that retention has forgotten."""
    return crowd._replace(since=new(crowd.since) or BEFORE_ALL) if crowd.size else crowd


def _restamp_speaker(speaker: SpeakerState, new: Callable[[Stamp], Stamp]) -> None:
    # the rebuild applies the stored events of these runs again
    speaker.past, speaker.past_until = {}, NEVER
    speaker.lacks_counting, speaker.forgotten_at = False, new(speaker.forgotten_at)
    speaker.floor = new(speaker.floor)
    speaker.lineage_floors = {id: at for id, stamp in speaker.lineage_floors.items() if (at := new(stamp))}
    for name, run in list(speaker.runs.items()):
        said = {digest: [at for stamp in stamps if (at := new(stamp))] for digest, stamps in run.said.items()}
        kept = {digest: stamps for digest, stamps in said.items() if stamps}
        speaker.runs[name] = replace(run, completed=new(run.completed), said=kept)
        if not new(run.completed) and not kept:
            del speaker.runs[name]
    speaker.leave_out_unused_bodies()


def _restamp_node(node: NodeState, new: Callable[[Stamp], Stamp]) -> None:
    node.claims, node.crowd = _restamped_claims(node.claims, new), _restamped_crowd(node.crowd, new)
    node.crowd_ended_at = new(node.crowd_ended_at)
    if node.speaker is not None:
        _restamp_speaker(node.speaker, new)
        if not node.speaker.runs and not node.speaker.floor:
            node.speaker = None
    node.label_at, node.exists_at, node.floor = new(node.label_at), new(node.exists_at), new(node.floor)
    if any(new(Stamp(version)) not in (version, NEVER) for version in node.named_in or ()):
        node.named_in = None
    elif node.named_in is not None:
        node.named_in = frozenset(version for version in node.named_in if new(Stamp(version)))
    if not node.label_at:
        node.label = None
    node.entries_at, node.column_renamed_at = new(node.entries_at), new(node.column_renamed_at)
    node.props = {name: (at, value) for name, (stamp, value) in node.props.items() if (at := new(stamp))}
    if LAST_TYPE not in node.props:
        # otherwise it stays as it is: what a stored event took back is not claimed when that event is applied again
        node.unclaimed_at = NEVER
    node.link_sets = {type: at for type, stamp in node.link_sets.items() if (at := new(stamp))}
    node.column_link_sets = {type: at for type, stamp in node.column_link_sets.items() if (at := new(stamp))}
    node.renames = {at: ref for stamp, ref in node.renames.items() if (at := new(stamp))}
    node.incoming_renames = [
        replace(one, at=at, floor=new(one.floor)) for one in node.incoming_renames if (at := new(one.at))
    ]
    if (columns := node.columns) is not None:
        lacked = {name: new(stamp) for name, stamp in columns.lacked.items()}
        node.columns = ColumnsState(at, columns.digest, lacked) if (at := new(columns.at)) else None


def _taken_out(state: State, at: Stamp, new: Ref, origin: Ref) -> Waiting:
    """Takes facts from before a rename out of the state: about the asset that is called `new` since, and all below it.

    They are returned under the name `origin`.
    """
    family = [one for one in (new, *state.below(new)) if state.nodes[one.id] is not None]
    names = {one.id: Ref(one.kind, (*origin.name, *one.name[len(new.name) :])) for one in family}
    found = Waiting(new)
    for key in state.edges_of(names):
        if state.edges[key].newest < at:
            begin, end = names.get(key.from_id), names.get(key.to_id)
            named = EdgeKey(key.type, begin.id if begin else key.from_id, end.id if end else key.to_id)
            found.edges[named] = state.edges.pop(key)
    ends = {end for key in found.edges for end in (key.from_id, key.to_id)}
    for one in family:
        before, after = _split(state.node(one), at, root=one == new)
        before.ref = names[one.id]
        before.renames = {
            stamp: Ref(to.kind, (*origin.name, *to.name[len(new.name) :])) for stamp, to in before.renames.items()
        }
        state.put_node(one.id, after)
        if before.ref.id in ends or _says_anything(before):
            found.nodes[before.ref.id] = before
    return found


def _put_back(state: State, found: Waiting) -> None:
    """Adds facts to the state that `_taken_out` has found, under the names that they have there."""
    for id, node in found.nodes.items():
        state.put_node(id, _with_newer(state.nodes[id], node))
    for key, edge in found.edges.items():
        state.put_edge(key, edge)


def _split(node: NodeState, at: Stamp, *, root: bool) -> tuple[NodeState, NodeState]:
    """The facts of a node from before and from after a stamp.

    root: the node is the renamed asset itself. Its renames stay with its name, so they count as facts from after.
    """
    columns_before = node.columns is not None and node.columns.at < at
    before = replace(
        node,
        exists_at=node.exists_at if node.exists_at < at else NEVER,
        claims={name: claim for name, claim in node.claims.items() if claim.at < at},
        crowd=node.crowd if node.crowd.since < at else NO_CROWD,
        floor=node.floor if node.floor < at else NEVER,
        props={name: said for name, said in node.props.items() if said[0] < at},
        columns=node.columns if columns_before else None,
        entries_at=node.entries_at if node.entries_at < at else NEVER,
        link_sets={type: stamp for type, stamp in node.link_sets.items() if stamp < at},
        column_link_sets={type: stamp for type, stamp in node.column_link_sets.items() if stamp < at},
        renames={} if root else {stamp: to for stamp, to in node.renames.items() if stamp < at},
        incoming_renames=[] if root else [incoming for incoming in node.incoming_renames if incoming.at < at],
        column_renamed_at=node.column_renamed_at if node.column_renamed_at < at else NEVER,
    )
    after = NodeState(
        node.ref,
        named_in=None,
        exists_at=node.exists_at if node.exists_at > at else NEVER,
        claims={name: claim for name, claim in node.claims.items() if claim.at > at},
        crowd=node.crowd if node.crowd.since > at else NO_CROWD,
        crowd_ended_at=node.crowd_ended_at,
        unclaimed_at=node.unclaimed_at,
        floor=node.floor if node.floor > at else NEVER,
        props={name: said for name, said in node.props.items() if said[0] > at},
        columns=None if columns_before else node.columns,
        entries_at=node.entries_at if node.entries_at > at else NEVER,
        link_sets={type: stamp for type, stamp in node.link_sets.items() if stamp > at},
        column_link_sets={type: stamp for type, stamp in node.column_link_sets.items() if stamp > at},
        renames=node.renames if root else {stamp: to for stamp, to in node.renames.items() if stamp > at},
        incoming_renames=node.incoming_renames
        if root
        else [incoming for incoming in node.incoming_renames if incoming.at > at],
        column_renamed_at=node.column_renamed_at if node.column_renamed_at > at else NEVER,
    )
    return before, after


def _with_newer(known: NodeState | None, back: NodeState) -> NodeState:
    """The facts that go back to the old name, joined with those that were stated about that name since (known)."""
    if known is None:
        return back
    return replace(
        back,
        exists_at=max(known.exists_at, back.exists_at),
        named_in=None,
        claims=joined_claims(known.claims, back.claims),
        crowd=joined_crowds(known.crowd, back.crowd),
        crowd_ended_at=max(known.crowd_ended_at, back.crowd_ended_at),
        unclaimed_at=max(known.unclaimed_at, back.unclaimed_at),
        floor=max(known.floor, back.floor),
        props=back.props | known.props,
        columns=known.columns or back.columns,
        entries_at=max(known.entries_at, back.entries_at),
        link_sets=back.link_sets | known.link_sets,
        column_link_sets=back.column_link_sets | known.column_link_sets,
        renames=back.renames | known.renames,
        incoming_renames=sorted([*known.incoming_renames, *back.incoming_renames], key=lambda incoming: incoming.at),
        column_renamed_at=max(known.column_renamed_at, back.column_renamed_at),
        foreign=back.foreign | known.foreign,
        vector=known.vector or back.vector,
    )


def _leave_out_empty(forgotten: ForgottenFacts) -> None:
    """Removes nodes of which nothing is remembered, unless an edge needs them."""
    edges = [*forgotten.state.edges, *(key for some in forgotten.waiting.values() for key in some.edges)]
    ends = {end for key in edges for end in (key.from_id, key.to_id)}
    for id, node in list(forgotten.state.nodes.items()):
        if node is not None and id not in ends and not _says_anything(node):
            forgotten.state.put_node(id, None)


def _says_anything(node: NodeState) -> bool:
    stamps = (node.label_at, node.exists_at, node.floor, node.entries_at, node.column_renamed_at)
    others = (node.props, node.columns, node.link_sets, node.column_link_sets, node.renames, node.incoming_renames)
    return any(stamps) or any(others) or bool(node.claims or node.crowd.size) or node.speaker is not None
