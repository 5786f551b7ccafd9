"""Lineage of chains: runs are found by the time of their last change."""

from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("idx_job_run_updated", "job_run", ["updated_at"], if_not_exists=True)
