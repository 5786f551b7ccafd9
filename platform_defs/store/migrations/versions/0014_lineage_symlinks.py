"""Lineage symlinks: what the names of datasets mean, beyond the events that said so; when a tenant's name was said."""

import sqlalchemy as sa
from alembic import op

from platform_defs.store.types import Fixed, Json, Str

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # SQLite has no ADD COLUMN IF NOT EXISTS, but there a migration that dies leaves nothing behind
    resumable = op.get_bind().dialect.name != "sqlite"
    op.create_table(
        "lineage_symlink",
        sa.Column("tenant_id", sa.BigInteger(), nullable=False),
        sa.Column("name_id", Str(64), nullable=False),
        sa.Column("links", Json(), nullable=False),
        sa.Column("used", sa.Integer(), nullable=False),
        sa.Column("exact", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "name_id", name=op.f("pk_lineage_symlink")),
        if_not_exists=True,
    )
    op.add_column(
        "lineage_rebuild",
        sa.Column("symlink_changes", sa.BigInteger(), nullable=False, server_default="0"),
        if_not_exists=resumable,
    )
    op.add_column("tenants", sa.Column("name_version", Fixed(32), nullable=True), if_not_exists=resumable)
