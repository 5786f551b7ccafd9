"""Reconstructs, from the claims in the graph, statements that still count but were too many to store.

SpeakerState.lacks_counting tells which speakers made such statements.

A rebuild applies the stored events again and so needs no more of their statements. But of the statements that are not
stored, the events may be deleted too. Then only the claims on columns and edges tell what was said, and they must end
like all others when a newer run of the speaker completes.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Set

from platform_defs.lineage.facts import Exists, Linked, Ref, Statement
from platform_defs.lineage.merge.names import table_above
from platform_defs.lineage.merge.speech.claims import claims_of, speakers_in
from platform_defs.lineage.merge.speech.crowds import READ
from platform_defs.lineage.merge.speech.runs import UNFINISHED
from platform_defs.lineage.merge.speech.speakers import SpeakerState
from platform_defs.lineage.merge.speech.statement_bodies import DERIVES_FROM, ClaimKey
from platform_defs.lineage.merge.state import Claim, Stamp, State, path


def lacking_speakers(state: State) -> set[str]:
    """The ids of the speakers of which statements that count are not stored."""
    return {id for id, speaker in speakers_in(state) if speaker.lacks_counting}


def state_again(state: State, speakers: Set[str]) -> None:
    """Gives each of these speakers statements that explain its claims, in a state that holds the whole graph."""
    found: dict[str, list[tuple[ClaimKey, Claim]]] = defaultdict(list)
    for name, key, claim in _claims(state) if speakers else ():
        if name in speakers:
            found[name].append((key, claim))
    for id, claims in found.items():
        node = state.nodes[id]
        if node is None or node.ref is None:
            continue
        speaker = node.speaker or SpeakerState()
        known = claims_of(state, speaker)
        unexplained: dict[Stamp, list[tuple[ClaimKey, Claim]]] = defaultdict(list)
        for key, claim in claims:
            if key not in known or known[key].props != claim.props:
                unexplained[_said_at(state, key, claim)].append((key, claim))
        for at, said in unexplained.items():
            speaker.add(state, _statement(node.ref, said), at)
        if unexplained:
            node.speaker = speaker


def _claims(state: State) -> Iterator[tuple[str, ClaimKey, Claim]]:
    """All claims in the state, with the ids of their speakers."""
    for node in state.nodes.values():
        if node is not None and node.ref is not None:
            for name, claim in node.claims.items():
                kind = "read" if name.endswith(READ) else "written"
                yield name.removesuffix(READ), ClaimKey(kind, node.ref), claim
    for place, edge in state.edges.items():
        begin, end = state.nodes[place.from_id], state.nodes[place.to_id]
        if begin is not None and end is not None and begin.ref is not None and end.ref is not None:
            for name, claim in edge.claims.items():
                yield name, ClaimKey(place.type, begin.ref, end.ref), claim


def _said_at(state: State, key: ClaimKey, claim: Claim) -> Stamp:
    """When the claim was made; not before the last rename of what it names, because the names are those of today."""
    named = [one for end in (key.source, key.target) if end is not None for one in path(end)]
    return max(claim.at, *(node.arrived_at for one in named if (node := state.find(one)) is not None))


def _statement(speaker: Ref, said: Iterable[tuple[ClaimKey, Claim]]) -> Statement:
    """A statement of an uncompleted run that makes just these claims."""
    columns: dict[str, list[Exists]] = {"written": [], "read": []}
    links: list[Linked] = []
    for key, claim in said:
        if key.target is None:
            columns[key.type].append(Exists(key.source, "Column", claim.props))
        else:
            links.append(Linked(key.type, key.source, key.target, claim.props))
    outputs = {link.target for link in links if link.type == "OUTPUT_TO"}
    outputs |= {table_above(link.source) for link in links if link.type == DERIVES_FROM}
    outputs |= {table_above(column.ref) for column in columns["written"]}
    return Statement(
        speaker,
        UNFINISHED,
        completes=False,
        names_dataset=True,
        outputs=tuple(outputs),
        written=tuple(columns["written"]),
        read=tuple(columns["read"]),
        links=tuple(links),
    )
