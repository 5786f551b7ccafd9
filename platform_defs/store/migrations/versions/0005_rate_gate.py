"""Rate gate: its own tables for any caller, in place of two of ingest that no code ever used."""

import sqlalchemy as sa
from alembic import op

from platform_defs.store.types import Instant, Str, utc_now

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "rate_gate",
        sa.Column("gate_key", Str(255), nullable=False),
        sa.Column("next_slot_us", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("booked", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("last_booked_us", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("warm_from_us", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("slowed_rate", sa.Double(), nullable=True),
        sa.Column("slowed_at_us", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("cool_until_us", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("failures", sa.Integer(), server_default="0", nullable=False),
        sa.Column("limit_rate", sa.Double(), nullable=True),
        sa.Column("limit_until_us", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("window_left", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("window_until_us", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("hour_no", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("hour_count", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("day_no", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("day_count", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("created_at", Instant(), server_default=utc_now(), nullable=False),
        sa.PrimaryKeyConstraint("gate_key", name=op.f("pk_rate_gate")),
        if_not_exists=True,
    )
    op.create_table(
        "rate_gate_lease",
        sa.Column("gate_key", Str(255), nullable=False),
        sa.Column("slot_no", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("owner", Str(64), nullable=True),
        sa.Column("leased_until_us", sa.BigInteger(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("gate_key", "slot_no", name=op.f("pk_rate_gate_lease")),
        if_not_exists=True,
    )
    op.drop_table("ing_rate_quota", if_exists=True)
    op.drop_table("ing_rate_gate", if_exists=True)
