"""Turns the operations of a batch into steps: checks every value, and joins neighbouring operations of one kind.

Several writes to one node or edge within a step become one, in which the last write wins. Both stores run these steps,
so they agree, and no statement meets the same row twice.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from platform_defs.graph.checks import (
    Value,
    check_edge_type,
    check_embedding,
    check_id,
    check_labels,
    check_props,
    check_tenant_props,
)
from platform_defs.graph.errors import InvalidGraphValue
from platform_defs.graph.model import (
    DeleteEdges,
    DeleteNodes,
    EdgeKey,
    Node,
    Operation,
    Patch,
    PatchNodes,
    UpsertEdges,
    UpsertNodes,
)
from platform_defs.graph.vocabulary import TENANT


@dataclass(slots=True)
class NodeChange:
    """The merged writes to one node. kind is None in a patch; vector None leaves the stored vector label as it is."""

    kind: str | None
    vector: str | None
    props: dict[str, Value | None]


@dataclass(slots=True)
class UpsertNodesStep:
    changes: dict[str, NodeChange] = field(default_factory=dict)


@dataclass(slots=True)
class PatchNodesStep:
    changes: dict[str, NodeChange] = field(default_factory=dict)


@dataclass(slots=True)
class UpsertEdgesStep:
    changes: dict[EdgeKey, dict[str, Value | None]] = field(default_factory=dict)


@dataclass(slots=True)
class DeleteNodesStep:
    ids: dict[str, None] = field(default_factory=dict)


@dataclass(slots=True)
class DeleteEdgesStep:
    keys: dict[EdgeKey, None] = field(default_factory=dict)


Step: TypeAlias = UpsertNodesStep | PatchNodesStep | UpsertEdgesStep | DeleteNodesStep | DeleteEdgesStep


def plan_steps(tenant: int, operations: Iterable[Operation]) -> list[Step]:
    """The checked steps of a batch for one tenant; raises InvalidGraphValue before anything is written."""
    steps: list[Step] = []
    for operation in operations:
        previous = steps[-1] if steps else None
        match operation:
            case UpsertNodes(nodes):
                upserts = previous if isinstance(previous, UpsertNodesStep) else UpsertNodesStep()
                for node in nodes:
                    _fold(upserts.changes, check_id(node.id), _node_change(tenant, node))
                current: Step = upserts
            case PatchNodes(patches):
                patched = previous if isinstance(previous, PatchNodesStep) else PatchNodesStep()
                for patch in patches:
                    _fold(patched.changes, check_id(patch.id), _patch_change(tenant, patch))
                current = patched
            case UpsertEdges(edges):
                linked = previous if isinstance(previous, UpsertEdgesStep) else UpsertEdgesStep()
                for edge in edges:
                    linked.changes.setdefault(_edge_key(edge.key), {}).update(check_props(edge.props))
                current = linked
            case DeleteNodes(ids):
                deleted = previous if isinstance(previous, DeleteNodesStep) else DeleteNodesStep()
                deleted.ids.update((check_id(id), None) for id in ids)
                current = deleted
            case DeleteEdges(keys):
                cut = previous if isinstance(previous, DeleteEdgesStep) else DeleteEdgesStep()
                cut.keys.update((_edge_key(key), None) for key in keys)
                current = cut
        if current is not previous:
            steps.append(current)
    return steps


def merge_props(stored: Mapping[str, Value], change: Mapping[str, Value | None]) -> dict[str, Value]:
    """The stored properties after a change: given ones overwrite, None removes a property, others stay."""
    merged: dict[str, Value | None] = {**stored, **change}
    return {name: value for name, value in merged.items() if value is not None}


def _fold(changes: dict[str, NodeChange], id: str, change: NodeChange) -> None:
    earlier = changes.setdefault(id, change)
    if earlier is not change:
        earlier.kind = change.kind
        earlier.vector = change.vector or earlier.vector
        earlier.props.update(change.props)
        check_embedding(earlier.vector, earlier.props)


def _node_change(tenant: int, node: Node) -> NodeChange:
    kind, vector = check_labels(node.labels, kind_required=True)
    props = check_props(node.props)
    if (kind == TENANT) != (node.id == str(tenant)):
        raise InvalidGraphValue("id", "the tenant's number is the id of its Tenant node, and of no other node")
    if kind == TENANT:
        check_tenant_props(props)
    check_embedding(vector, props)
    return NodeChange(kind, vector, props)


def _patch_change(tenant: int, patch: Patch) -> NodeChange:
    _, vector = check_labels(patch.labels, kind_required=False)
    props = check_props(patch.props)
    if patch.id == str(tenant):
        if vector:
            raise InvalidGraphValue("labels", "a Tenant node carries no other label")
        check_tenant_props(props)
    check_embedding(vector, props)
    return NodeChange(None, vector, props)


def _edge_key(key: EdgeKey) -> EdgeKey:
    return EdgeKey(check_edge_type(key.type), check_id(key.from_id, "from_id"), check_id(key.to_id, "to_id"))
