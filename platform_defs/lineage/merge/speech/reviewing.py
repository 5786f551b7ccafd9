"""Brings claims up to date: what was claimed before a drop ends, unless the speaker has said it again since."""

from collections.abc import Sequence

from platform_defs.graph.model import EdgeKey
from platform_defs.lineage.facts import Ref
from platform_defs.lineage.merge.names import claims_dead_before, crowd_spoke_until, floor, table_above, tables_at
from platform_defs.lineage.merge.speech.claims import (
    claim_name,
    claimed_item,
    claims_forgotten_until,
    claims_of,
    speakers_in,
    take_back,
)
from platform_defs.lineage.merge.speech.last_types import note_types
from platform_defs.lineage.merge.speech.rewriting import strike_dead
from platform_defs.lineage.merge.speech.statement_bodies import ClaimKey
from platform_defs.lineage.merge.speech.vouching import say_vouched
from platform_defs.lineage.merge.state import (
    NEVER,
    NO_CROWD,
    EdgeState,
    NeedsRebuild,
    NodeState,
    Stamp,
    State,
    version_in,
)


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
            item, name = claimed_item(state, key), claim_name(id, key)
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
        take_back(state, id, key, at)


def correct_existence(state: State) -> None:
    """Raises exists_at of all loaded assets to the newest statement of the loaded speakers that vouches for them."""
    for _, speaker in speakers_in(state):
        say_vouched(state, speaker.bodies, speaker.said())


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
