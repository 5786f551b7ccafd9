"""The sections of a Registry file: their fields, and the columns of the reg_* tables in which they are stored."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Boolean, Column, Integer, Table

from platform_defs.ingest.registry import values
from platform_defs.ingest.registry.values import Reader
from platform_defs.store.tables import registry as tables

ALL = "ALL"
# columns that say when a row holds, and not what it says
_BOOKKEEPING = {"id", "effective_from", "effective_to", "created_at", "updated_at", "endpoint_scope"}


@dataclass(frozen=True)
class Section:
    """One kind of rows: its table, its fields in the file, and what tells rows of one scope apart."""

    table: Table
    fields: Mapping[str, Reader]
    required: tuple[str, ...] = ()
    key: tuple[str, ...] = ()

    @property
    def optional(self) -> tuple[str, ...]:
        return tuple(name for name in self.fields if name not in self.required)


SOURCE_FIELDS: Mapping[str, Reader] = {
    "code": values.name_text("provenance_code"),
    "name": values.text("provenance_name", 128),
    "base_url": values.text("base_url_default", 512),
    "timezone": values.text("timezone_default", 64),
    "docs_url": values.text("docs_url", 512),
    "active": values.flag("is_active"),
}

ENDPOINT = Section(
    tables.reg_prov_endpoint_def,
    {
        "name": values.name_text("endpoint_name"),
        "role": values.code("role"),
        "method": values.code("http_method"),
        "path": values.text("path_template", 512),
        "query": values.text_map("default_query_params"),
        "body": values.json_value("default_body_payload"),
        "content_type": values.text("request_content_type", 64),
        "items": values.text("items_path", 255),
        "id": values.text("id_path", 255),
        "id_prefix": values.text("id_prefix_path", 255),
        "id_ignores_case": values.flag("id_case_ignored"),
        "updated_at": values.text("updated_at_path", 255),
        "updated_at_from_window": values.flag("updated_at_from_window"),
        "updated_at_formats": values.texts("updated_at_formats_json"),
        "timezone": values.text("response_timezone", 64),
        "has_more": values.text("has_more_path", 255),
        "total": values.text("total_path", 255),
        "error_paths": values.texts("error_paths_json"),
        "required_paths": values.texts("required_paths_json"),
        "output": values.output_fields("output_fields_json"),
        "two_phase": values.flag("two_phase_enabled"),
        "linked_endpoint": values.name_text("linked_endpoint_name"),
        "permit_cost": values.integer("permit_cost", least=1),
        "auth_required": values.flag("auth_required"),
        "post_above_url_length": values.integer("post_above_url_length", least=1),
        "id_range": values.id_range("id_range_from", "id_range_to"),
        "stale_after": values.duration("stale_after_seconds", "s"),
        "update_buckets": values.integer("update_buckets", least=1),
        "max_concurrent_slices": values.integer("max_concurrent_slices", least=1),
        "stock_limit": values.integer("stock_limit", least=1),
    },
    required=("name", "role", "method", "path"),
    key=("endpoint_name",),
)

# Sections with one row per scope. A scope is a source or one of its endpoints, for all operations or for one.
CONFIGURATIONS: Mapping[str, Section] = {
    "http": Section(
        tables.reg_prov_http_cfg,
        {
            "base_url": values.text("base_url_override", 512),
            "headers": values.text_map("default_headers_json"),
            "query": values.text_map("default_query_json"),
            "connect_timeout": values.duration("timeout_connect_millis", "ms"),
            "read_timeout": values.duration("timeout_read_millis", "ms"),
            "total_timeout": values.duration("timeout_total_millis", "ms"),
            "tls_verify": values.flag("tls_verify_enabled"),
            "proxy_url": values.text("proxy_url_value", 512),
            "compress": values.flag("accept_compress_enabled"),
            "redirects": values.flag("redirect_enabled"),
            "plain_http_allowed": values.flag("plain_http_allowed"),
            "signing_hook": values.name_text("signing_hook"),
            "retry_after_cap": values.duration("retry_after_cap_millis", "ms"),
        },
    ),
    "pagination": Section(
        tables.reg_prov_pagination_cfg,
        {
            "type": values.code("pagination_mode_code"),
            "page_size": values.integer("page_size_value", least=1),
            "max_page_size": values.integer("max_page_size", least=1),
            "max_pages": values.integer("max_pages_per_execution", least=1),
            "page_param": values.text("page_number_param_name", 64),
            "page_size_param": values.text("page_size_param_name", 64),
            "offset_param": values.text("offset_param_name", 64),
            "limit_param": values.text("limit_param_name", 64),
            "cursor_param": values.text("cursor_param_name", 64),
            "initial_cursor": values.text("initial_cursor_value", 255),
            "next_token": values.text("next_token_path", 255),
            "next_url": values.text("next_url_path", 255),
            "has_more": values.text("has_more_path", 255),
            "total": values.text("total_path", 255),
            "base1": values.flag("base1"),
            "sort_param": values.text("sort_field_param_name", 64),
            "sort_by": values.text("sort_field_value", 64),
            "sort_direction_param": values.text("sort_direction_param_name", 64),
            "sort_direction": values.text("sort_direction_value", 16),
            "sort_is_stable": values.flag("sort_stable"),
            "result_cap": values.integer("result_cap", least=1),
            "repeated_token": values.code("repeated_token_code"),
            "tail_probe": values.flag("tail_probe_enabled"),
            "last_page_again": values.flag("last_page_again_enabled"),
            "token_ttl": values.duration("token_ttl_seconds", "s"),
        },
    ),
    "window": Section(
        tables.reg_prov_window_offset_cfg,
        {
            "mode": values.code("window_mode_code"),
            "start": values.instant("start_at"),
            "size": values.size("window_size_value", "window_size_unit_code"),
            "min_size": values.size("min_window_size_value", "min_window_size_unit_code"),
            "max_size": values.duration("max_window_span_seconds", "s"),
            "align": values.code("calendar_align_to"),
            "safety_lag": values.duration("watermark_lag_seconds", "s"),
            "cursor_type": values.code("offset_type_code"),
            "watermark_key": values.text("offset_field_key", 64),
            "max_ids": values.integer("max_ids_per_window", least=1),
            "supports_updated_since": values.flag("supports_updated_since"),
            "filter_granularity": values.duration("filter_granularity_millis", "ms"),
            "filter_is_inclusive": values.flag("filter_inclusive"),
        },
    ),
    "batching": Section(
        tables.reg_prov_batching_cfg,
        {
            "id_batch_size": values.integer("detail_fetch_batch_size", least=1),
            "ids_param": values.text("ids_param_name", 64),
            "ids_join": values.text("ids_join_delimiter", 16),
            "max_ids_per_request": values.integer("max_ids_per_request", least=1),
        },
    ),
    "retry": Section(
        tables.reg_prov_retry_cfg,
        {
            "max_retries": values.integer("max_retry_times"),
            "policy": values.code("backoff_policy_type_code"),
            "initial_delay": values.duration("initial_delay_millis", "ms"),
            "max_delay": values.duration("max_delay_millis", "ms"),
            "multiplier": values.number("exp_multiplier_value"),
            "jitter": values.number("jitter_factor_ratio"),
            "retry_statuses": values.statuses("retry_http_status_json"),
            "give_up_statuses": values.statuses("giveup_http_status_json"),
            "retry_on_network_error": values.flag("retry_on_network_error"),
            "circuit_threshold": values.integer("circuit_break_threshold", least=1),
            "circuit_cooldown": values.duration("circuit_cooldown_millis", "ms"),
        },
    ),
    "rate": Section(
        tables.reg_prov_rate_limit_cfg,
        {
            "per_second": values.number("refill_rate_per_sec"),
            "burst": values.integer("burst_capacity"),
            "warmup": values.duration("warmup_sec", "s"),
            "quota_hourly": values.integer("quota_hourly", least=1),
            "quota_daily": values.integer("quota_daily", least=1),
            "max_concurrent": values.integer("max_concurrent_requests", least=1),
            "per_second_with_credential": values.number("per_credential_qps_limit"),
            "max_concurrent_with_credential": values.integer("per_credential_max_concurrent", least=1),
            "provider_limit_per_second": values.number("provider_limit_per_sec"),
            "demote_rate": values.number("demote_rate"),
            "min_per_second": values.number("min_rate_per_sec"),
            "shared_across_endpoints": values.flag("quota_shared_across_endpoints"),
            "header_adaptive": values.flag("header_adaptive_enabled"),
        },
    ),
}

# Sections with any number of rows per scope, which are told apart by their key.
LISTS: Mapping[str, Section] = {
    "credentials": Section(
        tables.reg_prov_credential,
        {
            "alias": values.name_text("credential_alias"),
            "type": values.code("auth_type_code"),
            "location": values.code("location_code"),
            "field": values.text("field_name", 64),
            "secret": values.secret_reference("secret_ref"),
            "client_id": values.secret_reference("client_id_ref"),
            "token_url": values.text("token_url", 512),
            "scope": values.text("oauth_scope", 255),
            "priority": values.integer("priority"),
        },
        required=("alias", "type"),
        key=("credential_alias",),
    ),
    "params": Section(
        tables.reg_prov_api_param_map,
        {
            "key": values.name_text("std_key"),
            "name": values.text("provider_param_name", 128),
            "location": values.code("location_code"),
            "default": values.text("default_value", 512),
            "required": values.flag("is_required"),
            "expr": values.text("expr_template"),
            "pattern": values.text("value_pattern", 255),
        },
        required=("key", "name"),
        key=("std_key",),
    ),
    "capabilities": Section(
        tables.reg_prov_expr_capability,
        {
            "field": values.text("field_key", 64),
            "functions": values.texts("allowed_functions_json"),
        },
        required=("field",),
        key=("field_key",),
    ),
    "render": Section(
        tables.reg_prov_expr_render_rule,
        {
            "field": values.text("field_key", 64),
            "op": values.code("op_code"),
            "template": values.text("template"),
            "item_template": values.text("item_template"),
            "joiner": values.text("joiner", 32),
            "null_policy": values.code("null_policy_code"),
            "time_format": values.text("time_format", 64),
        },
        required=("field", "op"),
        key=("field_key", "op_code"),
    ),
}

SECTIONS: tuple[Section, ...] = (ENDPOINT, *CONFIGURATIONS.values(), *LISTS.values())
EFFECTIVE_TABLES: tuple[Table, ...] = tuple(section.table for section in SECTIONS)


def field_name(table: str, column: str) -> str:
    """How a file names what a column holds, such as `window.safety_lag`; the column where no field fills it."""
    named = {"": ENDPOINT, **CONFIGURATIONS, **LISTS}
    for prefix, section in named.items():
        for name, reader in section.fields.items():
            if section.table.name == table and column in reader.columns:
                return f"{prefix}.{name}" if prefix else name
    return f"{table}.{column}"


def data_columns(table: Table) -> list[Column[Any]]:
    """The columns whose values a file decides."""
    return [column for column in table.columns if column.name not in _BOOKKEEPING]


def key_columns(table: Table) -> tuple[str, ...]:
    """What tells rows of a table apart that hold at the same time."""
    (section,) = (each for each in SECTIONS if each.table is table)
    return tuple(dict.fromkeys(("provenance_code", "endpoint_name", "operation_type", *section.key)))


def default_value(column: Column[Any]) -> Any:
    """What a column that may not be null has where neither the file nor a broader row says anything."""
    default = column.server_default
    text = str(getattr(default, "arg", "")) if default is not None else None
    if text is None:
        return None
    if isinstance(column.type, Boolean):
        return text == "1"
    return int(text) if isinstance(column.type, Integer) else text
