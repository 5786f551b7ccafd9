"""The graph port said once more in plain dicts, as the measure for both stores."""

from collections.abc import Iterable, Iterator
from typing import Any

from platform_defs.graph.model import (
    DeleteEdges,
    DeleteNodes,
    Edge,
    EdgeKey,
    Node,
    Operation,
    PatchNodes,
    UpsertEdges,
    UpsertNodes,
)


class PlainModel:
    def __init__(self) -> None:
        self.labels: dict[str, tuple[str, str | None]] = {}
        self.props: dict[str, dict[str, Any]] = {}
        self.links: dict[EdgeKey, dict[str, Any]] = {}

    def apply(self, operations: Iterable[Operation]) -> None:
        for operation in operations:
            match operation:
                case UpsertNodes(nodes):
                    for node in nodes:
                        kind, vector = self._split(node)
                        before = self.labels.get(node.id, ("", None))
                        self.labels[node.id] = (kind, vector or before[1])
                        self._merge(self.props.setdefault(node.id, {}), node.props)
                case PatchNodes(patches):
                    for patch in patches:
                        if patch.id in self.labels:
                            vector = next(iter(patch.labels), None)
                            kind, before_vector = self.labels[patch.id]
                            self.labels[patch.id] = (kind, vector or before_vector)
                            self._merge(self.props[patch.id], patch.props)
                case UpsertEdges(edges):
                    for edge in edges:
                        if edge.from_id in self.labels and edge.to_id in self.labels:
                            self._merge(self.links.setdefault(edge.key, {}), edge.props)
                case DeleteNodes(ids):
                    for id in ids:
                        self._delete(id)
                case DeleteEdges(keys):
                    for key in keys:
                        self.links.pop(key, None)

    def stream(self) -> Iterator[Node | Edge]:
        for id in sorted(self.labels):
            kind, vector = self.labels[id]
            labels = {kind} if kind == "Tenant" else {kind, "Knowledge", *([vector] if vector else [])}
            yield Node(id, labels, self.props[id])
        for key in sorted(self.links, key=lambda key: (key.from_id, key.type, key.to_id)):
            yield Edge(*key, self.links[key])

    def _delete(self, id: str) -> None:
        if id not in self.labels:
            return
        del self.labels[id], self.props[id]
        self.links = {key: props for key, props in self.links.items() if id not in (key.from_id, key.to_id)}

    @staticmethod
    def _split(node: Node) -> tuple[str, str | None]:
        vector = next((label for label in node.labels if label.startswith("Knowledge_")), None)
        return next(iter(node.labels - {vector, "Knowledge"})), vector

    @staticmethod
    def _merge(stored: dict[str, Any], given: Any) -> None:
        stored.update(given)
        for name in [name for name, value in stored.items() if value is None]:
            del stored[name]
