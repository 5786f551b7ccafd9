"""Tables of the embedded graph: the asset graph of every tenant, beside the rest of the platform's data."""

from sqlalchemy import BigInteger, Column, ForeignKeyConstraint, Index, PrimaryKeyConstraint, Table, UniqueConstraint

from platform_defs.store.metadata import created_at, id_column, metadata, updated_at
from platform_defs.store.types import BigId, LongText, Str

# Edges refer to nodes by number, because two ids of 512 characters are too long for an index of MySQL.
graph_node = Table(
    "graph_node",
    metadata,
    id_column(),
    Column("tenant_id", BigInteger, nullable=False),
    Column("node_id", Str(512), nullable=False),
    Column("kind", Str(32), nullable=False),
    Column("vector_label", Str(64)),
    # only the Tenant node has a code; as on Neo4j, no two tenants share one
    Column("tenant_code", Str(64)),
    # text, not JSON: MySQL's JSON rounds some floats, and the merge happens under a lock in the application
    Column("props", LongText, nullable=False),
    created_at(),
    updated_at(),
    UniqueConstraint("tenant_id", "node_id", name="uk_graph_node_tenant_node"),
    # target of the foreign keys (tenant, number) of edges, by which the database refuses edges between tenants
    UniqueConstraint("tenant_id", "id", name="uk_graph_node_tenant_number"),
    UniqueConstraint("tenant_code", name="uk_graph_node_tenant_code"),
)

graph_edge = Table(
    "graph_edge",
    metadata,
    Column("tenant_id", BigInteger, nullable=False),
    Column("from_node", BigId, nullable=False),
    Column("type", Str(32), nullable=False),
    Column("to_node", BigId, nullable=False),
    Column("props", LongText, nullable=False),
    PrimaryKeyConstraint("tenant_id", "from_node", "type", "to_node"),
    ForeignKeyConstraint(
        ["tenant_id", "from_node"],
        ["graph_node.tenant_id", "graph_node.id"],
        name="fk_graph_edge_from",
        ondelete="CASCADE",
    ),
    ForeignKeyConstraint(
        ["tenant_id", "to_node"],
        ["graph_node.tenant_id", "graph_node.id"],
        name="fk_graph_edge_to",
        ondelete="CASCADE",
    ),
    Index("idx_graph_edge_tenant_to", "tenant_id", "to_node"),
)

graph_vector_index = Table(
    "graph_vector_index",
    metadata,
    Column("label", Str(64), primary_key=True),
    created_at(),
)
