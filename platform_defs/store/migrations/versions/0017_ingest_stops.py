"""Ingest: tasks that somebody wants stopped say so; partitions with trouble run fewer slices at a time for a while."""

import sqlalchemy as sa
from alembic import op

from platform_defs.store.types import Instant, LongText, Str

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # SQLite has no ADD COLUMN IF NOT EXISTS, but there a migration that dies leaves nothing behind
    resumable = op.get_bind().dialect.name != "sqlite"
    op.add_column("ing_task", sa.Column("cancel_requested_at", Instant(), nullable=True), if_not_exists=resumable)
    op.create_table(
        "ing_partition_limit",
        sa.Column("provenance_code", Str(64), nullable=False),
        sa.Column("endpoint_name", Str(64), nullable=False),
        sa.Column("operation_code", Str(32), nullable=False),
        sa.Column("max_concurrent", sa.Integer(), nullable=False),
        sa.Column("reason", LongText(), nullable=False),
        sa.Column("lowered_at", Instant(), nullable=False),
        sa.Column("holds_until", Instant(), nullable=False),
        sa.PrimaryKeyConstraint(
            "provenance_code", "endpoint_name", "operation_code", name=op.f("pk_ing_partition_limit")
        ),
        if_not_exists=True,
    )
