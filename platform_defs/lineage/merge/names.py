"""Finds the asset that a fact is about now (through renames) and whether the fact is still alive (through drops)."""

from collections.abc import Iterable

from platform_defs.graph.model import EdgeKey
from platform_defs.lineage.facts import Ref
from platform_defs.lineage.merge.state import AFTER_ALL, NEVER, NeedsRebuild, Stamp, State, column_of, version_in
from platform_defs.lineage.version import Version


def floor(state: State, ref: Ref) -> Stamp:
    """The stamp of the newest drop of the asset or of an asset above it: facts up to then are dead."""
    node = state.find(ref)
    own, arrived_at = (NEVER, NEVER) if node is None else (node.floor, node.arrived_at)
    above = NEVER
    if ref.parent is not None:
        above = floor(state, ref.parent)
        parent = state.find(ref.parent)
        if parent is not None and parent.columns is not None:
            above = max(above, parent.columns.lacked.get(ref.name[-1], parent.columns.at))
    # a drop of what is above, from before the asset was renamed to this name, was about another asset of this name
    return max(own, above) if above > arrived_at else own


def named_since_drop(state: State, ref: Ref) -> frozenset[Version] | None:
    """NodeState.named_in without the events before the newest drop: they named what had this name before.

    Not so if the asset was dropped under an older name: a rename moves it with all that ever named it.
    """
    node = state.node(ref)
    dead_at = floor(state, ref)
    if dead_at <= node.arrived_at:
        return node.named_in
    if node.named_in is None:
        return frozenset() if node.exists_at <= dead_at else None
    return frozenset(version for version in node.named_in if version >= version_in(dead_at))


def dropped_at(state: State, table: Ref) -> Stamp:
    """The newest drop of the table, of any of its columns by a ColumnSet, or of what a crowd claimed of it."""
    node = state.find(table)
    if node is None:
        return floor(state, table)
    return max(floor(state, table), node.crowd_ended_at, NEVER if node.columns is None else node.columns.at)


def exists_at(state: State, ref: Ref) -> Stamp:
    """The stamp of the newest fact or claim that says that the asset exists; it may be dead."""
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
    """The newest fact that listed all outgoing links of this type: older facts about single links are dead."""
    node = state.find(ref)
    own = NEVER if node is None else node.link_sets.get(type, NEVER)
    if node is not None and ref.kind == "table":
        own = max(own, node.column_link_sets.get(type, NEVER))
    table = None if ref.kind != "column" or ref.parent is None else state.find(ref.parent)
    return own if table is None else max(own, table.column_link_sets.get(type, NEVER))


def current_name(state: State, ref: Ref, at: Stamp) -> Ref | None:
    """The present name of the asset that was called `ref` at that time; None if facts of that time about it are dead.

    For facts that are merged already. Unlike `resolve` this never raises NeedsRebuild, because such facts have moved
    along with every rename since.
    """
    found = follow(state, ref, at)
    return None if found is None else found[0]


def follow(state: State, ref: Ref, at: Stamp) -> tuple[Ref, Stamp] | None:
    """The name that `current_name` returns, and since when a drop of that name is a drop of this asset.

    That is since the last rename that made it one with another asset; without one, since the given time.
    """
    return _follow(state, ref, at, merged=True)


def resolve(state: State, ref: Ref, at: Stamp) -> Ref | None:
    """The present name of the asset that was called `ref` at that time; None if facts of that time about it are dead.

    For new facts. Raises NeedsRebuild if a rename has made the asset one with another since, because then only the
    newest facts of both together are remembered.
    """
    found = _follow(state, ref, at, merged=False)
    return None if found is None else found[0]


def _follow(state: State, ref: Ref, at: Stamp, *, merged: bool) -> tuple[Ref, Stamp] | None:
    """Follows a name through the renames after that time. merged: for `follow`, which unlike `resolve` never raises."""
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
            # Another asset was renamed to this name afterwards, so the two are one since then. Whether they were
            # dropped after that rename is asked by its time and not by the fact's, because the renamed asset may have
            # brought an older floor along.
            if time < incoming.floor or (not merged and left_at is None and floor(state, ref) > node.arrived_at):
                return None
            if not merged:
                raise NeedsRebuild(f"another asset was renamed to {ref.id} after this fact")
            time = incoming.at
            since = max(since, time)
            continue
        if not merged and time > at and any(one.mixed for one in node.incoming_renames if one.at == time):
            raise NeedsRebuild(f"{ref.id} became one with the asset that was renamed to it")
        if left_at is None:
            break
        ref, time = node.renames[left_at], left_at
    return ref, since


def claims_dead_before(state: State, key: EdgeKey) -> Stamp:
    """Claims on the edge up to this stamp do not count: one of its ends was dropped, or a fact removed the edge."""
    begin, end = state.nodes[key.from_id], state.nodes[key.to_id]
    if begin is None or end is None or begin.ref is None or end.ref is None:
        return AFTER_ALL
    dropped_at = max(floor(state, begin.ref), floor(state, end.ref))
    return max(dropped_at, unlinked_at(state, begin.ref, key.type), cut_at(state, key))


def crowd_spoke_until(state: State, tables: Iterable[Ref]) -> Version:
    """The version of the newest event that may hold a claim of a crowd: each such event names all of these tables."""
    return min(version_in(exists_at(state, table)) for table in tables)


def tables_at(state: State, key: EdgeKey) -> list[Ref]:
    """The tables that the ends of an edge of column lineage belong to."""
    ends = (state.nodes[key.from_id], state.nodes[key.to_id])
    return [table_above(end.ref) for end in ends if end is not None and end.ref is not None]


def table_above(ref: Ref) -> Ref:
    return ref.parent if ref.kind == "column" and ref.parent is not None else ref


def cut_at(state: State, key: EdgeKey) -> Stamp:
    """When a fact about this single edge removed it; NEVER if none did, or if it was stated again."""
    known = state.edges.get(key)
    return known.at if known is not None and not known.linked else NEVER
