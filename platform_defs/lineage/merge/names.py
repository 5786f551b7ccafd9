"""Finds the asset that a fact is about now (through renames) and whether the fact is still alive (through drops)."""

from collections.abc import Iterable

from platform_defs.graph.model import EdgeKey
from platform_defs.lineage.facts import Ref
from platform_defs.lineage.merge.state import NEVER, NeedsRebuild, Stamp, State, column_of, version_in
from platform_defs.lineage.version import Version


def floor(state: State, ref: Ref) -> Stamp:
    """The newest drop of the asset or of what is above it: facts up to then are dead."""
    node = state.find(ref)
    own, arrived_at = (NEVER, NEVER) if node is None else (node.floor, node.arrived_at)
    above = NEVER
    if ref.parent is not None:
        above = floor(state, ref.parent)
        parent = state.find(ref.parent)
        if parent is not None and parent.columns is not None:
            above = max(above, parent.columns.lacked.get(ref.name[-1], parent.columns.at))
    # what was dropped here before the asset came to this name by a rename was something else
    return max(own, above) if above > arrived_at else own


def dropped_at(state: State, table: Ref) -> Stamp:
    """The newest drop of the table, or of something of it that speakers do not know of."""
    node = state.find(table)
    if node is None:
        return floor(state, table)
    return max(floor(state, table), node.crowd_ended_at, NEVER if node.columns is None else node.columns.at)


def exists_at(state: State, ref: Ref) -> Stamp:
    """The newest fact that says the asset exists."""
    node = state.find(ref)
    if node is None:
        return NEVER
    table = None if ref.kind != "column" or ref.parent is None else state.find(ref.parent)
    columns = None if table is None else table.columns
    newest = max(node.exists_at, *(claim.at for claim in node.claims.values()), node.crowd.since)
    if columns is not None and columns.at > node.arrived_at and ref.name[-1] in columns.lacked:
        return max(newest, columns.at)
    return newest


def exists(state: State, ref: Ref) -> bool:
    return exists_at(state, ref) > floor(state, ref)


def unlinked_at(state: State, ref: Ref, type: str) -> Stamp:
    """The newest fact that spoke of all outgoing links of that type: older ones about single links are dead."""
    node = state.find(ref)
    own = NEVER if node is None else node.link_sets.get(type, NEVER)
    if node is not None and ref.kind == "table":
        own = max(own, node.column_link_sets.get(type, NEVER))
    table = None if ref.kind != "column" or ref.parent is None else state.find(ref.parent)
    return own if table is None else max(own, table.column_link_sets.get(type, NEVER))


def current_name(state: State, ref: Ref, at: Stamp) -> Ref | None:
    """The present name of the asset that was called `ref` at that time, for a fact that is merged already.

    None if the fact is dead.

    Unlike `resolve` this never asks for a rebuild: what was said has already moved with every rename since.
    """
    found = follow(state, ref, at)
    return None if found is None else found[0]


def follow(state: State, ref: Ref, at: Stamp) -> tuple[Ref, Stamp] | None:
    """The present name as `current_name` says it, and since when drops of that name are drops of this asset.

    That is the time of the last rename by which something else came to the name; without one, the given time.
    """
    return _follow(state, ref, at, merged=True)


def resolve(state: State, ref: Ref, at: Stamp) -> Ref | None:
    """The present name of the asset that was called `ref` at that time; None if all that was said then is dead."""
    found = _follow(state, ref, at, merged=False)
    return None if found is None else found[0]


def _follow(state: State, ref: Ref, at: Stamp, *, merged: bool) -> tuple[Ref, Stamp] | None:
    since = at
    if ref.kind == "column":
        assert ref.parent is not None
        above = _follow(state, ref.parent, at, merged=merged)
        if above is None:
            return None
        table, since = above
        ref = column_of(table, ref.name[-1])
    time = at
    while (node := state.find(ref)) is not None:
        left_at = min((stamp for stamp in node.renames if stamp > time), default=None)
        incoming = next((one for one in node.incoming_renames if one.at > time), None)
        if incoming is not None and (left_at is None or left_at > incoming.at):
            # said of the name before something else came to it: the two are one since then
            # (an older floor than the last rename's may have come with what was renamed)
            if time < incoming.floor or (not merged and left_at is None and floor(state, ref) > node.arrived_at):
                return None
            if not merged:
                raise NeedsRebuild(f"{ref.id} was renamed to after what was said of it")
            time = incoming.at
            since = max(since, time)
            continue
        if not merged and time > at and any(one.mixed for one in node.incoming_renames if one.at == time):
            raise NeedsRebuild(f"{ref.id} existed before it was renamed to")
        if left_at is None:
            break
        ref, time = node.renames[left_at], left_at
    return ref, since


def claims_dead_before(state: State, key: EdgeKey) -> Stamp:
    """Claims up to this stamp on the edge do not count: an end was dropped, or somebody took the edge back."""
    begin, end = state.nodes[key.from_id], state.nodes[key.to_id]
    if begin is None or end is None or begin.ref is None or end.ref is None:
        return Stamp("~")
    dropped_at = max(floor(state, begin.ref), floor(state, end.ref))
    return max(dropped_at, unlinked_at(state, begin.ref, key.type), cut_at(state, key))


def crowd_spoke_until(state: State, tables: Iterable[Ref]) -> Version:
    """The newest event in which anybody of a crowd may have made its claim: each such event names all of the tables."""
    return min(version_in(exists_at(state, table)) for table in tables)


def tables_at(state: State, key: EdgeKey) -> list[Ref]:
    """The tables that the ends of an edge of column lineage belong to."""
    ends = (state.nodes[key.from_id], state.nodes[key.to_id])
    return [table_above(end.ref) for end in ends if end is not None and end.ref is not None]


def table_above(ref: Ref) -> Ref:
    return ref.parent if ref.kind == "column" and ref.parent is not None else ref


def cut_at(state: State, key: EdgeKey) -> Stamp:
    """When somebody took back this single edge."""
    known = state.edges.get(key)
    return known.at if known is not None and not known.linked else NEVER
