"""A tenant's graph as text for operators and tests: sorted JSON lines, the same from both stores."""

import json
from collections.abc import Iterator
from typing import Any

from platform_defs.graph.model import Edge, Node, Props
from platform_defs.graph.port import GraphStore
from platform_defs.graph.vocabulary import GONE_PREFIX, TOMBSTONE


def graph_lines(store: GraphStore) -> Iterator[str]:
    """One line per node, sorted by id, then one per edge, sorted by (from, type, to); tombstones are left out."""
    return (_format_line(item) for item in store.stream() if not is_hidden(item))


def is_hidden(item: Node | Edge) -> bool:
    """Whether a node or edge only keeps facts for later merges: tombstones, and edges that do not exist at present."""
    return TOMBSTONE in item.labels if isinstance(item, Node) else item.type.startswith(GONE_PREFIX)


def _format_line(item: Node | Edge) -> str:
    if isinstance(item, Node):
        return _to_json({"node": sorted(item.labels), "id": item.id, "props": _visible_props(item.props)})
    return _to_json({"edge": item.type, "from": item.from_id, "to": item.to_id, "props": _visible_props(item.props)})


def _visible_props(props: Props) -> dict[str, Any]:
    """Without properties whose names begin with an underscore: systems keep versions and facts in them."""
    return {name: props[name] for name in sorted(props) if not name.startswith("_")}


def _to_json(line: dict[str, Any]) -> str:
    return json.dumps(line, ensure_ascii=False, allow_nan=False)
