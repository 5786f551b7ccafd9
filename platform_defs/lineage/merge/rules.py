"""Applies facts to the state one after the other, by the rules in the docstring of this package."""

from collections.abc import Iterable, Mapping
from typing import Any

from platform_defs.canonical import canonical_hash
from platform_defs.graph.model import EdgeKey
from platform_defs.graph.vocabulary import HAS_METRIC
from platform_defs.lineage.facts import (
    ColumnSet,
    ColumnsUnlinked,
    Dropped,
    Exists,
    Fact,
    Linked,
    LinkSet,
    Ref,
    Renamed,
    Statement,
    Unlinked,
)
from platform_defs.lineage.merge.codec import ENTRY, plain
from platform_defs.lineage.merge.names import exists, exists_at, floor, resolve, unlinked_at
from platform_defs.lineage.merge.renames import rename
from platform_defs.lineage.merge.speech.joining import review_joined_claims
from platform_defs.lineage.merge.speech.reviewing import review_claims
from platform_defs.lineage.merge.speech.taking import take_statement
from platform_defs.lineage.merge.speech.vouching import NOTHING, Vouched
from platform_defs.lineage.merge.state import (
    DERIVED_TYPES,
    NAMED,
    NEVER,
    ColumnsState,
    EdgeState,
    NeedsRebuild,
    NodeState,
    Stamp,
    State,
    column_of,
    path,
    version_in,
)

# kinds of assets that remember which events named them (NodeState.named_in)
NAMED_IN = frozenset({"catalog", "schema", "table"})


def take(state: State, facts: Iterable[tuple[Stamp, Fact]], vouched: Vouched = NOTHING) -> None:
    """Merges facts into the state. They must be in the order of their stamps.

    vouched: assets whose exists_at need not be raised (speech/vouching.py). Raises NeedsRebuild with the version of the
    event that needs it; the state then holds a part of the facts and must be thrown away.
    """
    for at, fact in facts:
        try:
            _take_one(state, at, fact, vouched)
        except NeedsRebuild as reason:
            reason.version = version_in(at)
            raise


def _take_one(state: State, at: Stamp, fact: Fact, vouched: Vouched) -> None:
    match fact:
        case Exists(ref, label, props, all_entries):
            _record_existence(state, ref, at, vouched)
            _describe(state, resolve(state, ref, at), label, props, at, all_entries=all_entries)
        case Dropped(ref):
            _drop(state, resolve(state, ref, at), at)
        case Renamed(ref, new):
            if rename(state, ref, new, at) and new.parent is not None:
                _record_existence(state, new.parent, at)
                if new.kind == "table":
                    review_joined_claims(state, new, at)
        case ColumnSet(table, columns):
            _record_existence(state, table, at)
            _set_columns(state, resolve(state, table, at), columns, at)
        case Linked(type, source, target, props):
            _link(state, type, source, target, EdgeState(at, True, plain(props)))
        case Unlinked(type, source, target):
            _link(state, type, source, target, EdgeState(at, False))
        case LinkSet(source, types, links):
            if (node := _living_node(state, resolve(state, source, at), at)) is not None:
                _keep_newest(node.link_sets, types, at)
            for link in links:
                _link(state, link.type, link.source, link.target, EdgeState(at, True, plain(link.props)))
        case ColumnsUnlinked(table, types):
            if (node := _living_node(state, resolve(state, table, at), at)) is not None:
                _keep_newest(node.column_link_sets, types, at)
        case Statement():
            take_statement(state, fact, at)
    if may_drop(fact):
        review_claims(state, at)


def may_drop(fact: Fact) -> bool:
    """Whether the fact may end claims that speakers have made before."""
    return isinstance(fact, Dropped | Renamed | ColumnSet | Unlinked | LinkSet | ColumnsUnlinked)


def digest_of(columns: Iterable[Exists]) -> str:
    """A hash of what a ColumnSet says, by which a repetition is recognised, in whatever order it lists the columns."""
    return canonical_hash({column.ref.name[-1]: plain(column.props) for column in columns})


def _record_existence(state: State, ref: Ref, at: Stamp, vouched: Vouched = NOTHING) -> None:
    """Notes that the asset and all assets above it exist, unless they were dropped later."""
    for said in path(ref):
        now = resolve(state, said, at)
        if now is None or at <= floor(state, now):
            continue
        node = state.node(now)
        if now.kind in NAMED_IN:
            node.add_naming_events([version_in(at)])
        if not (vouched and exists(state, now) and (version_in(at), now) in vouched):
            node.exists_at = max(node.exists_at, at)
        if now.kind == "column":
            _invalidate_digest(state, now, at, unless_in_set=True)


def _describe(
    state: State, ref: Ref | None, label: str, props: Mapping[str, Any], at: Stamp, *, all_entries: bool = False
) -> None:
    """Sets label and properties, each of them unless a newer fact has set it, and nothing if the fact is dead."""
    if ref is None or at <= floor(state, ref):
        return
    node = state.node(ref)
    if all_entries and at > node.entries_at:
        _renew_entries(node, at)
    if ref.kind == "metric" and at > node.label_at:
        node.label, node.label_at = label, at
    given = {name: value for name, value in plain(props).items() if name != "name" or ref.kind not in NAMED}
    for name, value in given.items():
        said_at = node.props.get(name, (NEVER, None))[0]
        if at > said_at and (at >= node.entries_at or not name.startswith(ENTRY)):
            node.props[name] = (at, value)
    if given and ref.kind == "column":
        _invalidate_digest(state, ref, at)


def _renew_entries(node: NodeState, at: Stamp) -> None:
    node.entries_at = at
    node.props = {name: said for name, said in node.props.items() if said[0] > at or not name.startswith(ENTRY)}


def _invalidate_digest(state: State, column: Ref, at: Stamp, *, unless_in_set: bool = False) -> None:
    """Called when a fact changes a column: makes the merge apply the next ColumnSet, even if it repeats the newest one.

    unless_in_set: not if the newest ColumnSet lists the column.
    """
    assert column.parent is not None
    table = state.find(column.parent)
    if table is None or table.columns is None or at <= table.columns.at:
        return
    if not (unless_in_set and column.name[-1] in table.columns.lacked):
        table.columns.digest = None


def _drop(state: State, ref: Ref | None, at: Stamp) -> None:
    """Raises the floor of the asset, and by `floor` that of all assets below it.

    Raises NeedsRebuild if something below has moved in or out by a later rename: it is not remembered which of its
    facts were stated where.
    """
    if ref is None:
        return
    node = state.node(ref)
    node.floor = max(node.floor, at)
    if ref.kind == "column":
        _invalidate_digest(state, ref, at)
    below = list(state.below(ref))
    for child in below:
        found = state.node(child)
        if any(stamp > at and ref not in path(new) for stamp, new in found.renames.items()):
            raise NeedsRebuild(f"{child.id} was renamed away after {ref.id} was dropped")
        later = [incoming for incoming in found.incoming_renames if incoming.at > at]
        if any(incoming.moved or incoming.mixed for incoming in later):
            raise NeedsRebuild(f"another asset was renamed to {child.id} after {ref.id} was dropped")
        if later:
            # `floor` leaves out drops of a parent that are older than the rename, but this one has the same parent
            found.floor = max(found.floor, at)
    for schema in [ref, *below]:
        if schema.kind == "schema":
            for key in state.edges_of([schema.id]):
                if key.type == HAS_METRIC and NEVER < state.edges[key].first < at:
                    _drop_metric(state, key.to_id, at)


def _drop_metric(state: State, id: str, at: Stamp) -> None:
    metric = state.nodes[id]
    if metric is not None:
        metric.floor = max(metric.floor, at)


def _set_columns(state: State, table: Ref | None, columns: Iterable[Exists], at: Stamp) -> None:
    """Merges a ColumnSet. Raises NeedsRebuild if a column of the table was renamed after it."""
    if table is None or at <= floor(state, table):
        return
    node = state.node(table)
    if at < node.column_renamed_at:
        raise NeedsRebuild(f"a column of {table.id} was renamed after this set of columns")
    known = node.columns if node.columns is not None and node.columns.at > floor(state, table) else None
    given = {column.ref.name[-1]: column for column in columns}
    digest = digest_of(given.values())
    if known is not None and digest == known.digest:
        if at > known.at:
            _restamp_set(state, table, known, at)
        return
    if known is not None and at <= known.at:
        # a set that arrives late only tells which columns were missing at its time
        for name in known.lacked.keys() - given.keys():
            known.lacked[name] = max(known.lacked[name], at)
    else:
        before = {} if known is None else {name: known.lacked.get(name, known.at) for name in given}
        node.columns = ColumnsState(at, digest, {name: before.get(name, NEVER) for name in given})
    for name, column in given.items():
        ref = column_of(table, name)
        if at > floor(state, ref):
            found = state.node(ref)
            found.exists_at = max(found.exists_at, at)
            _describe(state, ref, column.label, column.props, at)
    if node.columns is not None and node.columns.at == at and _has_newer(state, table, node.columns):
        node.columns.digest = None


def _restamp_set(state: State, table: Ref, columns: ColumnsState, at: Stamp) -> None:
    """Gives the set, which is repeated unchanged, and all that it stated a newer stamp.

    Columns that are not loaded need no write: they store a mark in place of the set's stamp (codec.OF_SET).
    """
    for child in state.children(table):
        node = state.node(child)
        if child.name[-1] in columns.lacked:
            node.exists_at = max(node.exists_at, at)
        for name, (stamp, value) in node.props.items():
            if stamp == columns.at:
                node.props[name] = (at, value)
    columns.at = at


def _has_newer(state: State, table: Ref, columns: ColumnsState) -> bool:
    """Whether a column has facts that are newer than the newest set of columns."""
    for child in state.children(table):
        found = state.node(child)
        stamps = [found.floor, *(stamp for stamp, _ in found.props.values())]
        if child.name[-1] not in columns.lacked:
            stamps.append(exists_at(state, child))
        if max(stamps) > columns.at:
            return True
    return False


def _link(state: State, type: str, source: Ref, target: Ref, said: EdgeState) -> None:
    """Notes what a fact says about one edge, if it is alive and the newest such fact."""
    if type in DERIVED_TYPES:
        return
    begin, end = resolve(state, source, said.at), resolve(state, target, said.at)
    if begin is None or end is None:
        return
    key = EdgeKey(type, begin.id, end.id)
    if type == HAS_METRIC and said.linked:
        _put_metric_under(state, key, begin, end, said.at)
    if said.at <= floor(state, begin) or said.at <= floor(state, end) or said.at < unlinked_at(state, begin, type):
        return
    known = state.edges.get(key)
    if known is None or said.at > known.at:
        if known is not None:
            said.first, said.claims, said.crowd = known.first, known.claims, known.crowd
        state.put_edge(key, said)
        state.node(begin)
        state.node(end)


def _put_metric_under(state: State, key: EdgeKey, schema: Ref, metric: Ref, at: Stamp) -> None:
    """Notes since when the metric is below the schema: it is dropped by every later drop of that schema."""
    state.node(schema)
    node = state.node(metric)
    if key not in state.edges:
        state.put_edge(key, EdgeState(NEVER, False))
    edge = state.edges[key]
    edge.first = min(edge.first or at, at)
    dropped_at = floor(state, schema)
    if dropped_at > edge.first:
        node.floor = max(node.floor, dropped_at)


def _living_node(state: State, ref: Ref | None, at: Stamp) -> NodeState | None:
    """The state of the asset; None if a fact of that time about it is dead."""
    return None if ref is None or at <= floor(state, ref) else state.node(ref)


def _keep_newest(stamps: dict[str, Stamp], types: Iterable[str], at: Stamp) -> None:
    for type in types:
        stamps[type] = max(stamps.get(type, NEVER), at)
