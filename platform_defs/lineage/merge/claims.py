"""Puts claims of speakers on nodes and edges, and takes them back, as the live statements of the speakers change."""

from collections.abc import Iterator
from functools import partial

from platform_defs.graph.model import EdgeKey
from platform_defs.lineage.facts import Ref, Statement
from platform_defs.lineage.merge.names import claims_dead_before, dead_before, floor, resolve
from platform_defs.lineage.merge.speakers import Claims, SpeakerState, expand, fold, live_parts, live_shape, strike_dead
from platform_defs.lineage.merge.state import NEVER, Claim, EdgeState, NodeState, Stamp, State
from platform_defs.lineage.merge.statement_bodies import ClaimKey, encode, items

# How many claims a node or edge remembers one by one. Of more, those of the last speakers by id become anonymous: they
# count, but are never taken back.
MAX_CLAIMS = 32
_READ = ":read"


def take_statement(state: State, statement: Statement, at: Stamp) -> None:
    """Adds the statement to what its speaker has said, and changes the claims that count since."""
    node = state.node(statement.speaker)
    speaker = node.speaker = node.speaker or SpeakerState()
    before = live_shape(state, speaker)
    old_state = speaker.copy()
    speaker.add(state, statement, at)
    if before != live_shape(state, speaker):
        _refuse_uncertain(state, statement, at)
        strike_dead(state, speaker, partial(_dead_at, state))
        old, new = _claims(state, old_state), _claims(state, speaker)
        for key in old.keys() - new.keys():
            if key.type != "read":
                _take_back(state, statement.speaker, key)
        for key, claim in sorted(new.items(), key=lambda item: str(item[0])):
            if key not in old or old[key].props != claim.props:
                _put(state, statement.speaker, key, claim)
    fold(state, speaker)


def _refuse_uncertain(state: State, statement: Statement, at: Stamp) -> None:
    """A late statement about columns that others were renamed to since then: what they are now is not remembered."""
    if not state.names_moved:
        return
    for _, key in items(encode(statement)):
        for ref in (key.source, key.target):
            if ref is not None and ref.kind == "column":
                resolve(state, ref, at)


def review_claims(state: State) -> None:
    """Corrects all loaded claims: by what their speakers have said since, and by what was dropped meanwhile."""
    for id, speaker in _speakers(state):
        strike_dead(state, speaker, partial(_dead_at, state), loaded_only=True)
        for key, claim in _claims(state, speaker, loaded_only=True).items():
            claims, name = _claims_at(state, key), _name(id, key)
            if claims is not None and name in claims:
                claims[name] = claim
    for node in list(state.nodes.values()):
        if node is not None and node.claims and node.ref is not None:
            _drop_dead(node.claims, floor(state, node.ref))
    for place, edge in state.edges.items():
        if edge.claims:
            _drop_dead(edge.claims, claims_dead_before(state, place))


def drop_unsaid_claims(state: State, table: Ref) -> None:
    """After two tables became one: removes claims that would not count if they had always been one."""
    live = {id: _claims(state, speaker, loaded_only=True).keys() for id, speaker in _speakers(state)}
    columns = state.children(table)
    for column in columns:
        node = state.node(column)
        node.claims = {
            name: claim
            for name, claim in node.claims.items()
            if name not in live or ClaimKey("written", column) in live[name]
        }
    for place in state.edges_of({table.id, *(column.id for column in columns)}):
        begin, end = state.nodes[place.from_id], state.nodes[place.to_id]
        if begin is not None and end is not None and begin.ref is not None and end.ref is not None:
            key, edge = ClaimKey(place.type, begin.ref, end.ref), state.edges[place]
            edge.claims = {name: claim for name, claim in edge.claims.items() if name not in live or key in live[name]}


def _claims(state: State, speaker: SpeakerState, *, loaded_only: bool = False) -> Claims:
    claims: Claims = {}
    for key, claim in expand(state, speaker, live_parts(state, speaker), loaded_only=loaded_only):
        claims[key] = claim.joined(claims[key]) if key in claims else claim
    return claims


def claim_again(state: State) -> None:
    """Puts all claims anew by what the speakers are remembered to have said, and removes their other ones."""
    speakers = dict(_speakers(state))
    for claims in (
        *(node.claims for node in state.nodes.values() if node is not None),
        *(edge.claims for edge in state.edges.values()),
    ):
        for name in [name for name in claims if name.removesuffix(_READ) in speakers]:
            del claims[name]
    for id, speaker in speakers.items():
        node = state.nodes[id]
        assert node is not None
        assert node.ref is not None
        for key, claim in _claims(state, speaker).items():
            _put(state, node.ref, key, claim)


def speakers_of(item: NodeState | EdgeState) -> set[str]:
    return {name.removesuffix(_READ) for name in item.claims}


def by_precedence(claims: dict[str, Claim]) -> list[Claim]:
    """Claims in the order in which their properties count: those of writers first."""
    return [claims[name] for name in sorted(claims, key=lambda name: (name.endswith(_READ), name))]


def _put(state: State, speaker: Ref, key: ClaimKey, claim: Claim) -> None:
    if key.target is None:
        node = state.node(key.source)
        node.claims[_name(speaker.id, key)] = claim
        _leave_digest(state, key.source)
        if (gone := _overflow(node.claims)) is not None:
            node.exists_at = max(node.exists_at, gone.at)
        return
    place = EdgeKey(key.type, key.source.id, key.target.id)
    state.node(key.source)
    state.node(key.target)
    if place not in state.edges:
        state.put_edge(place, EdgeState(NEVER, False))
    edge = state.edges[place]
    edge.claims[_name(speaker.id, key)] = claim
    gone = _overflow(edge.claims)
    if gone is not None and gone.at > edge.at:
        edge.at, edge.linked, edge.props = gone.at, True, gone.props


def _take_back(state: State, speaker: Ref, key: ClaimKey) -> None:
    claims = _claims_at(state, key)
    if claims is not None:
        claims.pop(_name(speaker.id, key), None)


def _overflow(claims: dict[str, Claim]) -> Claim | None:
    return claims.pop(max(claims)) if len(claims) > MAX_CLAIMS else None


def _claims_at(state: State, key: ClaimKey) -> dict[str, Claim] | None:
    if key.target is None:
        node = state.find(key.source)
        return None if node is None else node.claims
    edge = state.edges.get(EdgeKey(key.type, key.source.id, key.target.id))
    return None if edge is None else edge.claims


def _dead_at(state: State, key: ClaimKey) -> Stamp:
    if key.target is None:
        return floor(state, key.source)
    return dead_before(state, key.type, key.source, key.target)


def _drop_dead(claims: dict[str, Claim], dead_at: Stamp) -> None:
    for name in [name for name, claim in claims.items() if claim.at <= dead_at]:
        del claims[name]


def _leave_digest(state: State, column: Ref) -> None:
    """A set of columns that is said again drops this column if the set lacks it, and so is no longer without effect."""
    table = None if column.parent is None else state.find(column.parent)
    if table is not None and table.columns is not None and column.name[-1] not in table.columns.lacked:
        table.columns.digest = None


def _name(id: str, key: ClaimKey) -> str:
    return f"{id}{_READ}" if key.type == "read" else id


def _speakers(state: State) -> Iterator[tuple[str, SpeakerState]]:
    for id, node in list(state.nodes.items()):
        if node is not None and node.speaker is not None:
            yield id, node.speaker
