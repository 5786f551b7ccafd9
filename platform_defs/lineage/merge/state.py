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
BEFORE_ALL = Stamp("0")  # before every stamp of an event: those begin with 3 or 4 (version.py)
AFTER_ALL = Stamp("~")
VERSION_LENGTH = 32
# The property that holds a column's type, and the name under which its node remembers the last known one, which is
# shown only if nothing else gives the type (speech/last_types.py).
TYPE = "dataType"
LAST_TYPE = "_lastType"

# Edges that follow from the names of assets. No fact creates or removes them.
DERIVED_TYPES = frozenset(kind.edge for kind in ASSET_KINDS.values())
# Kinds whose property `name` is the last part of their qualified name. It changes when they are renamed.
NAMED = frozenset(kind.name for kind in ASSET_KINDS.values() if kind.shows_last_part)


class NeedsRebuild(Exception):
    """The facts that the graph remembers do not suffice to decide this exactly; a rebuild from all events can.

    version: of the event that cannot be merged; None if it is not known which one of several it is.
    """

    version: Version | None = None


def stamp_of(version: Version, place: int) -> Stamp:
    """The stamp of the fact at this position in the event of this version."""
    return Stamp(f"{version}{place:05x}")


@dataclass(slots=True)
class ColumnsState:
    """The newest ColumnSet of a table, and what must be known of older ones.

    at: the stamp of the newest set. lacked: for each column of that set, the stamp of the newest set that did not list
    the column, NEVER if all did. So a column is in the newest set if it has an entry in `lacked`. digest: a hash of the
    newest set, by which a repetition is recognised; None once a newer fact has changed one of its columns.
    """

    at: Stamp
    digest: str | None
    lacked: dict[str, Stamp]


@dataclass(frozen=True, slots=True)
class IncomingRename:
    """Another asset was renamed to this name, at the stamp `at`.

    floor: facts about this name up to this stamp were dead by then. mixed: the name had living facts of its own, so two
    assets became one. moved: the asset came from below another parent.
    """

    at: Stamp
    floor: Stamp
    mixed: bool
    moved: bool


class Claim(NamedTuple):
    """A speaker says that a node or edge exists, with these properties.

    The speaker may have repeated it since `at`: see speech/speakers.py.
    """

    at: Stamp
    props: dict[str, Any]

    def joined(self, other: "Claim") -> "Claim":
        """One claim in place of two by the same speaker.

        If they give a property different values, the greater one by its JSON text counts, not the newer one. Otherwise
        a statement that is merely repeated could change the result.
        """
        props = {
            name: max((claim.props[name] for claim in (self, other) if name in claim.props), key=canonical_json)
            for name in {**self.props, **other.props}
        }
        return Claim(max(self.at, other.at), props)


class Crowd(NamedTuple):
    """A summary of the claims on a node or edge that are not stored one by one (speech/crowds.py).

    size: how many there are. since: the stamp of the oldest one. first: for each property, the first speaker by
    precedence that gives it.
    """

    size: int
    since: Stamp
    first: Mapping[str, str]


NO_CROWD = Crowd(0, NEVER, {})


@dataclass(slots=True)
class NodeState:
    """What the graph remembers of an asset or of a speaker.

    exists_at, label_at: the newest facts that said that it exists, and which label it has. floor: the newest drop.
    entries_at: the newest fact that listed all entries of `properties`; entries of older facts are not kept.
    named_in: for a table, schema or catalog the versions of all events that named it; None if there were more than
    MAX_NAMED, or if they are not known. link_sets: the newest LinkSet by type of edge, and column_link_sets for a table
    the newest ColumnsUnlinked. renames: the new names, by the stamps at which the asset left this name.
    incoming_renames: the renames to this name, oldest first. column_renamed_at: for a table, the newest rename of one
    of its columns. count: the executionCount. crowd_ended_at: for a table, the newest drop that ended claims of a crowd
    on its columns or their lineage. unclaimed_at: for a column with a LAST_TYPE, when a job last stopped naming the
    column. If the column is gone and was not dropped, it went no later than this.
    """

    # None for a node whose name the merge does not know, such as one that only has an execution count so far
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
    # By the id of the speaker. That it reads a column is another claim than that it writes it, with the suffix READ of
    # speech/crowds.py.
    claims: dict[str, Claim] = field(default_factory=dict)
    crowd: Crowd = NO_CROWD
    crowd_ended_at: Stamp = NEVER
    unclaimed_at: Stamp = NEVER
    speaker: "SpeakerState | None" = None
    # what others than the merge wrote on the node, such as an embedding
    foreign: dict[str, Any] = field(default_factory=dict)
    vector: str | None = None

    def add_naming_events(self, versions: Iterable[Version]) -> None:
        """Adds events that named the asset to `named_in`."""
        if self.named_in is not None and not self.named_in.issuperset(versions):
            both = self.named_in.union(versions)
            self.named_in = both if len(both) <= bounds.MAX_NAMED else None

    @property
    def arrived_at(self) -> Stamp:
        """When the newest rename to this name happened; NEVER if there was none."""
        return self.incoming_renames[-1].at if self.incoming_renames else NEVER


@dataclass(slots=True)
class EdgeState:
    """What the graph remembers of an edge.

    at, linked: when the newest fact about the edge was stated, and whether it said that the edge exists or that it does
    not. first: only for HAS_METRIC, the oldest fact that put the metric under the schema. claims: by the id of the
    speaker.
    """

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
        """The newest of all facts and claims."""
        return max(self.at, *(claim.at for claim in self.claims.values()), self.crowd.since)


@dataclass(slots=True)
class State:
    """The loaded part of a tenant's graph.

    nodes, edges: what is remembered of them; a node is None if the store does not have it. An edge that the store hides
    (graph.vocabulary.GONE_PREFIX) is here under its visible type. stored_nodes, stored_edges: as the store has them.
    """

    tenant: str
    tenant_node: Node | None = None
    nodes: dict[str, NodeState | None] = field(default_factory=dict)
    edges: dict[EdgeKey, EdgeState] = field(default_factory=dict)
    stored_nodes: dict[str, Node] = field(default_factory=dict)
    stored_edges: dict[EdgeKey, Edge] = field(default_factory=dict)
    # the loaded edges that follow from names; they lead to the assets below
    derived: set[EdgeKey] = field(default_factory=set)
    # single edges that were looked up, whether or not the store has them
    asked_links: set[EdgeKey] = field(default_factory=set)
    # nodes of which all edges are loaded
    surrounded: set[str] = field(default_factory=set)
    # (node, type) of which all edges are loaded
    asked_types: set[tuple[str, str]] = field(default_factory=set)
    # Whether a node was ever put here that was renamed, or that has a renamed column. While this is False, every
    # name means the same asset at all times.
    names_moved: bool = False
    # For each speaker, whether the facts that are being merged change its claims. Found while they were loaded, and
    # only as long as no name had moved.
    changing: dict[str, bool] = field(default_factory=dict)
    # the ids of the assets directly below a node, and the edges at it
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
        """The state of an asset, or None if nothing is remembered of it. Raises KeyError if it was not loaded."""
        if ref.id not in self.nodes and ref.parent is not None and ref.parent.id not in self.stored_nodes:
            # the store has no asset without its parent; this only checks that the parent was loaded
            self.find(ref.parent)
            return None
        return self.nodes[ref.id]

    @property
    def is_partial(self) -> bool:
        """Whether the store may hold more than was loaded."""
        return bool(self.stored_nodes)

    def is_loaded(self, ref: Ref) -> bool:
        """Whether `find` may be called for the asset."""
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
        """All assets below by name that are remembered, each before those below it."""
        for child in self.children(ref):
            yield child
            yield from self.below(child)

    def edges_of(self, ids: Iterable[str]) -> list[EdgeKey]:
        """The loaded edges that begin or end at one of these nodes, sorted."""
        return sorted({key for id in ids for key in self._edges_at.get(id, ()) if key in self.edges})


class _AllKnown(dict[str, NodeState | None]):
    """The nodes of a state that holds the whole graph: one that is missing here does not exist."""

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
