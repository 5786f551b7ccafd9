"""What speakers have said when two tables or columns become one by a rename."""

from collections.abc import Iterator

from platform_defs.lineage.facts import Ref
from platform_defs.lineage.merge.names import current_name, named_since_drop
from platform_defs.lineage.merge.speech.claims import claimed_item, claims_of, put_claim, speakers_in
from platform_defs.lineage.merge.speech.last_types import note_end, note_types
from platform_defs.lineage.merge.speech.past_runs import unfold_all
from platform_defs.lineage.merge.speech.rewriting import settle_columns, strike_dead
from platform_defs.lineage.merge.speech.speakers import SpeakerState, is_loaded
from platform_defs.lineage.merge.speech.statement_bodies import DERIVES_FROM, ClaimKey, items, tables_of
from platform_defs.lineage.merge.state import NeedsRebuild, Stamp, State, path, version_in


def settle_names(state: State, ref: Ref, new: Ref) -> None:
    """Before two assets become one by a rename to `new`: statements must not depend on what is forgotten then.

    That is what was dropped of either, and how their columns were renamed. Raises NeedsRebuild if statements that are
    not remembered may count again.
    """
    for id, speaker in speakers_in(state):
        unfold_all(speaker)
        if state.is_partial and (speaker.lacks_counting or (speaker.past and not _is_apart(state, speaker, new))):
            raise NeedsRebuild(f"{id}: statements that may count again are not remembered")
        strike_dead(state, speaker)
        settle_columns(state, speaker, {ref, new})


def _is_apart(state: State, speaker: SpeakerState, new: Ref) -> bool:
    """Whether nothing counts again that the speaker said and that is not remembered, if a table is renamed to `new`.

    Only lineage could: if a run ended it that is known, or was known, to have named `new` and not the other table. No
    such run is forgotten if all events that named `new` are newer than what is: often that of the rename is the only
    one. And what is forgotten ends no lineage of `new` then.
    """
    named_in = named_since_drop(state, new)
    return new.kind == "table" and bool(named_in) and min(named_in or ()) > version_in(speaker.past_until)


def is_named(state: State, ref: Ref) -> bool:
    """Whether a remembered statement speaks of the asset or of what is below it, whether it counts now or not."""
    table = ref.parent if ref.kind == "column" else ref
    for _, speaker in speakers_in(state):
        for run in speaker.runs.values():
            for digest, at in run.statements():
                body = speaker.bodies[digest]
                if any(current_name(state, one, at) == table for one in tables_of(body).all) and any(
                    one is not None and is_loaded(state, one, at) and ref in _path(current_name(state, one, at))
                    for _, key in items(body)
                    for one in (key.source, key.target)
                ):
                    return True
    return False


def review_joined_claims(state: State, table: Ref, at: Stamp) -> None:
    """After two tables became one, at that time, claims are what they would be if the two had always been one.

    Some do not count any more, because a newer run says something else of the other table. And lineage may count again
    that a newer run had ended by not naming its table, if that run names the other one.
    """
    live = {
        id: claims_of(state, speaker, loaded_only=True)
        for id, speaker in speakers_in(state)
        # what such a speaker claims is not all remembered; `settle_names` leaves it to a rebuild where that matters
        if not speaker.lacks_counting
    }
    columns = state.children(table)
    for column in columns:
        node = state.node(column)
        ended = {name for name in node.claims if name in live and ClaimKey("written", column) not in live[name]}
        node.claims = {name: claim for name, claim in node.claims.items() if name not in ended}
        if ended:
            note_end(node, at)
        for id, replaced in speakers_in(state):
            if id in ended:
                note_types(state, replaced.bodies, replaced.said())
    for place in state.edges_of({table.id, *(column.id for column in columns)}):
        begin, end = state.nodes[place.from_id], state.nodes[place.to_id]
        if begin is not None and end is not None and begin.ref is not None and end.ref is not None:
            key, edge = ClaimKey(place.type, begin.ref, end.ref), state.edges[place]
            edge.claims = {name: claim for name, claim in edge.claims.items() if name not in live or key in live[name]}
    for id, claims in live.items():
        speaker = state.nodes[id]
        assert speaker is not None
        assert speaker.ref is not None
        for key, claim in claims.items():
            of_table = key.type == DERIVES_FROM and table in (key.source, key.source.parent)
            item = claimed_item(state, key)
            if of_table and (item is None or id not in item.claims):
                put_claim(state, speaker.ref, key, claim, was_claimed=False)


def _path(ref: Ref | None) -> Iterator[Ref]:
    return iter(()) if ref is None else path(ref)
