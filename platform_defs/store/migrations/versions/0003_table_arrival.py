"""Table arrival."""

import sqlalchemy as sa
from alembic import op

from platform_defs.store.types import BigId, Fixed, Instant, Json, LongText, Str, utc_now

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "metrics_model_input",
        sa.Column("id", BigId, autoincrement=True, nullable=False),
        sa.Column("model_id", Str(255), nullable=False),
        sa.Column("op_time", Str(255), nullable=False),
        sa.Column("dependency_table_name", Str(255), nullable=False),
        sa.Column("arrival_time", Instant(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_metrics_model_input")),
        sa.UniqueConstraint("model_id", "op_time", "dependency_table_name", name="uk_model_input"),
        if_not_exists=True,
    )
    op.create_table(
        "metrics_model_running",
        sa.Column("model_id", Str(255), nullable=False),
        sa.Column("op_time", Str(255), nullable=False),
        sa.Column("task_id", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("model_id", "op_time", name=op.f("pk_metrics_model_running")),
        if_not_exists=True,
    )
    op.create_index("idx_model_running_task", "metrics_model_running", ["task_id"], unique=False, if_not_exists=True)
    op.create_table(
        "metrics_webhook_attempt",
        sa.Column("id", BigId, autoincrement=True, nullable=False),
        sa.Column("delivery_id", sa.BigInteger(), nullable=False),
        sa.Column("attempt_no", sa.Integer(), nullable=False),
        sa.Column("started_at", Instant(), nullable=False),
        sa.Column("latency_ms", sa.Integer(), nullable=True),
        sa.Column("http_status", sa.Integer(), nullable=True),
        sa.Column("outcome", Str(16), nullable=False),
        sa.Column("error", Str(1000), nullable=True),
        sa.Column("answer", Str(1024), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_metrics_webhook_attempt")),
        sa.UniqueConstraint("delivery_id", "attempt_no", name="uk_webhook_attempt"),
        if_not_exists=True,
    )
    op.create_table(
        "metrics_webhook_delivery",
        sa.Column("id", BigId, autoincrement=True, nullable=False),
        sa.Column("webhook_id", Str(64), nullable=False),
        sa.Column("task_id", sa.Integer(), nullable=False),
        sa.Column("group_hash", Fixed(64), nullable=False),
        sa.Column("model_id", Str(255), nullable=False),
        sa.Column("op_time", Str(255), nullable=False),
        sa.Column("callback_url", Str(512), nullable=False),
        sa.Column("subscription_ids", Json(), nullable=False),
        sa.Column("secret", Str(2048), nullable=True),
        sa.Column("signing_secret", Str(2048), nullable=True),
        sa.Column("retry_num", sa.Integer(), nullable=False),
        sa.Column("body", LongText(), nullable=False),
        sa.Column("event_time", Instant(), nullable=False),
        sa.Column("status", Str(16), nullable=False),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("next_attempt_at", Instant(), nullable=True),
        sa.Column("lease_owner", Str(255), nullable=True),
        sa.Column("leased_until", Instant(), nullable=True),
        sa.Column("last_error", Str(1000), nullable=True),
        sa.Column("finished_at", Instant(), nullable=True),
        sa.Column("created_at", Instant(), server_default=utc_now(), nullable=False),
        sa.Column("updated_at", Instant(), server_default=utc_now(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_metrics_webhook_delivery")),
        sa.UniqueConstraint("task_id", "group_hash", name="uk_webhook_delivery_group"),
        sa.UniqueConstraint("webhook_id", name="uk_webhook_delivery_id"),
        if_not_exists=True,
    )
    op.create_index(
        "idx_webhook_delivery_due",
        "metrics_webhook_delivery",
        ["status", "next_attempt_at"],
        unique=False,
        if_not_exists=True,
    )

    # SQLite has no ADD COLUMN IF NOT EXISTS either, but there a migration that dies leaves nothing behind
    resumable = op.get_bind().dialect.name != "sqlite"
    op.add_column("metrics_etl_log", sa.Column("reported_time", Instant(), nullable=True), if_not_exists=resumable)
    op.add_column("metrics_model", sa.Column("due", Str(16), nullable=True), if_not_exists=resumable)
    op.add_column("metrics_model", sa.Column("published_at", Instant(), nullable=True), if_not_exists=resumable)
    op.add_column("metrics_task_log", sa.Column("versions", Json(), nullable=True), if_not_exists=resumable)
    op.add_column("metrics_task_log", sa.Column("missing_tables", Json(), nullable=True), if_not_exists=resumable)
    op.add_column("metrics_task_log", sa.Column("trigger_code", Str(16), nullable=True), if_not_exists=resumable)
    op.add_column(
        "metrics_task_log",
        sa.Column("attempt", sa.Integer(), server_default="1", nullable=False),
        if_not_exists=resumable,
    )
    op.add_column("metrics_task_log", sa.Column("work_id", sa.BigInteger(), nullable=True), if_not_exists=resumable)
    op.add_column("metrics_task_log", sa.Column("run_id", Fixed(36), nullable=True), if_not_exists=resumable)
    op.add_column("metrics_task_log", sa.Column("reported_at", Instant(), nullable=True), if_not_exists=resumable)
    op.create_index(
        "idx_task_log_reported",
        "metrics_task_log",
        ["status", "reported_at", "end_time"],
        unique=False,
        if_not_exists=True,
    )
    op.add_column(
        "metrics_webhook_subscription", sa.Column("signing_secret", Str(2048), nullable=True), if_not_exists=resumable
    )
    op.add_column(
        "metrics_webhook_subscription", sa.Column("disabled_reason", Str(255), nullable=True), if_not_exists=resumable
    )
