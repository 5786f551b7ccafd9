"""Tables of the Registry: sources, their endpoints, the effective-dated configuration and the system dictionaries."""

from typing import Any

from sqlalchemy import BigInteger, Boolean, Column, Computed, Double, Index, Integer, Table, UniqueConstraint

from platform_defs.store.metadata import created_at, id_column, metadata, updated_at
from platform_defs.store.types import Instant, Json, LongText, Str

CODE = Str(64)


def _flag(name: str, *, default: bool) -> Column[bool]:
    return Column(name, Boolean, nullable=False, server_default="1" if default else "0")


def _lifecycle() -> Column[str]:
    return Column("lifecycle_status_code", Str(32), nullable=False, server_default="ACTIVE")


def _effective(name: str, *columns: Column[Any], key: tuple[str, ...] = ()) -> Table:
    """A configuration table in which a change is a new row with the time it takes effect; `key` tells rows apart."""
    short = name.removeprefix("reg_prov_")
    return Table(
        name,
        metadata,
        id_column(),
        Column("provenance_code", CODE, nullable=False),
        Column("endpoint_name", CODE),
        # NULLs are never equal under a unique key: without this column the rows of a whole source could repeat
        Column("endpoint_scope", CODE, Computed("COALESCE(endpoint_name, '')", persisted=True)),
        Column("operation_type", Str(32), nullable=False, server_default="ALL"),
        Column("effective_from", Instant, nullable=False),
        Column("effective_to", Instant),
        _lifecycle(),
        *columns,
        created_at(),
        updated_at(),
        UniqueConstraint(
            "provenance_code", "endpoint_scope", "operation_type", *key, "effective_from", name=f"uk_{short}"
        ),
    )


reg_provenance = Table(
    "reg_provenance",
    metadata,
    id_column(),
    Column("provenance_code", CODE, nullable=False),
    Column("provenance_name", Str(128), nullable=False),
    Column("base_url_default", Str(512)),
    Column("timezone_default", CODE, nullable=False, server_default="UTC"),
    Column("docs_url", Str(512)),
    _flag("is_active", default=True),
    _lifecycle(),
    created_at(),
    updated_at(),
    UniqueConstraint("provenance_code", name="uk_provenance_code"),
)

reg_prov_endpoint_def = Table(
    "reg_prov_endpoint_def",
    metadata,
    id_column(),
    Column("provenance_code", CODE, nullable=False),
    Column("endpoint_name", CODE, nullable=False),
    Column("operation_type", Str(32), nullable=False, server_default="ALL"),
    Column("effective_from", Instant, nullable=False),
    Column("effective_to", Instant),
    _lifecycle(),
    Column("role", Str(32), nullable=False),
    Column("http_method", Str(16), nullable=False),
    Column("path_template", Str(512), nullable=False),
    Column("default_query_params", Json),
    Column("default_body_payload", Json),
    Column("request_content_type", CODE),
    Column("items_path", Str(255)),
    Column("id_path", Str(255)),
    Column("updated_at_path", Str(255)),
    Column("has_more_path", Str(255)),
    Column("total_path", Str(255)),
    _flag("two_phase_enabled", default=False),
    Column("linked_endpoint_name", CODE),
    Column("permit_cost", Integer, nullable=False, server_default="1"),
    _flag("auth_required", default=False),
    Column("id_prefix_path", Str(255)),
    Column("id_case_ignored", Boolean),
    Column("updated_at_from_window", Boolean),
    Column("updated_at_formats_json", Json),
    Column("response_timezone", CODE),
    Column("error_paths_json", Json),
    Column("required_paths_json", Json),
    Column("output_fields_json", Json),
    Column("post_above_url_length", Integer),
    Column("id_range_from", BigInteger),
    Column("id_range_to", BigInteger),
    Column("stale_after_seconds", Integer),
    Column("update_buckets", Integer),
    Column("max_concurrent_slices", Integer),
    Column("stock_limit", Integer),
    created_at(),
    updated_at(),
    UniqueConstraint("provenance_code", "endpoint_name", "operation_type", "effective_from", name="uk_endpoint_def"),
    Index("idx_endpoint_role", "provenance_code", "role"),
)

reg_prov_http_cfg = _effective(
    "reg_prov_http_cfg",
    Column("base_url_override", Str(512)),
    Column("default_headers_json", Json),
    Column("default_query_json", Json),
    Column("timeout_connect_millis", Integer),
    Column("timeout_read_millis", Integer),
    Column("timeout_total_millis", Integer),
    _flag("tls_verify_enabled", default=True),
    Column("proxy_url_value", Str(512)),
    _flag("accept_compress_enabled", default=True),
    _flag("redirect_enabled", default=False),
    _flag("plain_http_allowed", default=False),
    Column("signing_hook", CODE),
    Column("retry_after_policy_code", Str(32)),
    Column("retry_after_cap_millis", Integer),
)

reg_prov_pagination_cfg = _effective(
    "reg_prov_pagination_cfg",
    Column("pagination_mode_code", Str(32), nullable=False),
    Column("page_size_value", Integer),
    Column("max_pages_per_execution", Integer),
    Column("page_number_param_name", CODE),
    Column("page_size_param_name", CODE),
    Column("offset_param_name", CODE),
    Column("limit_param_name", CODE),
    Column("cursor_param_name", CODE),
    Column("initial_cursor_value", Str(255)),
    Column("next_token_path", Str(255)),
    Column("next_url_path", Str(255)),
    Column("has_more_path", Str(255)),
    Column("total_path", Str(255)),
    _flag("base1", default=True),
    Column("sort_field_param_name", CODE),
    Column("sort_field_value", CODE),
    Column("sort_direction_param_name", CODE),
    Column("sort_direction_value", Str(16)),
    Column("sort_stable", Boolean),
    Column("max_page_size", Integer),
    Column("result_cap", Integer),
    Column("repeated_token_code", Str(32)),
    Column("tail_probe_enabled", Boolean),
    Column("last_page_again_enabled", Boolean),
    Column("token_ttl_seconds", Integer),
)

reg_prov_window_offset_cfg = _effective(
    "reg_prov_window_offset_cfg",
    Column("window_mode_code", Str(32), nullable=False),
    Column("window_size_value", Integer),
    Column("window_size_unit_code", Str(32)),
    Column("min_window_size_value", Integer),
    Column("min_window_size_unit_code", Str(32)),
    Column("calendar_align_to", Str(32)),
    Column("lookback_value", Integer),
    Column("lookback_unit_code", Str(32)),
    Column("overlap_value", Integer),
    Column("overlap_unit_code", Str(32)),
    Column("watermark_lag_seconds", Integer),
    Column("offset_type_code", Str(32)),
    Column("offset_field_key", CODE),
    Column("offset_date_format", CODE),
    Column("max_ids_per_window", Integer),
    Column("max_window_span_seconds", Integer),
    _flag("supports_updated_since", default=False),
    Column("start_at", Instant),
    Column("filter_granularity_millis", Integer),
    Column("filter_inclusive", Boolean),
)

reg_prov_batching_cfg = _effective(
    "reg_prov_batching_cfg",
    Column("detail_fetch_batch_size", Integer),
    Column("ids_param_name", CODE),
    Column("ids_join_delimiter", Str(16)),
    Column("max_ids_per_request", Integer),
)

reg_prov_retry_cfg = _effective(
    "reg_prov_retry_cfg",
    Column("max_retry_times", Integer),
    Column("backoff_policy_type_code", Str(32)),
    Column("initial_delay_millis", Integer),
    Column("max_delay_millis", Integer),
    Column("exp_multiplier_value", Double),
    Column("jitter_factor_ratio", Double),
    Column("retry_http_status_json", Json),
    Column("giveup_http_status_json", Json),
    _flag("retry_on_network_error", default=True),
    Column("circuit_break_threshold", Integer),
    Column("circuit_cooldown_millis", Integer),
)

reg_prov_rate_limit_cfg = _effective(
    "reg_prov_rate_limit_cfg",
    Column("refill_rate_per_sec", Double),
    Column("burst_capacity", Integer),
    Column("warmup_sec", Integer),
    Column("quota_hourly", Integer),
    Column("quota_daily", Integer),
    Column("max_concurrent_requests", Integer),
    Column("per_credential_qps_limit", Double),
    Column("demote_rate", Double),
    Column("min_rate_per_sec", Double),
    _flag("quota_shared_across_endpoints", default=False),
    _flag("header_adaptive_enabled", default=True),
    _flag("retry_after_respect", default=True),
    # what the source itself allows: a configured rate above it does not compile
    Column("provider_limit_per_sec", Double),
    Column("per_credential_max_concurrent", Integer),
)

reg_prov_credential = _effective(
    "reg_prov_credential",
    Column("credential_alias", CODE, nullable=False),
    Column("auth_type_code", Str(32), nullable=False),
    Column("location_code", Str(32)),
    Column("field_name", CODE),
    # references such as env:PUBMED_API_KEY or file:PATH, never the secret itself
    Column("secret_ref", Str(512)),
    Column("client_id_ref", Str(512)),
    Column("token_url", Str(512)),
    Column("oauth_scope", Str(255)),
    Column("priority", Integer, nullable=False, server_default="100"),
    key=("credential_alias",),
)

reg_prov_api_param_map = _effective(
    "reg_prov_api_param_map",
    Column("std_key", CODE, nullable=False),
    Column("provider_param_name", Str(128), nullable=False),
    Column("location_code", Str(32), nullable=False),
    Column("default_value", Str(512)),
    _flag("is_required", default=False),
    Column("transform_code", CODE),
    Column("expr_template", LongText),
    Column("value_pattern", Str(255)),
    key=("std_key",),
)

reg_prov_expr_capability = _effective(
    "reg_prov_expr_capability",
    Column("field_key", CODE, nullable=False),
    Column("allowed_ops_json", Json),
    Column("allowed_functions_json", Json),
    Column("limits_json", Json),
    key=("field_key",),
)

reg_prov_expr_render_rule = _effective(
    "reg_prov_expr_render_rule",
    Column("field_key", CODE, nullable=False),
    Column("op_code", Str(32), nullable=False),
    Column("emit_type_code", Str(32)),
    Column("template", LongText),
    Column("item_template", LongText),
    Column("joiner", Str(32)),
    Column("null_policy_code", Str(32)),
    Column("time_format", CODE),
    Column("params_json", Json),
    key=("field_key", "op_code"),
)

reg_expr_field_dict = Table(
    "reg_expr_field_dict",
    metadata,
    id_column(),
    Column("field_key", CODE, nullable=False),
    Column("display_name", Str(128)),
    Column("description", Str(512)),
    Column("data_type_code", Str(32), nullable=False),
    Column("cardinality_code", Str(32)),
    Column("default_path", Str(255)),
    _flag("is_active", default=True),
    created_at(),
    updated_at(),
    UniqueConstraint("field_key", name="uk_expr_field_key"),
)

sys_dict_type = Table(
    "sys_dict_type",
    metadata,
    id_column(),
    Column("type_code", CODE, nullable=False),
    Column("type_name", Str(128), nullable=False),
    Column("description", Str(512)),
    _flag("is_active", default=True),
    created_at(),
    updated_at(),
    UniqueConstraint("type_code", name="uk_dict_type"),
)

sys_dict_item = Table(
    "sys_dict_item",
    metadata,
    id_column(),
    Column("type_code", CODE, nullable=False),
    Column("item_code", CODE, nullable=False),
    Column("item_name", Str(128), nullable=False),
    Column("description", Str(512)),
    Column("display_order", Integer, nullable=False, server_default="100"),
    _flag("is_default", default=False),
    _flag("is_active", default=True),
    created_at(),
    updated_at(),
    UniqueConstraint("type_code", "item_code", name="uk_dict_item"),
)

sys_dict_item_alias = Table(
    "sys_dict_item_alias",
    metadata,
    id_column(),
    Column("type_code", CODE, nullable=False),
    Column("item_code", CODE, nullable=False),
    Column("source_system", CODE, nullable=False),
    Column("external_code", Str(128), nullable=False),
    Column("external_label", Str(255)),
    created_at(),
    updated_at(),
    UniqueConstraint("type_code", "source_system", "external_code", name="uk_dict_alias"),
    Index("idx_dict_alias_item", "type_code", "item_code"),
)
