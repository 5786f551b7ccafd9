"""The remembered facts of those nodes and edges that a group of events touches, in memory."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, NewType

from platform_defs.canonical import canonical_json
from platform_defs.graph.asset_kinds import ASSET_KINDS
from platform_defs.graph.model import Edge, EdgeKey, Node
from platform_defs.lineage.facts import Ref
from platform_defs.lineage.merge import bounds
from platform_defs.lineage.version import Version

if TYPE_CHECKING:
    from platform_defs.lineage.merge.speech.speakers import SpeakerState

Stamp = NewType("Stamp", str)
NEVER = Stamp("")  # before every stamp
BEFORE_ALL = Stamp("0")  # before every stamp of an event, which has the years from 1 on
VERSION_LENGTH = 32

# edges that follow from names; facts cannot say or deny them
DERIVED_TYPES = frozenset(kind.edge for kind in ASSET_KINDS.values())
# kinds whose readable name is the last part of the qualified one, and so follows a rename
NAMED = frozenset(kind.name for kind in ASSET_KINDS.values() if kind.shows_last_part)


class NeedsRebuild(Exception):
    """What the graph remembers cannot decide this exactly; the stored events can.

    version: of the event that cannot be merged; None if it is not known which one of several it is.
    """

    version: Version | None = None


def stamp_of(version: Version, place: int) -> Stamp:
    return Stamp(f"{version}{place:05x}")


@dataclass(slots=True)
class ColumnsState:
    """The newest ColumnSet of a table.

    `lacked` has an entry for each column in it: the newest set that lacked the column. Every other column is lacked by
    this one. `digest` is that of the set's contents while no newer fact has touched a column, None afterwards.
    """

    at: Stamp
    digest: str | None
    lacked: dict[str, Stamp]


@dataclass(frozen=True, slots=True)
class IncomingRename:
    """At this time something was renamed to this name.

    What was said before of the name itself was dead up to `floor`. mixed: it also had living facts of its own.
    moved: it came from below another parent.
    """

    at: Stamp
    floor: Stamp
    mixed: bool
    moved: bool


class Claim(NamedTuple):
    """A speaker says that a node or edge exists, with these properties. `at` may be too old: see speech/speakers.py."""

    at: Stamp
    props: dict[str, Any]

    def joined(self, other: "Claim") -> "Claim":
        """One claim for two of the same speaker.

        If they contradict each other, the text of the value decides and not the time: so a statement that is only made
        again changes nothing.
        """
        props = {
            name: max((claim.props[name] for claim in (self, other) if name in claim.props), key=canonical_json)
            for name in {**self.props, **other.props}
        }
        return Claim(max(self.at, other.at), props)


class Crowd(NamedTuple):
    """The claims on a node or edge that are not remembered one by one (speech/crowds.py). size: how many they are.

    since: none of them is older. first: for each property, the first one who gives it.
    """

    size: int
    since: Stamp
    first: Mapping[str, str]


NO_CROWD = Crowd(0, NEVER, {})


@dataclass(slots=True)
class NodeState:
    """link_sets and column_link_sets: the newest LinkSet and, of a table, ColumnsUnlinked by type. entries_at: the
    newest fact that said all entries of `properties`; older ones are not kept. named_in: of a table and what is above
    it, the versions of all events that named it; None if they are more than MAX_NAMED, or not known. crowd_ended_at: of
    a table, the newest drop that ended claims of a crowd on its columns or their lineage.
    """

    ref: Ref | None
    label: str | None = None
    label_at: Stamp = NEVER
    exists_at: Stamp = NEVER
    named_in: frozenset[Version] | None = frozenset()
    floor: Stamp = NEVER
    props: dict[str, tuple[Stamp, Any]] = field(default_factory=dict)
    columns: ColumnsState | None = None
    entries_at: Stamp = NEVER
    link_sets: dict[str, Stamp] = field(default_factory=dict)
    column_link_sets: dict[str, Stamp] = field(default_factory=dict)
    renames: dict[Stamp, Ref] = field(default_factory=dict)
    incoming_renames: list[IncomingRename] = field(default_factory=list)
    column_renamed_at: Stamp = NEVER
    count: int | None = None
    # by the id of the speaker; that a speaker has read a column is a claim beside that it writes the column
    claims: dict[str, Claim] = field(default_factory=dict)
    crowd: Crowd = NO_CROWD
    crowd_ended_at: Stamp = NEVER
    speaker: "SpeakerState | None" = None
    # what others than the merge wrote on the node, such as an embedding
    foreign: dict[str, Any] = field(default_factory=dict)
    vector: str | None = None

    def name_in(self, versions: Iterable[Version]) -> None:
        """Adds events that named the asset."""
        if self.named_in is not None and not self.named_in.issuperset(versions):
            both = self.named_in.union(versions)
            self.named_in = both if len(both) <= bounds.MAX_NAMED else None

    @property
    def arrived_at(self) -> Stamp:
        return self.incoming_renames[-1].at if self.incoming_renames else NEVER


@dataclass(slots=True)
class EdgeState:
    """first: only for HAS_METRIC, the oldest fact that put the metric under the schema. claims: by speaker."""

    at: Stamp
    linked: bool
    props: dict[str, Any] = field(default_factory=dict)
    first: Stamp = NEVER
    claims: dict[str, Claim] = field(default_factory=dict)
    crowd: Crowd = NO_CROWD

    @property
    def is_claimed(self) -> bool:
        return bool(self.claims or self.crowd.size)

    @property
    def newest(self) -> Stamp:
        return max(self.at, *(claim.at for claim in self.claims.values()), self.crowd.since)


@dataclass(slots=True)
class State:
    """Loaded nodes (None: absent) and edges by their shown type, with what they look like in the store."""

    tenant: str
    tenant_node: Node | None = None
    nodes: dict[str, NodeState | None] = field(default_factory=dict)
    edges: dict[EdgeKey, EdgeState] = field(default_factory=dict)
    stored_nodes: dict[str, Node] = field(default_factory=dict)
    stored_edges: dict[EdgeKey, Edge] = field(default_factory=dict)
    # the edges that follow from names, as far as they were loaded: they lead to what is below
    derived: set[EdgeKey] = field(default_factory=set)
    asked_links: set[EdgeKey] = field(default_factory=set)
    # nodes of which all edges, or those of a type, are loaded
    surrounded: set[str] = field(default_factory=set)
    asked_types: set[tuple[str, str]] = field(default_factory=set)
    # whether a node that was ever put here has been renamed, or a column of it: only then may a name have moved
    names_moved: bool = False
    # speakers whose claims change by the facts that are being merged, found while these were loaded and no name moved
    changing: dict[str, bool] = field(default_factory=dict)
    # where to look for what is below a node and for the edges at it
    _below: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    _edges_at: dict[str, set[EdgeKey]] = field(default_factory=lambda: defaultdict(set))

    def node(self, ref: Ref) -> NodeState:
        """The state of an asset, created if absent."""
        state = self.find(ref)
        if state is None:
            state = NodeState(ref)
            self.put_node(ref.id, state)
        elif state.ref is None:
            state.ref = ref
        return state

    def find(self, ref: Ref) -> NodeState | None:
        if ref.id not in self.nodes and ref.parent is not None and ref.parent.id not in self.stored_nodes:
            # what is stored is never without what is above it
            self.find(ref.parent)
            return None
        return self.nodes[ref.id]

    @property
    def is_partial(self) -> bool:
        """Whether the store may hold more than was loaded."""
        return bool(self.stored_nodes)

    def is_loaded(self, ref: Ref) -> bool:
        """Whether `find` can tell if the asset is remembered."""
        if type(self.nodes) is not dict or ref.id in self.nodes:
            return True
        return ref.parent is not None and ref.parent.id not in self.stored_nodes and self.is_loaded(ref.parent)

    def put_node(self, id: str, node: NodeState | None) -> None:
        self.nodes[id] = node
        if node is not None and (node.renames or node.incoming_renames or node.column_renamed_at):
            self.names_moved = True
        if node is not None and node.ref is not None and node.ref.parent is not None:
            self._below[node.ref.parent.id].add(id)

    def put_edge(self, key: EdgeKey, edge: EdgeState) -> None:
        self.edges[key] = edge
        self._edges_at[key.from_id].add(key)
        self._edges_at[key.to_id].add(key)

    def children(self, ref: Ref) -> list[Ref]:
        """Assets directly below by name that are remembered."""
        nodes = [self.nodes[id] for id in self._below.get(ref.id, ())]
        return sorted((node.ref for node in nodes if node is not None and node.ref), key=lambda child: child.name)

    def below(self, ref: Ref) -> Iterator[Ref]:
        for child in self.children(ref):
            yield child
            yield from self.below(child)

    def edges_of(self, ids: Iterable[str]) -> list[EdgeKey]:
        return sorted({key for id in ids for key in self._edges_at.get(id, ()) if key in self.edges})


class _AllKnown(dict[str, NodeState | None]):
    """What is not there is absent, not merely not loaded."""

    def __missing__(self, id: str) -> None:
        return None


def empty_state(tenant: str) -> State:
    """A state that holds the whole graph: nothing has to be loaded into it."""
    return State(tenant, nodes=_AllKnown())


def version_in(stamp: Stamp) -> Version:
    return Version(stamp[:VERSION_LENGTH])


def path(ref: Ref) -> Iterator[Ref]:
    """The asset and all above it."""
    above: Ref | None = ref
    while above is not None:
        yield above
        above = above.parent


def column_of(table: Ref, name: str) -> Ref:
    return Ref("column", (*table.name, name))
