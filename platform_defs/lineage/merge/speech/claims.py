"""Puts claims of speakers on nodes and edges, and takes them back."""

from collections.abc import Iterator

from platform_defs.graph.model import EdgeKey
from platform_defs.lineage.facts import Ref
from platform_defs.lineage.merge.speech.crowds import READ, leave_crowd
from platform_defs.lineage.merge.speech.last_types import note_claimed_type, note_end
from platform_defs.lineage.merge.speech.speakers import Claims, SpeakerState, expand, live_parts
from platform_defs.lineage.merge.speech.statement_bodies import ClaimKey
from platform_defs.lineage.merge.state import NEVER, Claim, EdgeState, NeedsRebuild, NodeState, Stamp, State


def claims_of(state: State, speaker: SpeakerState, *, loaded_only: bool = False) -> Claims:
    """All that the speaker claims, by the names that assets have now."""
    claims: Claims = {}
    for _, key, claim in expand(state, speaker, live_parts(state, speaker), loaded_only=loaded_only):
        claims[key] = claim.joined(claims[key]) if key in claims else claim
    return claims


def replace_claims(state: State, speaker: Ref, old: Claims, new: Claims, at: Stamp) -> None:
    """Takes back what the speaker no longer claims, and puts what it did not claim before. What was read stays.

    at: when what it claimed was replaced.
    """
    for key in old.keys() - new.keys():
        if key.type != "read":
            take_back(state, speaker.id, key, at)
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
    name = claim_name(speaker.id, key)
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


def take_back(state: State, speaker_id: str, key: ClaimKey, at: Stamp) -> None:
    item = claimed_item(state, key)
    if isinstance(item, NodeState):
        note_end(item, at)
    if item is not None and item.claims.pop(claim_name(speaker_id, key), None) is None:
        leave_crowd(item)


def claimed_item(state: State, key: ClaimKey) -> NodeState | EdgeState | None:
    """The node or edge that is claimed, if it is remembered."""
    if key.target is None:
        return state.find(key.source)
    return state.edges.get(EdgeKey(key.type, key.source.id, key.target.id))


def claim_name(id: str, key: ClaimKey) -> str:
    return f"{id}{READ}" if key.type == "read" else id


def speakers_of(item: NodeState | EdgeState) -> set[str]:
    """The ids of the speakers that claim a node or edge, without those in its crowd."""
    return {name.removesuffix(READ) for name in item.claims}


def claims_forgotten_until(state: State, name: str) -> Stamp:
    """The speaker may have repeated its claim up to this stamp, although neither the claim nor the speaker tells so.

    name: the key of the claim in NodeState.claims or EdgeState.claims.
    """
    node = state.nodes.get(name.removesuffix(READ))
    return NEVER if node is None or node.speaker is None else node.speaker.forgotten_at


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
            item, name = claimed_item(state, key), claim_name(id, key)
            if item is not None and item.crowd.size and name not in item.claims:
                item.claims[name] = claim
                leave_crowd(item)


def speakers_in(state: State) -> Iterator[tuple[str, SpeakerState]]:
    """All loaded speakers with their ids."""
    for id, node in list(state.nodes.items()):
        if node is not None and node.speaker is not None:
            yield id, node.speaker


def _leave_digest(state: State, column: Ref) -> None:
    """Invalidates the digest: the next identical set of columns must drop this column, if the set lacks it."""
    table = None if column.parent is None else state.find(column.parent)
    if table is not None and table.columns is not None and column.name[-1] not in table.columns.lacked:
        table.columns.digest = None
