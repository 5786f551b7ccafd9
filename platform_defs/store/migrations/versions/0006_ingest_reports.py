"""Ingest reports."""

import sqlalchemy as sa
from alembic import op

from platform_defs.store.types import Instant

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # SQLite has no ADD COLUMN IF NOT EXISTS, but there a migration that dies leaves nothing behind
    resumable = op.get_bind().dialect.name != "sqlite"
    op.add_column("ing_plan", sa.Column("reported_at", Instant(), nullable=True), if_not_exists=resumable)
