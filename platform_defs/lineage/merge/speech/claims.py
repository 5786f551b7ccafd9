"""Puts claims of speakers on nodes and edges, and takes them back, as the live statements of the speakers change."""

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import replace

from platform_defs.graph.model import EdgeKey
from platform_defs.lineage.facts import Ref, Statement
from platform_defs.lineage.merge.names import (
    claims_dead_before,
    crowd_spoke_until,
    floor,
    resolve,
    table_above,
    tables_at,
)
from platform_defs.lineage.merge.speech.crowds import READ, leave_crowd
from platform_defs.lineage.merge.speech.last_types import (
    is_only_last_type,
    note_claimed_type,
    note_end,
    note_late_types,
    note_replaced_types,
    note_types,
)
from platform_defs.lineage.merge.speech.past_runs import fold, recall
from platform_defs.lineage.merge.speech.rewriting import strike_dead
from platform_defs.lineage.merge.speech.speakers import (
    Claims,
    SpeakerState,
    expand,
    live_parts,
    live_shape,
)
from platform_defs.lineage.merge.speech.statement_bodies import (
    ClaimKey,
    digest_of,
    encode,
    items,
)
from platform_defs.lineage.merge.speech.vouching import say_vouched
from platform_defs.lineage.merge.state import (
    NEVER,
    NO_CROWD,
    Claim,
    EdgeState,
    NeedsRebuild,
    NodeState,
    Stamp,
    State,
    version_in,
)


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
        _replace_claims(state, statement.speaker, old, new, max(at, speaker.done_at(statement.run)))
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


def review_claims(state: State, at: Stamp = NEVER) -> None:
    """Brings all loaded claims up to date: by what their speakers have said since, and by what was dropped since.

    at: when something was dropped, if just now. Raises NeedsRebuild if claims that are not stored one by one may have
    been made before the drop or after it.
    """
    ended: list[tuple[str, ClaimKey]] = []
    for id, speaker in speakers_in(state):
        before = speaker.copy()
        strike_dead(state, speaker)
        live = claims_of(state, speaker, loaded_only=True)
        if before.bodies.keys() != speaker.bodies.keys():
            # what a run said may have counted only because another one, which is dropped, said the same
            past = claims_of(state, before, loaded_only=True)
            note_types(state, before.bodies, before.said())
            ended += [
                (id, key)
                for key, claim in past.items()
                if key not in live and key.type != "read" and _is_after_drops(state, key, claim.at)
            ]
        for key, claim in live.items():
            item, name = claimed_item(state, key), _name(id, key)
            if item is not None and name in item.claims:
                if speaker.lacks_counting and state.is_partial and item.claims[name].props != claim.props:
                    raise NeedsRebuild(f"{id}: what it says of an asset is not all remembered")
                item.claims[name] = claim
    for node in list(state.nodes.values()):
        if node is not None and node.ref is not None and (node.claims or node.crowd.size):
            _end_dead(state, node, floor(state, node.ref), [table_above(node.ref)])
    for place, edge in state.edges.items():
        if edge.is_claimed:
            _end_dead(state, edge, claims_dead_before(state, place), tables_at(state, place))
    for id, key in ended:
        _take_back(state, id, key, at)


def correct_existence(state: State) -> None:
    """Raises exists_at of all loaded assets to the newest statement of the loaded speakers that vouches for them."""
    for _, speaker in speakers_in(state):
        say_vouched(state, speaker.bodies, speaker.said())


def claims_of(state: State, speaker: SpeakerState, *, loaded_only: bool = False) -> Claims:
    """All that the speaker claims, by the names that assets have now."""
    claims: Claims = {}
    for _, key, claim in expand(state, speaker, live_parts(state, speaker), loaded_only=loaded_only):
        claims[key] = claim.joined(claims[key]) if key in claims else claim
    return claims


def claim_again(state: State) -> None:
    """Replaces all claims by those that follow from the remembered statements of the speakers.

    The claims of speakers that are not remembered stay. So do claims on columns that were read, also if the run that
    read them is not remembered.
    """
    speakers = dict(speakers_in(state))
    for claims in (
        *(node.claims for node in state.nodes.values() if node is not None),
        *(edge.claims for edge in state.edges.values()),
    ):
        for name in [name for name in claims if name in speakers]:
            del claims[name]
    for id, speaker in speakers.items():
        node = state.nodes[id]
        assert node is not None
        assert node.ref is not None
        for key, claim in claims_of(state, speaker).items():
            put_claim(state, node.ref, key, claim, was_claimed=False)


def name_crowds(state: State) -> None:
    """Turns crowds back into claims that are remembered one by one, in a state that holds all speakers.

    What is left in a crowd are claims of speakers that retention has forgotten.
    """
    for id, speaker in speakers_in(state):
        for key, claim in claims_of(state, speaker).items():
            item, name = claimed_item(state, key), _name(id, key)
            if item is not None and item.crowd.size and name not in item.claims:
                item.claims[name] = claim
                leave_crowd(item)


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
    _replace_claims(state, speaker, old, new, NEVER)
    for key in unread:
        _take_back(state, speaker.id, key, NEVER)


def claims_forgotten_until(state: State, name: str) -> Stamp:
    """The speaker may have repeated its claim up to this stamp, although neither the claim nor the speaker tells so.

    name: the key of the claim in NodeState.claims or EdgeState.claims.
    """
    node = state.nodes.get(name.removesuffix(READ))
    return NEVER if node is None or node.speaker is None else node.speaker.forgotten_at


def speakers_of(item: NodeState | EdgeState) -> set[str]:
    """The ids of the speakers that claim a node or edge, without those in its crowd."""
    return {name.removesuffix(READ) for name in item.claims}


def _replace_claims(state: State, speaker: Ref, old: Claims, new: Claims, at: Stamp) -> None:
    """Takes back what the speaker no longer claims, and puts what it did not claim before. What was read stays.

    at: when what it claimed was replaced.
    """
    for key in old.keys() - new.keys():
        if key.type != "read":
            _take_back(state, speaker.id, key, at)
    for key, claim in sorted(new.items(), key=lambda item: str(item[0])):
        if key not in old or old[key].props != claim.props:
            put_claim(state, speaker, key, claim, was_claimed=key in old)


def put_claim(state: State, speaker: Ref, key: ClaimKey, claim: Claim, *, was_claimed: bool) -> None:
    """Puts a claim on its node or edge, in place of the same speaker's older one.

    was_claimed: the speaker has claimed the same before; if not under its own name, then as one of the crowd.
    """
    item: NodeState | EdgeState
    if key.target is None:
        item = state.node(key.source)
        _leave_digest(state, key.source)
    else:
        place = EdgeKey(key.type, key.source.id, key.target.id)
        state.node(key.source)
        state.node(key.target)
        if place not in state.edges:
            state.put_edge(place, EdgeState(NEVER, False))
        item = state.edges[place]
    name = _name(speaker.id, key)
    known = state.node(speaker).speaker
    lacks_counting = known is not None and known.lacks_counting and state.is_partial
    if name in item.claims and lacks_counting:
        # by statements that are not remembered and still count
        claim = claim.joined(item.claims[name])
    elif name not in item.claims and item.crowd.size:
        if lacks_counting:
            raise NeedsRebuild(f"{speaker.id} may be in a crowd by statements that are not remembered")
        if was_claimed:
            leave_crowd(item)
    if name in item.claims and not was_claimed and isinstance(item, NodeState):
        # of a speaker that retention has forgotten since
        note_claimed_type(item, item.claims[name])
    item.claims[name] = claim


def _take_back(state: State, speaker_id: str, key: ClaimKey, at: Stamp) -> None:
    item = claimed_item(state, key)
    if isinstance(item, NodeState):
        note_end(item, at)
    if item is not None and item.claims.pop(_name(speaker_id, key), None) is None:
        leave_crowd(item)


def claimed_item(state: State, key: ClaimKey) -> NodeState | EdgeState | None:
    """The node or edge that is claimed, if it is remembered."""
    if key.target is None:
        return state.find(key.source)
    return state.edges.get(EdgeKey(key.type, key.source.id, key.target.id))


def _is_after_drops(state: State, key: ClaimKey, at: Stamp) -> bool:
    if claimed_item(state, key) is None:
        return False
    if key.target is None:
        return at > floor(state, key.source)
    return at > claims_dead_before(state, EdgeKey(key.type, key.source.id, key.target.id))


def _end_dead(state: State, item: NodeState | EdgeState, dead_at: Stamp, tables: Sequence[Ref]) -> None:
    """Ends the claims that were made before the drop. tables: those that every speaker of the claim has named."""
    for name in [name for name, claim in item.claims.items() if claim.at <= dead_at]:
        if state.is_partial and claims_forgotten_until(state, name) > dead_at:
            raise NeedsRebuild(f"{tables[0].id}: dropped late, and {name} has spoken of it since")
        del item.claims[name]
    if not item.crowd.size or item.crowd.since > dead_at:
        return
    if state.is_partial and crowd_spoke_until(state, tables) > version_in(dead_at):
        raise NeedsRebuild(f"{tables[0].id}: dropped late, and more speakers claim it than are stored")
    item.crowd = NO_CROWD
    for table in tables:
        node = state.node(table)
        node.crowd_ended_at = max(node.crowd_ended_at, dead_at)


def _leave_digest(state: State, column: Ref) -> None:
    """Invalidates the digest: the next identical set of columns must drop this column, if the set lacks it."""
    table = None if column.parent is None else state.find(column.parent)
    if table is not None and table.columns is not None and column.name[-1] not in table.columns.lacked:
        table.columns.digest = None


def _name(id: str, key: ClaimKey) -> str:
    return f"{id}{READ}" if key.type == "read" else id


def speakers_in(state: State) -> Iterator[tuple[str, SpeakerState]]:
    """All loaded speakers with their ids."""
    for id, node in list(state.nodes.items()):
        if node is not None and node.speaker is not None:
            yield id, node.speaker
