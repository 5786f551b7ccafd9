"""Lineage versions: the order of a tenant's events is a column with an index of its own; failures of the recovery.

Rows that exist keep NULL here. They get the version by which the graph knows them when a rebuild first reads them.
"""

import sqlalchemy as sa
from alembic import op

from platform_defs.store.types import Fixed, Instant, LongText, Str

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # SQLite has no ADD COLUMN IF NOT EXISTS, but there a migration that dies leaves nothing behind
    resumable = op.get_bind().dialect.name != "sqlite"
    op.add_column("lineage_events", sa.Column("version", Fixed(32), nullable=True), if_not_exists=resumable)
    op.create_index("idx_le_tenant_version", "lineage_events", ["tenant_id", "version"], if_not_exists=True)
    op.create_table(
        "lineage_recovery",
        sa.Column("name", Str(64), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("since", Instant(), nullable=False),
        sa.Column("error", LongText(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_lineage_recovery")),
        if_not_exists=True,
    )
