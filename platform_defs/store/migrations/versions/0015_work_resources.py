"""Rows of work: runners that claim rows with the same resource wait for each other."""

import sqlalchemy as sa
from alembic import op

from platform_defs.store.types import Instant, Str

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "work_resource",
        sa.Column("name", Str(64), nullable=False),
        sa.Column("claimed_at", Instant(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
        if_not_exists=True,
    )
