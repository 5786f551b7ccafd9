"""Lineage sink."""

import sqlalchemy as sa
from alembic import op

from platform_defs.store.types import Fixed, Instant, Str, utc_now

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "lineage_cursor",
        sa.Column("name", Str(64), nullable=False),
        sa.Column("last_id", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", Instant(), server_default=utc_now(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_lineage_cursor")),
        if_not_exists=True,
    )
    op.create_table(
        "lineage_rebuild",
        sa.Column("tenant_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("requested", sa.BigInteger(), nullable=False),
        sa.Column("answered", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("requested_at", Instant(), nullable=False),
        sa.Column("rebuilt_at", Instant(), nullable=True),
        sa.Column("rebuilt_from", Instant(), nullable=True),
        sa.PrimaryKeyConstraint("tenant_id", name=op.f("pk_lineage_rebuild")),
        if_not_exists=True,
    )
    op.create_table(
        "lineage_sql",
        sa.Column("tenant_id", sa.BigInteger(), nullable=False),
        sa.Column("sql_id", Str(64), nullable=False),
        sa.Column("runs", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "sql_id", name=op.f("pk_lineage_sql")),
        if_not_exists=True,
    )
    op.create_table(
        "lineage_sql_run",
        sa.Column("tenant_id", sa.BigInteger(), nullable=False),
        sa.Column("sql_id", Str(64), nullable=False),
        sa.Column("run_uuid", Fixed(36), nullable=False),
        sa.Column("created_at", Instant(), server_default=utc_now(), nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "sql_id", "run_uuid", name=op.f("pk_lineage_sql_run")),
        if_not_exists=True,
    )
    op.create_index("idx_sql_run_created", "lineage_sql_run", ["created_at"], unique=False, if_not_exists=True)

    # SQLite has no ADD COLUMN IF NOT EXISTS either, but there a migration that dies leaves nothing behind
    resumable = op.get_bind().dialect.name != "sqlite"
    op.add_column("lineage_events", sa.Column("source_type", Str(32), nullable=True), if_not_exists=resumable)
