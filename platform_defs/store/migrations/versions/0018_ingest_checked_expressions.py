"""Ingest: records say with which expressions they were last asked for, also if their source gave nothing new."""

import sqlalchemy as sa
from alembic import op

from platform_defs.store.types import Fixed

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # SQLite has no ADD COLUMN IF NOT EXISTS, but there a migration that dies leaves nothing behind
    resumable = op.get_bind().dialect.name != "sqlite"
    op.add_column("ing_record", sa.Column("checked_expr_hash", Fixed(64), nullable=True), if_not_exists=resumable)
