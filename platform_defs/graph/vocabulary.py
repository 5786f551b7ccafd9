"""The words of the asset graph: which labels and edge types exist, and how vector labels are spelled."""

import re

from platform_defs.graph.errors import InvalidGraphValue

TENANT = "Tenant"
KNOWLEDGE = "Knowledge"

ASSET_KINDS = frozenset(
    {
        "Catalog",
        "Schema",
        "Table",
        "Column",
        "SQL",
        "AtomicMetric",
        "DerivedMetric",
        "CompositeMetric",
        "WordRoot",
        "Modifier",
        "Unit",
        "ValueDomain",
        "Tag",
    }
)
# what is known of an asset that does not exist: that it was dropped, renamed, or is only pointed at; never shown
TOMBSTONE = "Tombstone"
KNOWLEDGE_KINDS = ASSET_KINDS | {TOMBSTONE}
KINDS = KNOWLEDGE_KINDS | {TENANT}

HIERARCHY = ("HAS_SCHEMA", "HAS_TABLE", "HAS_COLUMN", "HAS_METRIC")
SHOWN_EDGE_TYPES = frozenset(HIERARCHY) | {
    "OWNS_CATALOG",
    "OWNS_SQL",
    "OWNS_TAG",
    "OWNS_METRIC",
    "OWNS_WORDROOT",
    "OWNS_MODIFIER",
    "OWNS_UNIT",
    "OWNS_VALUEDOMAIN",
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

# an edge that is known but does not stand, because it was cut or an end does not exist; never shown
GONE = "GONE_"
EDGE_TYPES = SHOWN_EDGE_TYPES | {f"{GONE}{type}" for type in SHOWN_EDGE_TYPES}

# written by the stores themselves: a caller may neither set nor remove them, and reads leave them out
RESERVED_PROPERTIES = frozenset({"id", "tenantId", "createdAt", "updatedAt"})

SIMILARITIES = ("cosine", "euclidean")
MAX_DIMENSION = 4096
_VECTOR_LABEL = re.compile(r"Knowledge_([1-9][0-9]{0,3})_(cosine|euclidean)")


def vector_label(dimension: int, similarity: str) -> str:
    """The second label of nodes embedded by one kind of model: Neo4j has one vector index per label and property."""
    if type(dimension) is not int or not 1 <= dimension <= MAX_DIMENSION:
        raise InvalidGraphValue("dimension", f"expected 1 to {MAX_DIMENSION}")
    if similarity not in SIMILARITIES:
        raise InvalidGraphValue("similarity", f"expected one of {', '.join(SIMILARITIES)}")
    return f"{KNOWLEDGE}_{dimension}_{similarity}"


def vector_dimension(label: str) -> int | None:
    """The dimension that a vector label promises; None for any other label."""
    match = _VECTOR_LABEL.fullmatch(label)
    if not match or int(match[1]) > MAX_DIMENSION:
        return None
    return int(match[1])
