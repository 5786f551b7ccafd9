"""The words of the asset graph: which labels and edge types exist, and how vector labels are spelled."""

import re
from functools import lru_cache

from platform_defs.graph.asset_kinds import ASSET_KINDS
from platform_defs.graph.errors import InvalidGraphValue

TENANT = "Tenant"
KNOWLEDGE = "Knowledge"

ASSET_LABELS = frozenset(label for kind in ASSET_KINDS.values() for label in kind.labels)
# the kind of a hidden node: an asset that was dropped or renamed, or that only an edge has named so far
TOMBSTONE = "Tombstone"
KNOWLEDGE_KINDS = ASSET_LABELS | {TOMBSTONE}
KINDS = KNOWLEDGE_KINDS | {TENANT}

HAS_METRIC = "HAS_METRIC"
VISIBLE_EDGE_TYPES = {kind.edge for kind in ASSET_KINDS.values()} | {
    HAS_METRIC,
    "INPUT_OF",
    "OUTPUT_TO",
    "DERIVES_FROM",
    "MEASURES",
    "FILTERS_BY",
    "DERIVED_FROM",
    "COMPUTED_FROM",
    "HAS_VALUE_DOMAIN",
    "HAS_TAG",
}

# begins the type of an edge that is hidden, because it was removed or a node at one end does not exist
GONE_PREFIX = "GONE_"
HIERARCHY_TYPES = frozenset(f"{prefix}{kind.edge}" for kind in ASSET_KINDS.values() for prefix in ("", GONE_PREFIX))
EDGE_TYPES = frozenset(VISIBLE_EDGE_TYPES | {f"{GONE_PREFIX}{type}" for type in VISIBLE_EDGE_TYPES})

# written by the stores themselves: callers may neither set nor remove these properties, and reads leave them out
RESERVED_PROPERTIES = frozenset({"id", "tenantId", "createdAt", "updatedAt"})

SIMILARITIES = ("cosine", "euclidean")
MAX_DIMENSION = 4096
_VECTOR_LABEL = re.compile(r"Knowledge_([1-9][0-9]{0,3})_(cosine|euclidean)")


def vector_label(dimension: int, similarity: str) -> str:
    """A further label of nodes whose embedding has this dimension: Neo4j has one vector index per label."""
    if type(dimension) is not int or not 1 <= dimension <= MAX_DIMENSION:
        raise InvalidGraphValue("dimension", f"expected 1 to {MAX_DIMENSION}")
    if similarity not in SIMILARITIES:
        raise InvalidGraphValue("similarity", f"expected one of {', '.join(SIMILARITIES)}")
    return f"{KNOWLEDGE}_{dimension}_{similarity}"


@lru_cache(maxsize=256)
def vector_dimension(label: str) -> int | None:
    """The dimension that a vector label promises; None for any other label."""
    match = _VECTOR_LABEL.fullmatch(label)
    if not match or int(match[1]) > MAX_DIMENSION:
        return None
    return int(match[1])
