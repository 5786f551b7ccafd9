"""Ingest: tasks say how many run at a time, and have an index over what waits; the outbox has none over its hashes."""

import sqlalchemy as sa
from alembic import op

from platform_defs.store.types import BigId, Fixed, Instant, Json, Str, utc_now

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

COLUMNS = (
    "id, provenance_code, endpoint_name, provider_id, event_type, payload, idempotent_key, run_id, batch_id,"
    " created_at, published_at"
)


def upgrade() -> None:
    connection = op.get_bind()
    if connection.dialect.name == "sqlite":
        _copy_into_new_table()
    elif any(found["name"] == "uk_outbox_idem" for found in sa.inspect(connection).get_indexes("ing_outbox")):
        op.drop_index("uk_outbox_idem", "ing_outbox")
    op.add_column(
        "ing_task",
        sa.Column("max_concurrent", sa.Integer(), server_default="4", nullable=False),
        if_not_exists=connection.dialect.name != "sqlite",
    )
    op.create_index(
        "idx_task_share",
        "ing_task",
        [
            "status_code",
            "provenance_code",
            "endpoint_name",
            "operation_code",
            "priority",
            "scheduled_at",
            "leased_until",
            "max_concurrent",
        ],
        unique=False,
        if_not_exists=True,
    )


def _copy_into_new_table() -> None:
    """SQLite cannot drop a unique constraint of a table."""
    op.create_table(
        "ing_outbox_new",
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
    )
    op.execute(f"INSERT INTO ing_outbox_new ({COLUMNS}) SELECT {COLUMNS} FROM ing_outbox")  # noqa: S608  # constants
    op.drop_table("ing_outbox")
    op.rename_table("ing_outbox_new", "ing_outbox")
    op.create_index("idx_outbox_unpublished", "ing_outbox", ["published_at", "id"], unique=False)
