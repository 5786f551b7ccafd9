"""All tables of the platform, one module per system; importing this package fills the metadata."""

from platform_defs.store.metadata import metadata
from platform_defs.store.tables import (
    access,
    arrivals,
    chains,
    graph,
    ingest,
    ingest_cursors,
    lineage,
    rate_gate,
    registry,
    webhooks,
    work,
)

__all__ = [
    "access",
    "arrivals",
    "chains",
    "graph",
    "ingest",
    "ingest_cursors",
    "lineage",
    "metadata",
    "rate_gate",
    "registry",
    "webhooks",
    "work",
]
