"""Finds tables and columns by the names that people write, and says which ones a name could mean.

A name is a qualified name (`mart.orders`, `mart.orders.amount`) or its end (`orders`, `orders.amount`). What matches
exactly comes before what matches as an end, and that before what matches only if upper and lower case are the same.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from platform_defs.graph.model import Node
from platform_defs.graph.port import GraphStore
from platform_defs.lineage.errors import AmbiguousName, NameNotFound

# tables, or columns of them, that one name may match
MAX_MATCHES = 10_000
# parts of a name: no real one has more
MAX_PARTS = 50

Kind = Literal["table", "column"]


@dataclass(frozen=True, slots=True)
class Asset:
    """A table or a column, as people name it."""

    id: str
    kind: Kind
    name: str
    namespace: str


def search(store: GraphStore, text: str, *, limit: int) -> list[Asset]:
    """Tables whose qualified name contains the text, then columns whose own name does. Two queries.

    Only what follows the last dot is looked for in a column's own name: `orders.am` finds `mart.orders.amount`, and
    `orders` does not list all columns of `mart.orders`.
    """
    own = text.rpartition(".")[2]
    tables = store.find_by_text("Table", text, limit=limit)
    columns = store.find_by_text("Column", text, own=own, limit=limit) if own else []
    return [asset_of(node) for node in (*tables, *columns)][:limit]


def resolve(store: GraphStore, name: str, *, namespace: str | None = None, columns: bool = True) -> Asset:
    """The one table or column that the name means. At most three queries, however many tables there are."""
    splits = _splits(name) if columns else []
    endings = [name, *dict.fromkeys(table for table, _ in splits)]
    tables = [asset_of(node) for node in store.find_by_ending("Table", endings, limit=MAX_MATCHES)]
    if namespace is not None:
        tables = [table for table in tables if table.namespace == namespace]
    found = [table for table in tables if _ends(table.name, name)]
    if splits and not any(table.name == name for table in found):
        found += _columns_of(store, tables, splits)
    meanings = _closest(found, name)
    if not meanings:
        raise NameNotFound(name, namespace)
    if len(meanings) > 1:
        raise AmbiguousName(name, [(asset.name, asset.namespace) for asset in meanings])
    return meanings[0]


def asset_of(node: Node) -> Asset:
    kind: Kind = "table" if "Table" in node.labels else "column"
    # a name that is too long is not stored; such a node is shown by what is left
    name = node.props.get("qualifiedName") or node.props.get("name") or node.id
    return Asset(node.id, kind, str(name), str(node.props.get("namespace", "")))


def _splits(name: str) -> list[tuple[str, str]]:
    """All ways to read the name as a table's name, a dot and a column's, which may have dots itself."""
    dots = [at for at, letter in enumerate(name) if letter == "." and 0 < at < len(name) - 1]
    return [(name[:at], name[at + 1 :]) for at in reversed(dots)][:MAX_PARTS]


def _columns_of(store: GraphStore, tables: Sequence[Asset], splits: Sequence[tuple[str, str]]) -> list[Asset]:
    owners = {table.id: table for table in tables if any(_ends(table.name, owner) for owner, _ in splits)}
    edges = store.follow(list(owners), ["HAS_COLUMN"], forward=True, limit=MAX_MATCHES) if owners else []
    nodes = store.nodes([edge.to_id for edge in edges]) if edges else {}
    found = []
    for edge in edges:
        column, owner = nodes.get(edge.to_id), owners[edge.from_id]
        own = str(column.props.get("name", "")) if column else ""
        if column and any(_ends(owner.name, table) and own.lower() == wanted.lower() for table, wanted in splits):
            found.append(asset_of(column))
    return found


def _ends(qualified: str, name: str) -> bool:
    whole, end = qualified.lower(), name.lower()
    return whole == end or whole.endswith((f".{end}", f"/{end}"))


def _closest(found: Sequence[Asset], name: str) -> list[Asset]:
    """Those that match best; tables and columns count the same."""
    grades: tuple[Callable[[str], bool], ...] = (
        lambda qualified: qualified == name,
        lambda qualified: qualified.endswith((f".{name}", f"/{name}")),
        lambda qualified: qualified.lower() == name.lower(),
        lambda qualified: True,
    )
    for grade in grades:
        if best := [asset for asset in found if grade(asset.name)]:
            return best
    return []
