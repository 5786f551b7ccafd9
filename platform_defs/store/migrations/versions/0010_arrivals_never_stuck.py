"""Arrivals never stuck: rows of work wait until a time and say who ended them, tasks remember what made them due."""

from typing import Any

import sqlalchemy as sa
from alembic import op

from platform_defs.store.types import Instant, Json, LongText, Str

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

NEW_COLUMNS: dict[str, list[sa.Column[Any]]] = {
    "work": [
        sa.Column("not_before", Instant(), nullable=True),
        sa.Column("resource", Str(64), nullable=True),
        sa.Column("ended_by", Str(16), nullable=True),
        sa.Column("claimed_at", Instant(), nullable=True),
    ],
    "metrics_task_log": [
        sa.Column("inputs", Json(), nullable=True),
        sa.Column("crashes", sa.Integer(), server_default="0", nullable=False),
        sa.Column("try_number", sa.Integer(), server_default="1", nullable=False),
        sa.Column("failure_code", Str(16), nullable=True),
        sa.Column("ended_by", Str(16), nullable=True),
        sa.Column("process", Str(255), nullable=True),
        sa.Column("statement_until", Instant(), nullable=True),
    ],
    "metrics_model": [
        sa.Column("retries", sa.Integer(), nullable=True),
        sa.Column("timeout_s", sa.Double(), nullable=True),
    ],
}


def upgrade() -> None:
    # SQLite has no ADD COLUMN IF NOT EXISTS, but there a migration that dies leaves nothing behind
    resumable = op.get_bind().dialect.name != "sqlite"
    for table, columns in NEW_COLUMNS.items():
        for column in columns:
            op.add_column(table, column, if_not_exists=resumable)
    op.create_index("idx_task_log_statement", "metrics_task_log", ["statement_until"], if_not_exists=True)
    op.create_table(
        "work_sensor_tick",
        sa.Column("name", Str(64), nullable=False),
        sa.Column("succeeded_at", Instant(), nullable=True),
        sa.Column("failed_at", Instant(), nullable=True),
        sa.Column("error", LongText(), nullable=True),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_work_sensor_tick")),
        if_not_exists=True,
    )
