"""Arrivals: exact KPI values, versions of models, and the period of their batches."""

import sqlalchemy as sa
from alembic import op

from platform_defs.errors import StoreError
from platform_defs.store.exact_numbers import decimal_text, exact_number
from platform_defs.store.types import BigId, ExactNumber, Fixed, Instant, Json, Str, utc_now

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

NAMED = 5


def upgrade() -> None:
    # SQLite has no ADD COLUMN IF NOT EXISTS, but there a migration that dies leaves nothing behind
    connection = op.get_bind()
    on_sqlite = connection.dialect.name == "sqlite"
    _refuse_values_that_do_not_fit(connection)
    op.add_column(
        "metrics_model",
        sa.Column("version", sa.Integer(), server_default="1", nullable=False),
        if_not_exists=not on_sqlite,
    )
    op.add_column("metrics_model", sa.Column("period", Str(16), nullable=True), if_not_exists=not on_sqlite)
    if on_sqlite:
        _copy_into_new_table(connection)
    else:
        op.add_column("metrics_kpi_value", sa.Column("model_version", sa.Integer(), nullable=True), if_not_exists=True)
        op.alter_column("metrics_kpi_value", "kpi_value", type_=ExactNumber(), existing_nullable=False)


def _refuse_values_that_do_not_fit(connection: sa.Connection) -> None:
    """Before anything is changed: on MySQL a change of the type would fail only after other changes were made."""
    value = sa.table("metrics_kpi_value", *map(sa.column, ("kpi_id", "op_time", "kpi_value"))).c
    too_wide = sa.func.abs(value.kpi_value) >= sa.literal_column("1e28")
    count = connection.scalar(sa.select(sa.func.count()).where(too_wide)) or 0
    if count == 0:
        return
    query = sa.select(value.kpi_id, value.op_time, value.kpi_value).where(too_wide).limit(NAMED)
    named = [f"{kpi_id} of batch {op_time} ({number:g})" for kpi_id, op_time, number in connection.execute(query)]
    others = f" and {count - NAMED} more" if count > NAMED else ""
    raise StoreError(
        f"{count} KPI values have more than 28 digits before the decimal point: {', '.join(named)}{others}. "
        "Nothing was changed. Delete or correct the rows of metrics_kpi_value with ABS(kpi_value) >= 1e28, "
        "then run `platform db upgrade` again"
    )


def _copy_into_new_table(connection: sa.Connection) -> None:
    """SQLite cannot change the type of a column, and would turn floats into text of 15 digits."""
    driver = connection.connection.driver_connection
    assert driver is not None, "the migration has an open connection"
    driver.create_function("exact_text", 1, lambda number: decimal_text(exact_number(number)), deterministic=True)
    op.create_table(
        "metrics_kpi_value_new",
        sa.Column("id", BigId, autoincrement=True, nullable=False),
        sa.Column("kpi_id", Str(64), nullable=False),
        sa.Column("op_time", Str(255), nullable=False),
        sa.Column("model_id", Str(255), nullable=True),
        sa.Column("dims", Json(), nullable=False),
        sa.Column("dims_hash", Fixed(64), nullable=False),
        sa.Column("kpi_value", ExactNumber(), nullable=False),
        sa.Column("model_version", sa.Integer(), nullable=True),
        sa.Column("created_at", Instant(), server_default=utc_now(), nullable=False),
        sa.Column("updated_at", Instant(), server_default=utc_now(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_metrics_kpi_value")),
        sa.UniqueConstraint("kpi_id", "op_time", "dims_hash", name="uk_kpi_value"),
    )
    op.execute(
        "INSERT INTO metrics_kpi_value_new"
        " (id, kpi_id, op_time, model_id, dims, dims_hash, kpi_value, created_at, updated_at)"
        " SELECT id, kpi_id, op_time, model_id, dims, dims_hash, exact_text(kpi_value), created_at, updated_at"
        " FROM metrics_kpi_value"
    )
    op.drop_table("metrics_kpi_value")
    op.rename_table("metrics_kpi_value_new", "metrics_kpi_value")
    op.create_index("idx_kpi_value_model", "metrics_kpi_value", ["model_id", "op_time"], unique=False)
