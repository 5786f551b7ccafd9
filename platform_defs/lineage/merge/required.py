"""Finds the nodes and edges that must be loaded before facts can be merged; repeated until none is missing."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from platform_defs.graph.asset_kinds import ASSET_KINDS
from platform_defs.graph.model import EdgeKey
from platform_defs.graph.vocabulary import HAS_METRIC, TOMBSTONE
from platform_defs.lineage.facts import (
    ColumnSet,
    ColumnsUnlinked,
    Dropped,
    Exists,
    Fact,
    Linked,
    LinkSet,
    Ref,
    Renamed,
    Statement,
    Unlinked,
)
from platform_defs.lineage.merge.names import tables_at
from platform_defs.lineage.merge.rules import digest_of, may_drop
from platform_defs.lineage.merge.speech.claims import speakers_of
from platform_defs.lineage.merge.speech.last_types import is_only_last_type
from platform_defs.lineage.merge.speech.speakers import SpeakerState, live_shape
from platform_defs.lineage.merge.speech.statement_bodies import DERIVES_FROM, ClaimKey, encode, tables_of
from platform_defs.lineage.merge.state import DERIVED_TYPES, NEVER, Stamp, State, column_of, path

HAS_COLUMN = "HAS_COLUMN"


@dataclass(slots=True)
class Required:
    """Missing nodes (ids), nodes with all edges (around), single edges (links), edges of one type at a node (typed)."""

    ids: set[str] = field(default_factory=set)
    around: set[str] = field(default_factory=set)
    links: set[EdgeKey] = field(default_factory=set)
    typed: set[tuple[str, str]] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.ids or self.around or self.links or self.typed)


def find_required(state: State, facts: Sequence[tuple[Stamp, Fact]], relinked: Iterable[Ref] = ()) -> Required:
    """What must still be loaded before these facts can be merged; the caller loads it and asks again.

    relinked: names of tables that will be taken back (relinking.py).
    """
    need = _Needs(state)
    touched: set[Ref] = set()
    sets: dict[Ref, list[ColumnSet]] = defaultdict(list)
    statements: dict[Ref, list[tuple[Stamp, Statement]]] = defaultdict(list)
    for at, fact in facts:
        match fact:
            case Exists(ref, _, props):
                for one in need.names(ref, at):
                    if one.parent is not None and one.kind == "column" and (props or not need.is_in_set(one)):
                        touched.add(one.parent)
            case Dropped(ref):
                for one in need.names(ref, at):
                    need.family(one)
                    touched.update(path(one))
            case Renamed(ref, new):
                for one in (*need.names(ref, at), *need.names(new, at)):
                    need.family(one)
                    touched.update(path(one))
            case ColumnSet(table, _):
                for one in need.names(table, at):
                    sets[one].append(fact)
            case Linked(type, source, target) | Unlinked(type, source, target):
                need.link(type, source, target, at)
            case LinkSet(source, types, links):
                for one in need.names(source, at):
                    need.types(one, types)
                for link in links:
                    need.link(link.type, link.source, link.target, at)
            case ColumnsUnlinked(table, types):
                for one in need.names(table, at):
                    need.column_types(one, types)
            case Statement(speaker):
                statements[speaker].append((at, fact))
    for name in relinked:
        need.names(name, NEVER)
        need.family(name)
        need.siblings(name)
    drops = any(may_drop(fact) for _, fact in facts) or bool(relinked)
    for speaker, said in statements.items():
        need.statements(speaker, said, may_change=drops)
    if drops:
        need.claimants()
        for at, fact in facts:
            if isinstance(fact, Renamed) and fact.new.kind == "table":
                need.lineage_of_both(fact.ref, fact.new, at)
    for table, given in sets.items():
        need.columns(table, given, touched=table in touched | need.claimed)
    need.ends()
    return need.required


class _Needs:
    """Collects what is missing: each method adds what it is named after, as far as the loaded part tells."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.required = Required()
        # A group names the same few assets hundreds of times: these need not be looked at again, nor those above them.
        self._loaded: set[str] = set()
        self._revivable: set[str] = set()
        self._constant_names: dict[str, list[Ref]] = {}
        # tables with columns that speakers may claim and that the stored set of columns lacks
        self.claimed: set[Ref] = set()

    def names(self, ref: Ref, at: Stamp) -> list[Ref]:
        """All names that the asset that was called `ref` then may have now; needs their nodes and those above them."""
        known = self._constant_names.get(ref.id)
        if known is not None:
            return known
        renamed = self._was_renamed(ref) or (ref.kind == "column" and self._was_renamed(ref.parent))
        found = list(dict.fromkeys(self._names(ref, at))) if renamed else [ref]
        for one in found:
            self._load(one)
            self._revive(one)
        if not renamed:
            self._constant_names[ref.id] = found
        return found

    def family(self, ref: Ref) -> None:
        """The asset with everything below it and all their edges."""
        for one in (ref, *self._state.below(ref)):
            self._surround(one.id)
            if one.kind == "schema":
                for key in self._state.edges_of([one.id]):
                    if key.type == HAS_METRIC:
                        self._surround(key.to_id)

    def siblings(self, ref: Ref) -> None:
        """The children of each asset above, if it is not known which events named that asset."""
        for one in path(ref):
            above = None if one.parent is None else self._state.nodes.get(one.parent.id)
            if one.parent is not None and above is not None and above.named_in is None:
                self.types(one.parent, [ASSET_KINDS[one.kind].edge])

    def link(self, type: str, source: Ref, target: Ref, at: Stamp) -> None:
        """The edge, between all names that its ends may have now."""
        if type in DERIVED_TYPES:
            return
        ends = self.names(target, at)
        for begin in self.names(source, at):
            for end in ends:
                self._link(EdgeKey(type, begin.id, end.id))
                if type == HAS_METRIC:
                    self._surround(end.id)

    def types(self, ref: Ref, types: Iterable[str]) -> None:
        if ref.id in self._state.stored_nodes and ref.id not in self._state.surrounded:
            self.required.typed.update({(ref.id, type) for type in types} - self._state.asked_types)

    def column_types(self, table: Ref, types: Iterable[str]) -> None:
        self.types(table, [HAS_COLUMN, *types])
        for column in self._state.children(table):
            self.types(column, types)

    def columns(self, table: Ref, given: list[ColumnSet], *, touched: bool) -> None:
        """The columns of the table, unless the group only repeats the stored ColumnSet."""
        node = self._state.nodes.get(table.id)
        if node is None:
            return
        digest = None if node.columns is None else node.columns.digest
        if not touched and digest is not None and all(digest_of(one.columns) == digest for one in given):
            return
        self.types(table, [HAS_COLUMN])
        names = [{column.ref.name[-1] for column in one.columns} for one in given]
        for name in set[str]().union(*names):
            self._load(column_of(table, name))
        for child in self._state.children(table):
            # one of the sets may drop it or revive it
            if any(child.name[-1] not in some for some in names) or self._is_tombstone(child):
                self._surround(child.id)

    def statements(self, speaker: Ref, said: list[tuple[Stamp, Statement]], *, may_change: bool) -> None:
        """All that the speaker has claimed and will claim; nothing more if its new statements change no claim."""
        self._load(speaker)
        if speaker.id not in self._state.nodes:
            return
        if not may_change and not self._state.names_moved and self._state.changing.get(speaker.id) is False:
            # found in an earlier round, when its tables were loaded
            return
        node = self._state.nodes[speaker.id]
        known = SpeakerState() if node is None or node.speaker is None else node.speaker
        tables = known.tables()
        for at, statement in said:
            for table in tables_of(encode(statement)).all:
                tables[table] = min(tables.get(table, at), at)
        named = [one for table, at in tables.items() for one in self.names(table, at)]
        if not all(map(self._state.is_loaded, named)):
            return
        if not (may_change or self._changes_claims(speaker, known, said)):
            return
        new = known.copy()
        for at, statement in said:
            new.add(self._state, statement, at)
        for key, at in known.refs():
            if key.type == "written":
                for column in self.names(key.source, at):
                    self._surround(column.id)  # it may be no longer claimed
        for key, at in new.refs():
            if key.target is None:
                for column in self.names(key.source, at):
                    if column.parent is not None and not self.is_in_set(column):
                        self.claimed.add(column.parent)
            else:
                self.link(key.type, key.source, key.target, at)

    def claimants(self) -> None:
        """The speakers of all claims that may be dropped: a claim survives the drop if it was made again since."""
        items = (*self._state.nodes.values(), *self._state.edges.values())
        for id in {id for item in items if item is not None for id in speakers_of(item)} - self._state.nodes.keys():
            self.required.ids.add(id)
        self._crowds()
        for node in list(self._state.nodes.values()):
            if node is not None and node.speaker is not None:
                for table, at in node.speaker.tables().items():
                    self.names(table, at)
                for key, at in node.speaker.refs():
                    self._renamed_columns(key, at)

    def _crowds(self) -> None:
        """The edges of tables with a crowd: they lead to speakers that vouch for these (names.crowd_spoke_until)."""
        for node in list(self._state.nodes.values()):
            if node is not None and node.crowd.size and node.ref is not None and node.ref.parent is not None:
                self._surround(node.ref.parent.id)
        for key, edge in self._state.edges.items():
            if edge.crowd.size and all(self._state.nodes.get(end) is not None for end in (key.from_id, key.to_id)):
                for table in tables_at(self._state, key):
                    self._surround(table.id)

    def lineage_of_both(self, one: Ref, other: Ref, at: Stamp) -> None:
        """Column lineage of speakers that name both tables: if a rename makes them one, it may count again."""
        pair = [set(self.names(table, at)) for table in (one, other)]
        for node in list(self._state.nodes.values()):
            if node is None or node.speaker is None:
                continue
            named = {name for table, first in node.speaker.tables().items() for name in self.names(table, first)}
            if all(named & names for names in pair):
                for key, first in node.speaker.refs():
                    if key.type == DERIVES_FROM and key.target is not None:
                        self.link(key.type, key.source, key.target, first)

    def _renamed_columns(self, key: ClaimKey, at: Stamp) -> None:
        """The columns of a claim, if columns of their tables were renamed: two that it names may be one by now."""
        for ref in (key.source, key.target):
            if ref is not None and ref.kind == "column" and ref.parent is not None:
                tables = (self._state.nodes.get(one.id) for one in self._names(ref.parent, at))
                if any(table is not None and table.column_renamed_at for table in tables):
                    self.names(ref, at)

    def _changes_claims(self, speaker: Ref, known: SpeakerState, said: list[tuple[Stamp, Statement]]) -> bool:
        """Whether the new statements change what the speaker claims; notes the answer in State.changing."""
        if self._state.names_moved:
            # Between several statements a run may be folded. Which claims change by that is not found out here.
            return len(said) > 1 or self._changes_parts(known, said)
        # while no name has moved, the answer does not depend on what else is loaded
        changes = self._state.changing.get(speaker.id)
        if changes is None:
            changes = self._state.changing[speaker.id] = self._changes_parts(known, said)
        return changes

    def _changes_parts(self, known: SpeakerState, said: list[tuple[Stamp, Statement]]) -> bool:
        before = live_shape(self._state, known)
        new = known.copy()
        for at, statement in said:
            if new.is_outdated(self._state, statement, at):
                return True
            new.add(self._state, statement, at)
            if live_shape(self._state, new) != before or is_only_last_type(self._state, new, statement, at):
                return True
        return False

    def is_in_set(self, column: Ref) -> bool:
        assert column.parent is not None
        table = self._state.nodes.get(column.parent.id)
        return table is not None and table.columns is not None and column.name[-1] in table.columns.lacked

    def ends(self) -> None:
        """Both ends of all loaded edges and the parents of all loaded nodes, which decide whether they exist."""
        nodes, tenant = self._state.nodes, self._state.tenant
        for key in (*self._state.edges, *self._state.derived):
            for end in (key.from_id, key.to_id):
                if end != tenant and end not in nodes:
                    self.required.ids.add(end)
        for node in self._state.nodes.values():
            if node is not None and node.ref is not None and node.ref.parent is not None:
                self._load(node.ref.parent)

    def _names(self, ref: Ref, at: Stamp) -> Iterator[Ref]:
        """The name itself and those that later renames lead to; a column follows its table, too."""
        if ref.kind == "column" and ref.parent is not None:
            starts = [column_of(table, ref.name[-1]) for table in self._names(ref.parent, at)]
        else:
            starts = [ref]
        seen: set[Ref] = set()
        while starts:
            one = starts.pop()
            if one in seen:
                continue
            seen.add(one)
            yield one
            node = self._state.nodes.get(one.id)
            if node is not None:
                starts += [new for stamp, new in node.renames.items() if stamp > at]

    def _was_renamed(self, ref: Ref | None) -> bool:
        node = None if ref is None else self._state.nodes.get(ref.id)
        return node is not None and bool(node.renames)

    def _load(self, ref: Ref) -> None:
        for one in path(ref):
            if one.id in self._loaded:
                return
            self._loaded.add(one.id)
            if one.id not in self._state.nodes:
                self.required.ids.add(one.id)

    def _revive(self, ref: Ref) -> None:
        """The edges of tombstones among the asset and those above it: if they come back, so do their edges."""
        for one in path(ref):
            if one.id in self._revivable:
                return
            self._revivable.add(one.id)
            if self._is_tombstone(one):
                self._surround(one.id)

    def _link(self, key: EdgeKey) -> None:
        known = key.from_id in self._state.surrounded or key.to_id in self._state.surrounded
        if not known and key not in self._state.asked_links:
            self.required.links.add(key)

    def _surround(self, id: str) -> None:
        if id in self._state.stored_nodes and id not in self._state.surrounded:
            self.required.around.add(id)

    def _is_tombstone(self, ref: Ref) -> bool:
        stored = self._state.stored_nodes.get(ref.id)
        return stored is not None and TOMBSTONE in stored.labels
