"""The last known type of a column. It is shown while nobody whose word counts says what type the column has.

A newer run replaces what its job said before. But a run that names a column without a type does not know the type; the
column has one all the same. So each column remembers the newest type that any speaker has said of it, whether or not
that statement still counts. A drop of the column takes it along, as it does with everything that was said before.

Types are noted here when a statement ceases to count, and when one comes so late that it never did. Until then the
claims on the column have them, and the speaker knows when it said so last.

A column that is gone keeps its last type for a while (pruning.py). So it is noted too when claims end.
"""

from collections.abc import Iterable, Mapping, Set
from typing import Any

from platform_defs.canonical import canonical_json
from platform_defs.lineage.facts import Statement
from platform_defs.lineage.merge.names import current_name, floor
from platform_defs.lineage.merge.speech.speakers import Part, Shape, SpeakerState, is_loaded, live_shape
from platform_defs.lineage.merge.speech.statement_bodies import digest_of, encode, items
from platform_defs.lineage.merge.state import LAST_TYPE, NEVER, TYPE, Claim, NodeState, Stamp, State


def note_types(state: State, bodies: Mapping[str, Mapping[str, Any]], said: Iterable[tuple[str, Stamp]]) -> None:
    """Notes the types that these statements say, of those columns that are loaded.

    bodies: the statements by digest. said: their digests, with the times at which they were made.
    """
    if not state.names_moved:
        # while no name has moved, a repetition is about the same columns, so that only its newest stamp matters
        said = dict(sorted(said, key=lambda one: one[1])).items()
    for digest, at in said:
        for item, key in items(bodies[digest]):
            if key.target is None and TYPE in item[-1] and is_loaded(state, key.source, at):
                column = current_name(state, key.source, at)
                if column is not None and at > floor(state, column):
                    _note_type(state.node(column), at, item[-1][TYPE])


def note_late_types(state: State, speaker: SpeakerState, statement: Statement, at: Stamp) -> None:
    """Notes the types of a statement that comes too late to count, of columns that may be gone."""
    body = encode(statement)
    note_types(state, {digest_of(statement): body}, [(digest_of(statement), at)])
    for column in statement.written:
        now = current_name(state, column.ref, at) if is_loaded(state, column.ref, at) else None
        known = None if now is None else state.find(now)
        if known is not None:
            # the run that replaced the statement has completed by then
            note_end(known, speaker.current_since)


def note_end(column: NodeState, at: Stamp) -> None:
    """Notes that a speaker has taken back what it claimed of the column."""
    column.unclaimed_at = max(column.unclaimed_at, at)


def note_claimed_type(column: NodeState, claim: Claim) -> None:
    """Notes the type of a claim that ends, of which the statements are not known any more."""
    if TYPE in claim.props:
        _note_type(column, claim.at, claim.props[TYPE])


def _note_type(column: NodeState, at: Stamp, type: Any) -> None:
    """Notes the type, unless a newer one is known. Of the types that one event says, the greater by its JSON counts."""
    known_at, known = column.props.get(LAST_TYPE, (NEVER, None))
    if (at, canonical_json(type)) > (known_at, canonical_json(known)):
        column.props[LAST_TYPE] = (at, type)


def note_replaced_types(state: State, before: SpeakerState, after: SpeakerState) -> None:
    """Notes the types of those statements of a speaker of which less counts than before."""
    replaced = _replaced(live_shape(state, before), live_shape(state, after))
    note_types(state, before.bodies, ((digest, at) for digest, at in before.said() if digest in replaced))


def _replaced(before: Shape, after: Shape) -> Set[str]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        return {digest for digest, live in before.items() if after.get(digest) != live}
    parts = [part for part in before if isinstance(part, Part)]
    return {part.digest for part in parts if part not in after}


def is_only_last_type(state: State, speaker: SpeakerState, statement: Statement, at: Stamp) -> bool:
    """Whether the statement says a type and comes too late to count; the speaker must know of it already.

    If the same was said later, there is nothing to note: it has been noted since, or will be when it ceases to count.
    """
    if max(at, speaker.done_at(statement.run)) >= speaker.current_since:
        return False
    if not any(TYPE in column[-1] for column in encode(statement)["columns"]):
        return False
    digest = digest_of(statement)
    return state.names_moved or not any(known == digest and later > at for known, later in speaker.said())
