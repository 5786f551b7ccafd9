"""Takes a statement of a speaker up, or back: its claims follow what counts of all that it has said."""

from collections.abc import Callable, Sequence, Set
from dataclasses import replace

from platform_defs.lineage.facts import Ref, Statement
from platform_defs.lineage.merge.names import resolve
from platform_defs.lineage.merge.speech.claims import claims_of, replace_claims, take_back
from platform_defs.lineage.merge.speech.last_types import is_only_last_type, note_late_types, note_replaced_types
from platform_defs.lineage.merge.speech.past_runs import fold, recall
from platform_defs.lineage.merge.speech.rewriting import strike_dead
from platform_defs.lineage.merge.speech.speakers import SpeakerState, expand, live_parts, live_shape
from platform_defs.lineage.merge.speech.statement_bodies import ClaimKey, digest_of, encode, items
from platform_defs.lineage.merge.speech.vouching import say_vouched
from platform_defs.lineage.merge.state import NEVER, NeedsRebuild, Stamp, State


def take_statement(state: State, statement: Statement, at: Stamp) -> None:
    """Adds the statement to what its speaker has said, and changes the speaker's claims accordingly.

    Raises NeedsRebuild if it is not remembered what counts with this statement.
    """
    node = state.node(statement.speaker)
    speaker = node.speaker = node.speaker or SpeakerState()
    if not recall(state, speaker, statement, at):
        return
    is_outdated = speaker.is_outdated(state, statement, at)
    if is_outdated:
        strike_dead(state, speaker)
    before = live_shape(state, speaker)
    old_state = speaker.copy()
    speaker.add(state, statement, at)
    if (
        speaker.lacks_counting
        and state.is_partial
        and speaker.done_at(statement.run) > old_state.done_at(statement.run)
    ):
        raise NeedsRebuild(f"{statement.speaker.id}: statements that a completed run replaces are not remembered")
    _refuse_uncertain_lineage(state, speaker, statement, at)
    comes_late = is_only_last_type(state, speaker, statement, at)
    if is_outdated or comes_late or before != live_shape(state, speaker):
        say_vouched(state, old_state.bodies, old_state.said())
        _refuse_uncertain(state, statement, at)
        strike_dead(state, speaker)
        # a drop does not reach the statements of speakers in a crowd
        strike_dead(state, old_state)
        note_replaced_types(state, old_state, speaker)
        if comes_late:
            note_late_types(state, speaker, statement, at)
        old, new = claims_of(state, old_state), claims_of(state, speaker)
        _refuse_revived(state, speaker, new.keys() - old.keys())
        replace_claims(state, statement.speaker, old, new, max(at, speaker.done_at(statement.run)))
    fold(state, speaker)


def _refuse_uncertain(state: State, statement: Statement, at: Stamp) -> None:
    """Raises NeedsRebuild for a late statement about columns that a rename has made one with others since."""
    if not state.names_moved:
        return
    for _, key in items(encode(statement)):
        for ref in (key.source, key.target):
            if ref is not None and ref.kind == "column":
                resolve(state, ref, at)


def _refuse_uncertain_lineage(state: State, speaker: SpeakerState, statement: Statement, at: Stamp) -> None:
    """Raises NeedsRebuild for late lineage, if runs that completed later are forgotten: one may have ended it."""
    effective = max(at, speaker.done_at(statement.run))
    if effective >= speaker.floor or not state.is_partial or not encode(statement)["lineage"]:
        return
    digest = digest_of(statement)
    # where a newer run has said the same of the same tables, it does not matter whether this one counts too
    if not state.names_moved and _is_said_later(speaker, digest, at, effective):
        return
    live = live_parts(state, speaker)
    if any(said == at for part, said in live.items() if part.digest == digest and part.kind == "lineage"):
        raise NeedsRebuild(f"{statement.speaker.id}: runs that are not remembered may have ended the lineage")


def _is_said_later(speaker: SpeakerState, digest: str, at: Stamp, effective: Stamp) -> bool:
    """Whether the same was said later in a run that completed no sooner: it counts for at least as long."""
    return any(
        said > at and max(said, run.done_at) >= effective
        for run in speaker.runs.values()
        for said in run.said.get(digest, ())
    )


def _refuse_revived(state: State, speaker: SpeakerState, revived: Set[ClaimKey]) -> None:
    """Raises NeedsRebuild if old statements count again about assets that a rename has made one with others since.

    What was dropped of these assets before the rename is forgotten. In a rebuild it is not: there the statements of all
    speakers are remembered when two assets become one.
    """
    if revived and state.names_moved and state.is_partial:
        for key, named, claim in expand(state, speaker, live_parts(state, speaker)):
            for ref in (key.source, key.target):
                if ref is not None and named in revived:
                    resolve(state, ref, claim.at)


def unsay(
    state: State,
    speaker: Ref,
    statements: Sequence[Statement],
    is_unsaid: Callable[[Stamp], bool],
    is_read_still: Callable[[Ref], bool],
) -> None:
    """Takes statements back as if they had never been made; is_unsaid: whether a stamp is of one of their events.

    is_read_still: whether a column that they have read may keep its claim. Raises NeedsRebuild where it is not
    remembered what would count without them.
    """
    node = state.find(speaker)
    known = None if node is None else node.speaker
    if known is None or (known.floor and any(statement.completes for statement in statements)):
        raise NeedsRebuild(f"{speaker.id} is not remembered, or has runs that are forgotten")
    old = claims_of(state, known)
    for run_name, digest in {(one.run, digest_of(one)) for one in statements if one.names_dataset}:
        run = known.runs.get(run_name)
        if run is None or not all(map(is_unsaid, run.said.get(digest, [NEVER]))):
            raise NeedsRebuild(f"a statement of {speaker.id} is not remembered as it was made")
        rest = {other: stamps for other, stamps in run.said.items() if other != digest}
        known.runs[run_name] = replace(run, said=rest)
        if not rest and (not run.completed or is_unsaid(run.completed)):
            del known.runs[run_name]
    known.leave_out_unused_bodies()
    new = claims_of(state, known)
    unread = [key for key in old.keys() - new.keys() if key.type == "read" and not is_read_still(key.source)]
    if unread and known.forgotten_at:
        raise NeedsRebuild(f"runs of {speaker.id} that are forgotten may have read the same columns")
    replace_claims(state, speaker, old, new, NEVER)
    for key in unread:
        take_back(state, speaker.id, key, NEVER)
