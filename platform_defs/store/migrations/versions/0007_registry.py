"""Registry: columns for what the spec compiler needs to know of a source."""

from typing import Any

import sqlalchemy as sa
from alembic import op

from platform_defs.store.types import Instant, Json, Str

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

NEW_COLUMNS: dict[str, list[sa.Column[Any]]] = {
    "reg_prov_endpoint_def": [
        sa.Column("id_prefix_path", Str(255), nullable=True),
        sa.Column("id_case_ignored", sa.Boolean(), nullable=True),
        sa.Column("updated_at_from_window", sa.Boolean(), nullable=True),
        sa.Column("updated_at_formats_json", Json(), nullable=True),
        sa.Column("response_timezone", Str(64), nullable=True),
        sa.Column("error_paths_json", Json(), nullable=True),
        sa.Column("required_paths_json", Json(), nullable=True),
        sa.Column("output_fields_json", Json(), nullable=True),
        sa.Column("post_above_url_length", sa.Integer(), nullable=True),
        sa.Column("id_range_from", sa.BigInteger(), nullable=True),
        sa.Column("id_range_to", sa.BigInteger(), nullable=True),
        sa.Column("stale_after_seconds", sa.Integer(), nullable=True),
        sa.Column("update_buckets", sa.Integer(), nullable=True),
        sa.Column("max_concurrent_slices", sa.Integer(), nullable=True),
        sa.Column("stock_limit", sa.Integer(), nullable=True),
    ],
    "reg_prov_pagination_cfg": [
        sa.Column("sort_stable", sa.Boolean(), nullable=True),
        sa.Column("max_page_size", sa.Integer(), nullable=True),
        sa.Column("result_cap", sa.Integer(), nullable=True),
        sa.Column("repeated_token_code", Str(32), nullable=True),
        sa.Column("tail_probe_enabled", sa.Boolean(), nullable=True),
        sa.Column("last_page_again_enabled", sa.Boolean(), nullable=True),
        sa.Column("token_ttl_seconds", sa.Integer(), nullable=True),
    ],
    "reg_prov_window_offset_cfg": [
        sa.Column("start_at", Instant(), nullable=True),
        sa.Column("filter_granularity_millis", sa.Integer(), nullable=True),
        sa.Column("filter_inclusive", sa.Boolean(), nullable=True),
    ],
    "reg_prov_rate_limit_cfg": [
        sa.Column("provider_limit_per_sec", sa.Double(), nullable=True),
        sa.Column("per_credential_max_concurrent", sa.Integer(), nullable=True),
    ],
    "reg_prov_api_param_map": [
        sa.Column("value_pattern", Str(255), nullable=True),
    ],
}


def upgrade() -> None:
    # SQLite has no ADD COLUMN IF NOT EXISTS, but there a migration that dies leaves nothing behind
    resumable = op.get_bind().dialect.name != "sqlite"
    for table, columns in NEW_COLUMNS.items():
        for column in columns:
            op.add_column(table, column, if_not_exists=resumable)
