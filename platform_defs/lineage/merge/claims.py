"""Puts claims of speakers on nodes and edges, and takes them back, as the live statements of the speakers change."""

from collections.abc import Callable, Iterator, Sequence, Set

from platform_defs.graph.model import EdgeKey
from platform_defs.lineage.facts import Ref, Statement
from platform_defs.lineage.merge.names import claims_dead_before, current_name, exists_at, floor, resolve
from platform_defs.lineage.merge.rewriting import settle_columns, strike_dead
from platform_defs.lineage.merge.speakers import (
    Claims,
    SpeakerState,
    expand,
    fold,
    is_loaded,
    live_parts,
    live_shape,
)
from platform_defs.lineage.merge.state import NEVER, Claim, EdgeState, NeedsRebuild, NodeState, Stamp, State, path
from platform_defs.lineage.merge.statement_bodies import DERIVES_FROM, ClaimKey, digest_of, encode, items, tables_of
from platform_defs.lineage.merge.vouching import say_vouched

# How many claims a node or edge remembers one by one. Of more, those of the last speakers by id become anonymous: they
# count, but are never taken back.
MAX_CLAIMS = 32
_READ = ":read"


def take_statement(state: State, statement: Statement, at: Stamp) -> None:
    """Adds the statement to what its speaker has said, and changes the claims that count since."""
    node = state.node(statement.speaker)
    speaker = node.speaker = node.speaker or SpeakerState()
    is_outdated = speaker.is_outdated(state, statement, at)
    if is_outdated:
        strike_dead(state, speaker)
    before = live_shape(state, speaker)
    old_state = speaker.copy()
    speaker.add(state, statement, at)
    if is_outdated or before != live_shape(state, speaker):
        say_vouched(state, old_state.bodies, old_state.said())
        _refuse_uncertain(state, statement, at)
        strike_dead(state, speaker)
        old, new = _claims(state, old_state), _claims(state, speaker)
        _refuse_revived(state, speaker, new.keys() - old.keys())
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


def _refuse_revived(state: State, speaker: SpeakerState, revived: Set[ClaimKey]) -> None:
    """Old statements that count again, about assets that became one with others: what was dropped before is forgotten.

    Not so in a rebuild, where every speaker's statements are there when two assets become one.
    """
    if revived and state.names_moved and state.is_partial:
        for key, named, claim in expand(state, speaker, live_parts(state, speaker)):
            for ref in (key.source, key.target):
                if ref is not None and named in revived:
                    resolve(state, ref, claim.at)


def review_claims(state: State) -> None:
    """Corrects all loaded claims: by what their speakers have said since, and by what was dropped meanwhile."""
    ended: list[tuple[str, ClaimKey]] = []
    for id, speaker in _speakers(state):
        before = speaker.copy()
        strike_dead(state, speaker)
        live = _claims(state, speaker, loaded_only=True)
        if before.bodies.keys() != speaker.bodies.keys():
            # what a run said may have counted only because another one, which is dropped, said the same
            past = _claims(state, before, loaded_only=True).keys() - live.keys()
            ended += [(id, key) for key in past if key.type != "read"]
        for key, claim in live.items():
            claims, name = _claims_at(state, key), _name(id, key)
            if claims is not None and name in claims:
                claims[name] = claim
    for node in list(state.nodes.values()):
        if node is not None and node.claims and node.ref is not None:
            _drop_dead(state, node.claims, floor(state, node.ref), node.ref)
    for place, edge in state.edges.items():
        if edge.claims:
            begin = state.nodes[place.from_id]
            _drop_dead(state, edge.claims, claims_dead_before(state, place), None if begin is None else begin.ref)
    for id, key in ended:
        if (claims := _claims_at(state, key)) is not None:
            claims.pop(_name(id, key), None)


def correct_existence(state: State) -> None:
    """Says of all loaded assets how long they are known to exist, by what the loaded speakers have said."""
    for _, speaker in _speakers(state):
        say_vouched(state, speaker.bodies, speaker.said())


def strike_all(state: State) -> None:
    """Removes what is dead from the statements of all loaded speakers."""
    for _, speaker in _speakers(state):
        strike_dead(state, speaker)


def settle_names(state: State, joined: Set[Ref]) -> None:
    """Before two tables become one: statements must not depend on what is forgotten then.

    That is what was dropped of either, and how their columns were renamed.
    """
    strike_all(state)
    for _, speaker in _speakers(state):
        settle_columns(state, speaker, joined)


def is_named(state: State, ref: Ref) -> bool:
    """Whether a remembered statement speaks of the asset or of what is below it, whether it counts now or not."""
    table = ref.parent if ref.kind == "column" else ref
    for _, speaker in _speakers(state):
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


def review_joined_claims(state: State, table: Ref) -> None:
    """After two tables became one, claims are what they would be if the two had always been one.

    Some do not count any more, because a newer run says something else of the other table. And lineage may count again
    that a newer run had ended by not naming its table, if that run names the other one.
    """
    live = {id: _claims(state, speaker, loaded_only=True) for id, speaker in _speakers(state)}
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
    for id, claims in live.items():
        speaker = state.nodes[id]
        assert speaker is not None
        assert speaker.ref is not None
        for key, claim in claims.items():
            of_table = key.type == DERIVES_FROM and table in (key.source, key.source.parent)
            if of_table and id not in (_claims_at(state, key) or {}):
                _put(state, speaker.ref, key, claim)


def _claims(state: State, speaker: SpeakerState, *, loaded_only: bool = False) -> Claims:
    claims: Claims = {}
    for _, key, claim in expand(state, speaker, live_parts(state, speaker), loaded_only=loaded_only):
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


def unsay(state: State, speaker: Ref, statements: Sequence[Statement], is_unsaid: Callable[[Stamp], bool]) -> None:
    """Takes statements back as if they had never been made; is_unsaid: whether a stamp is of one of their events.

    Columns that were only read stay. Raises NeedsRebuild where it is not remembered what would count without them.
    """
    node = state.find(speaker)
    known = None if node is None else node.speaker
    if known is None or (known.floor and any(statement.completes for statement in statements)):
        raise NeedsRebuild(f"{speaker.id} is not remembered, or has runs that are forgotten")
    old = _claims(state, known)
    for run_name, digest in {(one.run, digest_of(one)) for one in statements if one.names_dataset}:
        run = known.runs.get(run_name)
        if run is None or not all(map(is_unsaid, run.said.pop(digest, [NEVER]))):
            raise NeedsRebuild(f"a statement of {speaker.id} is not remembered as it was made")
        if not run.said and (not run.completed or is_unsaid(run.completed)):
            del known.runs[run_name]
    used = {digest for run in known.runs.values() for digest in run.said}
    known.bodies = {digest: body for digest, body in known.bodies.items() if digest in used}
    new = _claims(state, known)
    for key in old.keys() - new.keys():
        if key.type != "read":
            _take_back(state, speaker, key)
    for key, claim in new.items():
        if key not in old or old[key].props != claim.props:
            _put(state, speaker, key, claim)


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


def _drop_dead(state: State, claims: dict[str, Claim], dead_at: Stamp, ref: Ref | None) -> None:
    dead = [name for name, claim in claims.items() if claim.at <= dead_at]
    if dead and len(claims) >= MAX_CLAIMS and state.is_partial and ref is not None:
        above = ref.parent or ref
        if exists_at(state, above) > dead_at:
            raise NeedsRebuild(f"{ref.id} was dropped late, and more have claimed it than are remembered")
    for name in dead:
        del claims[name]


def _leave_digest(state: State, column: Ref) -> None:
    """Invalidates the digest: the next identical set of columns must drop this column, if the set lacks it."""
    table = None if column.parent is None else state.find(column.parent)
    if table is not None and table.columns is not None and column.name[-1] not in table.columns.lacked:
        table.columns.digest = None


def _path(ref: Ref | None) -> Iterator[Ref]:
    return iter(()) if ref is None else path(ref)


def _name(id: str, key: ClaimKey) -> str:
    return f"{id}{_READ}" if key.type == "read" else id


def _speakers(state: State) -> Iterator[tuple[str, SpeakerState]]:
    for id, node in list(state.nodes.items()):
        if node is not None and node.speaker is not None:
            yield id, node.speaker
