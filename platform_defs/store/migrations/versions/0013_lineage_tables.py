"""Lineage tables in Dagster: which tables events name, and the snapshot from which their assets are loaded."""

import sqlalchemy as sa
from alembic import op

from platform_defs.store.types import LongText, Str

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "lineage_table_seen",
        sa.Column("tenant_id", sa.BigInteger(), nullable=False),
        sa.Column("table_id", Str(64), nullable=False),
        sa.Column("tenant_code", Str(64), nullable=False),
        sa.Column("namespace", LongText(), nullable=False),
        sa.Column("name", LongText(), nullable=False),
        sa.Column("last_event_id", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "table_id", name=op.f("pk_lineage_table_seen")),
        if_not_exists=True,
    )
    op.create_index("idx_table_seen_event", "lineage_table_seen", ["last_event_id"], if_not_exists=True)
    op.create_table(
        "lineage_table_shown",
        sa.Column("tenant_id", sa.BigInteger(), nullable=False),
        sa.Column("table_id", Str(64), nullable=False),
        sa.Column("tenant_code", Str(64), nullable=False),
        sa.Column("namespace", LongText(), nullable=False),
        sa.Column("name", LongText(), nullable=False),
        sa.Column("upstream", LongText(), nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "table_id", name=op.f("pk_lineage_table_shown")),
        if_not_exists=True,
    )
