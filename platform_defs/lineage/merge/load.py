"""Loads the nodes and edges that a group of facts requires: a few reads per group, however many events it has."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from platform_defs.graph.model import Edge, EdgeKey
from platform_defs.graph.port import GraphTransaction
from platform_defs.graph.vocabulary import GONE_PREFIX
from platform_defs.lineage.facts import Fact, Ref
from platform_defs.lineage.merge.codec import read_edge, read_facts, read_node
from platform_defs.lineage.merge.required import Required, find_required
from platform_defs.lineage.merge.rules import may_drop
from platform_defs.lineage.merge.speech.reviewing import correct_existence, review_claims
from platform_defs.lineage.merge.state import DERIVED_TYPES, NEVER, Stamp, State


def load(
    transaction: GraphTransaction,
    facts: Sequence[tuple[Stamp, Fact]],
    ids: Iterable[str] = (),
    around: Iterable[str] = (),
    relinked: Collection[Ref] = (),
) -> State:
    """Loads everything that is needed to merge these facts, and the tenant's node.

    ids: further nodes to load. around: further nodes to load with all their edges. relinked: names of tables that
    `relinking.take_back` will remove.
    """
    state = State(str(transaction.tenant))
    missing = find_required(state, facts, relinked)
    missing.ids.update(ids, around, [state.tenant])
    missing.around.update(around)
    while missing:
        fetch(transaction, state, missing)
        missing = find_required(state, facts, relinked)
    if any(may_drop(fact) for _, fact in facts):
        correct_existence(state)
        review_claims(state)
    return state


def fetch(transaction: GraphTransaction, state: State, missing: Required) -> None:
    """Loads what is missing into the state."""
    if missing.ids:
        _fetch_nodes(transaction, state, missing.ids)
    if missing.around:
        _add_edges(state, transaction.edges(sorted(missing.around)))
        state.surrounded |= missing.around
    if missing.typed:
        types = {type for _, type in missing.typed}
        both = sorted(types | {f"{GONE_PREFIX}{type}" for type in types})
        _add_edges(state, transaction.edges(sorted({id for id, _ in missing.typed}), types=both))
        state.asked_types |= missing.typed
    if missing.links:
        keys = [
            EdgeKey(f"{prefix}{key.type}", key.from_id, key.to_id)
            for key in sorted(missing.links)
            for prefix in ("", GONE_PREFIX)
            if state.nodes.get(key.from_id) and state.nodes.get(key.to_id)
        ]
        if keys:
            _add_edges(state, transaction.edges_by_key(keys).values())
        state.asked_links |= missing.links


def _fetch_nodes(transaction: GraphTransaction, state: State, ids: set[str]) -> None:
    found = dict(transaction.nodes(sorted(ids)))
    facts = {id: read_facts(node) for id, node in found.items()}
    tables = {table.id for id in found if (table := table_of(id, facts[id])) is not None}
    if above := tables - ids - state.nodes.keys():
        tables_above = transaction.nodes(sorted(above))
        found |= tables_above
        facts |= {id: read_facts(node) for id, node in tables_above.items()}
    state.tenant_node = found.pop(state.tenant, state.tenant_node)
    for id in (ids | above) - {state.tenant} - found.keys():
        state.put_node(id, None)
    # Tables first: a column may store a mark in place of the stamp of its table's ColumnSet (codec.OF_SET).
    for node in sorted(found.values(), key=lambda node: node.id.startswith("column:")):
        owner = table_of(node.id, facts[node.id])
        above_it = None if owner is None else state.nodes.get(owner.id)
        set_at = NEVER if above_it is None or above_it.columns is None else above_it.columns.at
        state.stored_nodes[node.id] = node
        state.put_node(node.id, read_node(node, set_at, facts[node.id]))


def table_of(id: str, facts: Mapping[str, Any]) -> Ref | None:
    """The table of a column; None for other nodes."""
    name = facts.get("name") if id.startswith("column:") else None
    return None if name is None else Ref("column", tuple(name)).parent


def _add_edges(state: State, edges: Iterable[Edge]) -> None:
    for edge in edges:
        key, known = read_edge(edge)
        if key.type in DERIVED_TYPES:
            state.derived.add(key)
        elif key not in state.edges:
            state.put_edge(key, known)
            state.stored_edges[edge.key] = edge
