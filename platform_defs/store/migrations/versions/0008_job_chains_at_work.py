"""Job chains at work: what a run needs beside the columns of the seed, drives, audit and request keys."""

import sqlalchemy as sa
from alembic import op

from platform_defs.store.types import BigId, Fixed, Instant, Json, LongText, Str, utc_now

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # SQLite has no ADD COLUMN IF NOT EXISTS, but there a migration that dies leaves nothing behind
    resumable = op.get_bind().dialect.name != "sqlite"
    op.create_table(
        "job_audit",
        sa.Column("id", BigId, autoincrement=True, nullable=False),
        sa.Column("actor", Str(255), nullable=False),
        sa.Column("action", Str(32), nullable=False),
        sa.Column("object_id", Str(64), nullable=False),
        sa.Column("node_id", Str(255), nullable=True),
        sa.Column("before_json", Json(), nullable=True),
        sa.Column("after_json", Json(), nullable=True),
        sa.Column("reason", LongText(), nullable=True),
        sa.Column("created_at", Instant(), server_default=utc_now(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_job_audit")),
        if_not_exists=True,
    )
    op.create_index("idx_job_audit_created", "job_audit", ["created_at"], unique=False, if_not_exists=True)
    op.create_index("idx_job_audit_object", "job_audit", ["object_id", "id"], unique=False, if_not_exists=True)
    op.create_table(
        "job_request_key",
        sa.Column("scope", Str(191), nullable=False),
        sa.Column("request_key", Str(255), nullable=False),
        sa.Column("body_hash", Fixed(64), nullable=False),
        sa.Column("object_id", Str(64), nullable=False),
        sa.Column("created_at", Instant(), server_default=utc_now(), nullable=False),
        sa.PrimaryKeyConstraint("scope", "request_key", name=op.f("pk_job_request_key")),
        if_not_exists=True,
    )
    op.create_index("idx_job_request_key_created", "job_request_key", ["created_at"], unique=False, if_not_exists=True)
    op.create_table(
        "job_run_drive",
        sa.Column("run_id", Str(64), nullable=False),
        sa.Column("drive_no", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("work_id", sa.BigInteger(), nullable=False),
        sa.Column("dagster_run_id", Fixed(36), nullable=False),
        sa.Column("reason", Str(64), nullable=False),
        sa.Column("created_at", Instant(), server_default=utc_now(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "drive_no", name=op.f("pk_job_run_drive")),
        if_not_exists=True,
    )
    op.create_index("idx_job_run_drive_dagster", "job_run_drive", ["dagster_run_id"], unique=False, if_not_exists=True)
    op.create_index("idx_job_run_drive_work", "job_run_drive", ["work_id"], unique=False, if_not_exists=True)
    op.add_column(
        "job_definition",
        sa.Column("version", sa.BigInteger(), server_default="1", nullable=False),
        if_not_exists=resumable,
    )
    op.add_column("job_run", sa.Column("chain_version", sa.BigInteger(), nullable=True), if_not_exists=resumable)
    op.add_column("job_run", sa.Column("params", Json(), nullable=True), if_not_exists=resumable)
    op.add_column("job_run", sa.Column("actor", Str(255), nullable=True), if_not_exists=resumable)
    op.add_column("job_run", sa.Column("trigger_text", Str(255), nullable=True), if_not_exists=resumable)
    op.add_column("job_run", sa.Column("parent_run_id", Str(64), nullable=True), if_not_exists=resumable)
    op.add_column("job_run", sa.Column("parent_node_id", Str(255), nullable=True), if_not_exists=resumable)
    op.add_column(
        "job_run", sa.Column("depth", sa.Integer(), server_default="0", nullable=False), if_not_exists=resumable
    )
    op.add_column(
        "job_run", sa.Column("operation_no", sa.Integer(), server_default="0", nullable=False), if_not_exists=resumable
    )
    op.add_column(
        "job_run", sa.Column("drive_no", sa.Integer(), server_default="0", nullable=False), if_not_exists=resumable
    )
    op.add_column("job_run", sa.Column("stop_requested_by", Str(255), nullable=True), if_not_exists=resumable)
    op.add_column("job_run", sa.Column("error", LongText(), nullable=True), if_not_exists=resumable)
    op.add_column("job_run", sa.Column("started_at", Instant(), nullable=True), if_not_exists=resumable)
    op.add_column("job_run", sa.Column("ended_at", Instant(), nullable=True), if_not_exists=resumable)
    op.create_index("idx_job_run_parent", "job_run", ["parent_run_id"], unique=False, if_not_exists=True)
    op.add_column(
        "job_run_node", sa.Column("tries", sa.Integer(), server_default="0", nullable=False), if_not_exists=resumable
    )
    op.add_column(
        "job_run_node", sa.Column("deaths", sa.Integer(), server_default="0", nullable=False), if_not_exists=resumable
    )
    op.add_column("job_run_node", sa.Column("drive_no", sa.Integer(), nullable=True), if_not_exists=resumable)
    op.add_column("job_run_node", sa.Column("next_try_at", Instant(), nullable=True), if_not_exists=resumable)
    op.add_column("job_run_node", sa.Column("waits_for", Json(), nullable=True), if_not_exists=resumable)
    op.add_column("job_run_node", sa.Column("operations", Json(), nullable=True), if_not_exists=resumable)
