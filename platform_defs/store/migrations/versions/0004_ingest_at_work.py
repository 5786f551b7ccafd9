"""Ingest at work."""

import sqlalchemy as sa
from alembic import op

from platform_defs.store.types import BigId, Fixed, Instant, Json, LongText, Str, utc_now

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "ing_endpoint_block",
        sa.Column("provenance_code", Str(64), nullable=False),
        sa.Column("endpoint_name", Str(64), nullable=False),
        sa.Column("reason", LongText(), nullable=False),
        sa.Column("error_code", Str(64), nullable=True),
        sa.Column("task_id", sa.BigInteger(), nullable=True),
        sa.Column("blocked_at", Instant(), nullable=False),
        sa.PrimaryKeyConstraint("provenance_code", "endpoint_name", name=op.f("pk_ing_endpoint_block")),
        if_not_exists=True,
    )
    op.create_table(
        "ing_outbox",
        sa.Column("id", BigId, autoincrement=True, nullable=False),
        sa.Column("provenance_code", Str(64), nullable=False),
        sa.Column("endpoint_name", Str(64), nullable=False),
        sa.Column("provider_id", Str(512), nullable=False),
        sa.Column("event_type", Str(32), nullable=False),
        sa.Column("payload", Json(), nullable=False),
        sa.Column("idempotent_key", Fixed(64), nullable=False),
        sa.Column("run_id", sa.BigInteger(), nullable=True),
        sa.Column("batch_id", sa.BigInteger(), nullable=True),
        sa.Column("created_at", Instant(), server_default=utc_now(), nullable=False),
        sa.Column("published_at", Instant(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_ing_outbox")),
        sa.UniqueConstraint("idempotent_key", name="uk_outbox_idem"),
        if_not_exists=True,
    )
    op.create_index("idx_outbox_unpublished", "ing_outbox", ["published_at", "id"], unique=False, if_not_exists=True)
    op.create_table(
        "ing_signal",
        sa.Column("id", BigId, autoincrement=True, nullable=False),
        sa.Column("provenance_code", Str(64), nullable=False),
        sa.Column("endpoint_name", Str(64), nullable=False),
        sa.Column("provider_id", Str(512), nullable=False),
        sa.Column("id_number", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("reason", Str(512), nullable=True),
        sa.Column("requested_by", Str(128), nullable=False),
        sa.Column("requested_at", Instant(), nullable=False),
        sa.Column("status_code", Str(32), server_default="OPEN", nullable=False),
        sa.Column("plan_id", sa.BigInteger(), nullable=True),
        sa.Column("created_at", Instant(), server_default=utc_now(), nullable=False),
        sa.Column("updated_at", Instant(), server_default=utc_now(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_ing_signal")),
        sa.UniqueConstraint("provenance_code", "endpoint_name", "provider_id", name="uk_signal_provider_id"),
        if_not_exists=True,
    )
    op.create_index(
        "idx_signal_status",
        "ing_signal",
        ["provenance_code", "endpoint_name", "status_code", "id"],
        unique=False,
        if_not_exists=True,
    )
    op.create_index(
        "idx_plan_window",
        "ing_plan",
        ["provenance_code", "endpoint_name", "operation_code", "window_from"],
        unique=False,
        if_not_exists=True,
    )
    op.create_index("idx_batch_task", "ing_task_run_batch", ["task_id", "batch_no"], unique=False, if_not_exists=True)
    op.create_index(
        "idx_batch_plan", "ing_task_run_batch", ["plan_id", "committed_at"], unique=False, if_not_exists=True
    )
    # SQLite has no ADD COLUMN IF NOT EXISTS, but there a migration that dies leaves nothing behind
    resumable = op.get_bind().dialect.name != "sqlite"
    op.add_column(
        "ing_record",
        sa.Column("id_number", sa.BigInteger(), server_default="0", nullable=False),
        if_not_exists=resumable,
    )
    op.create_index(
        "idx_record_refresh",
        "ing_record",
        ["provenance_code", "endpoint_name", "refresh_checked_at"],
        unique=False,
        if_not_exists=True,
    )
