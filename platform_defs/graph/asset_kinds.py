"""The kinds of assets: their labels in the graph, their place in the hierarchy, and the edge that leads to them."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class AssetKind:
    """One kind of asset.

    name: the prefix of node ids.
    labels: the graph labels that an asset of this kind may have; the first one holds until a fact names another.
    edge: the type of the edge that leads to the asset, from the asset above it or else from the tenant.
    above: the kind of the asset above it, None if the tenant owns it directly.
    name_parts: how many parts its qualified name has.
    shows_last_part: its property `name` is the last part of the qualified name, and so changes with a rename.
    """

    name: str
    labels: tuple[str, ...]
    edge: str
    above: str | None = None
    name_parts: int = 1
    shows_last_part: bool = False


ASSET_KINDS: Mapping[str, AssetKind] = MappingProxyType(
    {
        kind.name: kind
        for kind in (
            AssetKind("catalog", ("Catalog",), "OWNS_CATALOG", name_parts=2, shows_last_part=True),
            AssetKind("schema", ("Schema",), "HAS_SCHEMA", above="catalog", name_parts=3, shows_last_part=True),
            AssetKind("table", ("Table",), "HAS_TABLE", above="schema", name_parts=4, shows_last_part=True),
            AssetKind("column", ("Column",), "HAS_COLUMN", above="table", name_parts=5, shows_last_part=True),
            AssetKind("sql", ("SQL",), "OWNS_SQL"),
            AssetKind("metric", ("AtomicMetric", "DerivedMetric", "CompositeMetric"), "OWNS_METRIC"),
            AssetKind("wordroot", ("WordRoot",), "OWNS_WORDROOT"),
            AssetKind("modifier", ("Modifier",), "OWNS_MODIFIER"),
            AssetKind("unit", ("Unit",), "OWNS_UNIT"),
            AssetKind("valuedomain", ("ValueDomain",), "OWNS_VALUEDOMAIN"),
            AssetKind("tag", ("Tag",), "OWNS_TAG", shows_last_part=True),
        )
    }
)

# the kinds that stand below each other, from the top: catalog, schema, table, column
CONTAINERS = tuple(kind.name for kind in ASSET_KINDS.values() if kind.name_parts > 1)
