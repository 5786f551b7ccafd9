"""Takes back what events said of names that turn out to mean other tables, so that they can say it of those tables.

The usual case: a run's START names a path, and its COMPLETE says by a symlink which table the path is. If all events
that named the path are known, the graph can be brought to what it would be without them; then they are applied again
with the table's name. Anything that these events cannot explain raises NeedsRebuild.
"""

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from functools import partial

from platform_defs.lineage.facts import Exists, Fact, Ref, Statement
from platform_defs.lineage.merge.names import current_name, exists
from platform_defs.lineage.merge.speech.claims import speakers_of
from platform_defs.lineage.merge.speech.taking import unsay
from platform_defs.lineage.merge.state import NEVER, EdgeState, NeedsRebuild, NodeState, Stamp, State, path, version_in
from platform_defs.lineage.version import Version

StampedFacts = Sequence[tuple[Stamp, Fact]]


@dataclass(frozen=True, slots=True)
class Relink:
    """Events to apply anew, because names that they use mean other tables now.

    names: these names. before: the facts of the events as they were applied. after: their facts by the new meanings.
    """

    names: frozenset[Ref]
    before: StampedFacts
    after: StampedFacts

    @property
    def versions(self) -> set[Version]:
        return {version_in(at) for at, _ in self.before}


def is_plain(facts: StampedFacts) -> bool:
    """Whether the facts are of the kinds that can be taken back."""
    return all(isinstance(fact, Exists | Statement) for _, fact in facts)


def names_any(facts: StampedFacts, names: Set[Ref]) -> bool:
    """Whether a fact says that an asset of one of these names exists."""
    return any(isinstance(fact, Exists) and fact.ref in names for _, fact in facts)


def take_back(state: State, relink: Relink) -> None:
    """Brings the state to what it would be without the events of the relink, as far as these named the names."""
    versions = relink.versions
    family = [one for name in relink.names for one in (name, *state.below(name)) if state.find(one) is not None]
    speakers: dict[Ref, list[Statement]] = {}
    for _, fact in relink.before:
        if isinstance(fact, Statement):
            speakers.setdefault(fact.speaker, []).append(fact)
    edges = state.edges_of({one.id for one in family})
    claimed: list[NodeState | EdgeState] = [*map(state.node, family), *(state.edges[key] for key in edges)]
    others = {id for item in claimed for id in speakers_of(item)} - {speaker.id for speaker in speakers}
    others |= {stamp for one in family for stamp in _stamps(state.node(one)) if version_in(stamp) not in versions}
    if (
        others
        or any(item.crowd.size for item in claimed)
        or any(state.edges[key].at or state.edges[key].first for key in edges)
    ):
        raise NeedsRebuild(f"events that are not known have named {sorted(name.id for name in relink.names)}")
    is_unsaid = partial(_is_of, versions)
    for speaker, statements in speakers.items():
        # columns of the names themselves are removed below
        read_still = partial(_is_in, _columns_read(state, relink.after, speaker), relink.names)
        unsay(state, speaker, statements, is_unsaid, read_still)
        remembered = state.node(speaker).speaker
        if remembered is not None and relink.names & remembered.tables().keys():
            raise NeedsRebuild(f"{speaker.id} has used one of the names in an event that is not known")
    for key in state.edges_of({one.id for one in family}):
        del state.edges[key]
    for one in family:
        state.put_node(one.id, None)
    above_all = {above for name in relink.names for above in path(name) if above != name}
    for above in sorted(above_all, key=lambda ref: -len(ref.name)):
        _forget_above(state, above, versions)


def _is_of(versions: set[Version], stamp: Stamp) -> bool:
    return version_in(stamp) in versions


def _columns_read(state: State, facts: StampedFacts, speaker: Ref) -> set[Ref | None]:
    """The columns that the speaker reads, by the names that they have now. What a statement writes it does not read."""
    return {
        current_name(state, column.ref, at)
        for at, fact in facts
        if isinstance(fact, Statement) and fact.speaker == speaker
        for column in fact.read
    }


def _is_in(columns: Set[Ref | None], tables: Set[Ref], column: Ref) -> bool:
    return column in columns or column.parent in tables


def _stamps(node: NodeState) -> Iterator[Stamp]:
    """All stamps of the node, and NEVER, which is of no event, if it remembers something that cannot be taken back."""
    if node.renames or node.incoming_renames or node.column_renamed_at or node.columns is not None or node.floor:
        yield NEVER
    if node.link_sets or node.column_link_sets or node.entries_at:
        yield NEVER
    if node.named_in is None and node.ref is not None and node.ref.kind == "table":
        yield NEVER
    yield from map(Stamp, node.named_in or ())
    yield from filter(None, (node.exists_at, node.label_at, *(at for at, _ in node.props.values())))


def _forget_above(state: State, above: Ref, versions: set[Version]) -> None:
    """Lets a schema or catalog above a name cease to exist, unless other events have named it.

    It does not matter when those events named it: only names of files are taken back, and what is above a file is never
    dropped. The events that are applied anew may name it again, for another file.
    """
    node = state.find(above)
    if node is None:
        return
    if node.named_in is not None:
        node.named_in -= versions
        if not node.named_in:
            node.exists_at, node.props = NEVER, {}
    elif not any(exists(state, child) for child in state.children(above)):
        raise NeedsRebuild(f"{above.id} has nothing below it any more, and not all events that named it are known")
