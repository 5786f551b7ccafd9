"""A tenant's graph as text: sorted JSON lines, the same from both stores."""

import json
from collections.abc import Iterator
from typing import Any

from platform_defs.graph.model import Edge, Node, Props
from platform_defs.graph.port import GraphStore
from platform_defs.graph.vocabulary import GONE, TOMBSTONE


def graph_lines(store: GraphStore) -> Iterator[str]:
    """One line per node, sorted by id, then one per edge, sorted by (from, type, to); tombstones are left out."""
    return (_line(item) for item in store.stream() if not is_hidden(item))


def is_hidden(item: Node | Edge) -> bool:
    """Whether it is bookkeeping and not part of the graph."""
    return TOMBSTONE in item.labels if isinstance(item, Node) else item.type.startswith(GONE)


def _line(item: Node | Edge) -> str:
    if isinstance(item, Node):
        return _text({"node": sorted(item.labels), "id": item.id, "props": _shown(item.props)})
    return _text({"edge": item.type, "from": item.from_id, "to": item.to_id, "props": _shown(item.props)})


def _shown(props: Props) -> dict[str, Any]:
    """Names that begin with an underscore are bookkeeping of a system, such as versions, and not part of the graph."""
    return {name: props[name] for name in sorted(props) if not name.startswith("_")}


def _text(line: dict[str, Any]) -> str:
    return json.dumps(line, ensure_ascii=False, allow_nan=False)
