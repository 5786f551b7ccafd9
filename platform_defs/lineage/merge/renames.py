"""Applies a rename: all remembered facts of the old name, and of the assets below it, move to the new name."""

from dataclasses import replace

from platform_defs.graph.model import EdgeKey
from platform_defs.lineage.facts import Ref
from platform_defs.lineage.merge import bounds
from platform_defs.lineage.merge.names import (
    claims_dead_before,
    crowd_spoke_until,
    exists,
    exists_at,
    floor,
    named_since_drop,
    resolve,
    table_above,
    tables_at,
    unlinked_at,
)
from platform_defs.lineage.merge.speech.claims import claims_forgotten_until
from platform_defs.lineage.merge.speech.crowds import joined_crowds
from platform_defs.lineage.merge.speech.joining import is_named, settle_names
from platform_defs.lineage.merge.state import (
    LAST_TYPE,
    NEVER,
    NO_CROWD,
    Claim,
    EdgeState,
    IncomingRename,
    NeedsRebuild,
    NodeState,
    Stamp,
    State,
    column_of,
    version_in,
)
from platform_defs.lineage.version import Version


def rename(state: State, ref: Ref, new: Ref, at: Stamp) -> bool:
    """Applies the rename; returns False if it was applied before.

    Raises NeedsRebuild if either name has newer facts, or if the two assets become one and it is not remembered what
    speakers have said of them.
    """
    if ref.kind == "column":
        assert ref.parent is not None
        table = resolve(state, ref.parent, at)
        if table is None:
            raise NeedsRebuild(f"{ref.parent.id} was dropped after its column was renamed")
        ref, new = column_of(table, ref.name[-1]), column_of(table, new.name[-1])
    if ref == new or at in _renames(state, ref):
        return False
    if resolve(state, ref, at) != ref or resolve(state, new, at) != new:
        raise NeedsRebuild(f"{ref.id} or {new.id} was renamed later")
    _refuse_newer(state, ref, at)
    _refuse_newer(state, new, at)
    mixed = _is_alive(state, new) or is_named(state, new)
    incoming = IncomingRename(at, floor(state, new), mixed, ref.parent != new.parent)
    if incoming.mixed:
        _refuse_crowds(state, ref, new)
        settle_names(state, ref, new)
    _move(state, ref, new, incoming)
    if ref.kind == "column":
        assert ref.parent is not None
        table_node = state.node(ref.parent)
        table_node.column_renamed_at = at
        if table_node.columns is not None:
            table_node.columns.digest = None
    return True


def _renames(state: State, ref: Ref) -> dict[Stamp, Ref]:
    node = state.find(ref)
    return {} if node is None else node.renames


def _refuse_newer(state: State, ref: Ref, at: Stamp) -> None:
    """Raises NeedsRebuild if the asset has newer facts than the rename.

    They may have overwritten older ones, which should have moved with the rename.
    """
    newest = floor(state, ref)
    family = [ref, *state.below(ref)]
    for one in family:
        node = state.find(one)
        if node is not None:
            stamps = [exists_at(state, one), node.floor, node.column_renamed_at, node.arrived_at, *node.renames]
            stamps += [
                *node.link_sets.values(),
                *node.column_link_sets.values(),
                *(stamp for stamp, _ in node.props.values()),
            ]
            newest = max(newest, *stamps, node.columns.at if node.columns else NEVER)
            newest = max(newest, *(claims_forgotten_until(state, name) for name in node.claims), NEVER)
    crowded = [[table_above(one)] for one in family if (node := state.find(one)) is not None and node.crowd.size]
    for key in state.edges_of({one.id for one in family}):
        forgotten = (claims_forgotten_until(state, name) for name in state.edges[key].claims)
        newest = max(newest, state.edges[key].newest, *forgotten)
        if state.edges[key].crowd.size:
            crowded.append(tables_at(state, key))
    if newest > at or any(crowd_spoke_until(state, tables) > version_in(at) for tables in crowded):
        raise NeedsRebuild(f"{ref.id} has newer facts than its rename")


def _refuse_crowds(state: State, *refs: Ref) -> None:
    """Raises NeedsRebuild if crowds claim assets that become one: a speaker in both crowds must then count once."""
    family = [one for ref in refs for one in (ref, *state.below(ref))]
    crowds = [node.crowd for one in family if (node := state.find(one)) is not None]
    crowds += [state.edges[key].crowd for key in state.edges_of({one.id for one in family})]
    if state.is_partial and any(crowd.size for crowd in crowds):
        raise NeedsRebuild(f"{refs[0].id} becomes one with another, and more speakers claim it than are stored")


def _is_alive(state: State, ref: Ref) -> bool:
    """Whether there are living facts about the asset, about assets below it, or about their edges."""
    family = [ref, *state.below(ref)]
    if any(exists(state, one) for one in family):
        return True
    for one in family:
        node = state.node(one)
        if node.props.get(LAST_TYPE, (NEVER,))[0] > floor(state, one):
            return True
        if any(stamp > floor(state, one) for stamp in (*node.link_sets.values(), *node.column_link_sets.values())):
            return True
    return any(lives(state, key) or state.edges[key].is_claimed for key in state.edges_of({one.id for one in family}))


def lives(state: State, key: EdgeKey) -> bool:
    """Whether the newest fact about the edge, be it that it exists or that it does not, is newer than all drops."""
    begin, end = state.nodes[key.from_id], state.nodes[key.to_id]
    if begin is None or end is None or begin.ref is None or end.ref is None:
        return False
    at = state.edges[key].at
    return (
        at > floor(state, begin.ref)
        and at > floor(state, end.ref)
        and at >= unlinked_at(state, begin.ref, key.type)
        and at > NEVER
    )


def _move(state: State, ref: Ref, new: Ref, incoming: IncomingRename) -> None:
    """Moves the asset and all below it to the new name, and joins them with what had that name if that is alive."""
    old_family, new_family = [ref, *state.below(ref)], [new, *state.below(new)]
    moving = {one: living_facts(state, one, flat=incoming.mixed) for one in old_family}
    staying = {one: living_facts(state, one, flat=True) for one in new_family}
    old_root, new_root = state.node(ref), state.node(new)
    targets = {one.id: Ref(one.kind, (*new.name, *one.name[len(ref.name) :])) for one in old_family}
    edges = _take_edges(state, {one.id for one in (*old_family, *new_family)})
    moving[ref].floor = NEVER if incoming.mixed else floor(state, ref)
    if floor(state, ref) > old_root.arrived_at:
        # what named the table before it was dropped means the new name from now on, but is not remembered any more
        moving[ref].named_in = None

    for one in (*old_family, *new_family):
        state.put_node(one.id, None)
    for one, node in moving.items():
        target = targets[one.id]
        node.ref = target
        node.renames = {
            stamp: Ref(to.kind, (*new.name, *to.name[len(ref.name) :])) for stamp, to in node.renames.items()
        }
        state.put_node(target.id, node)
    if incoming.mixed:
        for one, node in staying.items():
            state.put_node(one.id, joined(state.nodes.get(one.id), node))
    arrived = state.node(new)
    arrived.renames, arrived.incoming_renames = new_root.renames, [*new_root.incoming_renames, incoming]
    left = {**old_root.renames, incoming.at: new}
    state.put_node(ref.id, NodeState(ref, floor=incoming.at, renames=left, incoming_renames=old_root.incoming_renames))
    # those that stay come first: of equal stamps, which only links of one LinkSet have, the one that moves gives way
    for key, edge in sorted(edges.items(), key=lambda item: bool(targets.keys() & {item[0].from_id, item[0].to_id})):
        begin, end = targets.get(key.from_id), targets.get(key.to_id)
        moved = EdgeKey(key.type, begin.id if begin else key.from_id, end.id if end else key.to_id)
        known = state.edges.get(moved)
        state.put_edge(moved, edge if known is None else joined_edges(known, edge))


def joined_edges(known: EdgeState, other: EdgeState) -> EdgeState:
    """One edge in place of two whose ends became one; of equal stamps, the known one counts."""
    newer = other if other.at > known.at else known
    first = min(filter(None, (known.first, other.first)), default=NEVER)
    return replace(
        newer,
        first=first,
        claims=joined_claims(known.claims, other.claims),
        crowd=joined_crowds(known.crowd, other.crowd),
    )


def joined_claims(one: dict[str, Claim], other: dict[str, Claim]) -> dict[str, Claim]:
    claims = dict(one)
    for name, claim in other.items():
        claims[name] = claim.joined(claims[name]) if name in claims else claim
    return claims


def living_facts(state: State, ref: Ref, *, flat: bool) -> NodeState:
    """The facts of an asset that are not dead. flat: without its ColumnSet, LinkSets, drops and renames.

    Only facts that arrive late need those. For an asset that became one with another, such facts need a rebuild anyway.
    """
    node, dead_at = state.node(ref), floor(state, ref)
    alive = replace(
        node,
        named_in=named_since_drop(state, ref),
        exists_at=_exists_without_claims(state, ref, dead_at),
        claims={name: claim for name, claim in node.claims.items() if claim.at > dead_at},
        props={name: said for name, said in node.props.items() if said[0] > dead_at},
        columns=node.columns if node.columns is not None and node.columns.at > dead_at else None,
        entries_at=node.entries_at if node.entries_at > dead_at else NEVER,
        link_sets={type: stamp for type, stamp in node.link_sets.items() if stamp > dead_at},
        column_link_sets={type: stamp for type, stamp in node.column_link_sets.items() if stamp > dead_at},
    )
    if flat:
        alive = replace(
            alive,
            floor=NEVER,
            columns=None,
            entries_at=NEVER,
            link_sets={},
            column_link_sets={},
            renames={},
            incoming_renames=[],
        )
    return alive


def joined(one: NodeState | None, other: NodeState) -> NodeState:
    """One node in place of two whose assets became one: each property has the newest value."""
    if one is None:
        return other
    props = dict(other.props)
    for name, said in one.props.items():
        if said[0] > props.get(name, (NEVER, None))[0]:
            props[name] = said
    return replace(
        one,
        exists_at=max(one.exists_at, other.exists_at),
        named_in=joined_names(one.named_in, other.named_in),
        props=props,
        claims=joined_claims(one.claims, other.claims),
        crowd=joined_crowds(one.crowd, other.crowd),
        crowd_ended_at=max(one.crowd_ended_at, other.crowd_ended_at),
        unclaimed_at=max(one.unclaimed_at, other.unclaimed_at),
        foreign={**other.foreign, **one.foreign},
        vector=one.vector or other.vector,
    )


def joined_names(one: frozenset[Version] | None, other: frozenset[Version] | None) -> frozenset[Version] | None:
    """The events that named one of two assets; None if these are more than are remembered."""
    both = None if one is None or other is None else one | other
    return None if both is None or len(both) > bounds.MAX_NAMED else both


def _exists_without_claims(state: State, ref: Ref, dead_at: Stamp) -> Stamp:
    """The newest fact, beside claims, that says the asset exists; NEVER if it is dead."""
    node = state.node(ref)
    claims, crowd = node.claims, node.crowd
    node.claims, node.crowd = {}, NO_CROWD
    said_at = exists_at(state, ref)
    node.claims, node.crowd = claims, crowd
    return said_at if said_at > dead_at else NEVER


def _take_edges(state: State, ids: set[str]) -> dict[EdgeKey, EdgeState]:
    """Takes all edges at these nodes out of the state, and returns those that are alive."""
    keys = state.edges_of(ids)
    living = {}
    for key in keys:
        edge = state.edges[key]
        claims = {name: claim for name, claim in edge.claims.items() if claim.at > claims_dead_before(state, key)}
        if lives(state, key):
            living[key] = replace(edge, claims=claims)
        elif claims or edge.crowd.size:
            living[key] = EdgeState(NEVER, False, claims=claims, crowd=edge.crowd)
    for key in keys:
        del state.edges[key]
    return living
