"""Drafts a spec from Registry rows: each part is merged from its levels, and what is missing is a finding."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, TypeVar

from sqlalchemy import Table

from platform_defs.ingest.codes import (
    AuthType,
    Location,
    NullPolicy,
    Operation,
    PaginationType,
    RepeatedToken,
)
from platform_defs.ingest.registry.rows import RegistryRows, Row
from platform_defs.ingest.registry.values import UNIT_SECONDS
from platform_defs.ingest.spec.calls import draft_call
from platform_defs.ingest.spec.credentials import choose_credential, secret_is_present
from platform_defs.ingest.spec.merging import (
    PLATFORM_DEFAULT,
    Findings,
    Merged,
    milliseconds,
    origin_of,
    put_overrides,
    seconds,
)
from platform_defs.ingest.spec.model import (
    AuthSpec,
    BatchingSpec,
    ExprSpec,
    OutputField,
    PaginationSpec,
    RateSpec,
    RetrySpec,
    Spec,
    WindowSpec,
)
from platform_defs.store.tables import registry as tables

Code = TypeVar("Code", bound=StrEnum)
# stands for a start that is missing, which is a finding of its own
_NO_START = datetime(2000, 1, 1, tzinfo=UTC)
_WINDOW_DEFAULTS: Mapping[str, Any] = {
    "size": timedelta(days=1),
    "min_size": timedelta(hours=1),
    "max_size": timedelta(days=31),
    "align": "day",
}
_PAGINATION_COLUMNS = {
    "pagination_mode_code": "type",
    "page_size_value": "page_size",
    "max_pages_per_execution": "max_page",
    "initial_cursor_value": "initial_token",
    "next_token_path": "next_token_path",
    "next_url_path": "next_url_path",
    "has_more_path": "has_more_path",
    "total_path": "total_path",
    "base1": "base1",
    "sort_field_value": "order_by",
    "sort_direction_value": "order_direction",
    "result_cap": "result_cap",
    "repeated_token_code": "repeated_token",
    "tail_probe_enabled": "tail_probe",
    "last_page_again_enabled": "last_page_again",
}
_RETRY_COLUMNS = {
    "backoff_policy_type_code": "policy",
    "initial_delay_millis": "initial_delay_ms",
    "max_delay_millis": "max_delay_ms",
    "exp_multiplier_value": "multiplier",
    "jitter_factor_ratio": "jitter_ratio",
    "retry_on_network_error": "retry_on_network_error",
    "circuit_break_threshold": "circuit_threshold",
    "circuit_cooldown_millis": "circuit_cooldown_ms",
}
_RATE_COLUMNS = {
    "refill_rate_per_sec": "refill_per_s",
    "burst_capacity": "burst",
    "warmup_sec": "warmup_s",
    "quota_hourly": "quota_hourly",
    "quota_daily": "quota_daily",
    "max_concurrent_requests": "max_concurrent",
    "demote_rate": "demote_rate",
    "min_rate_per_sec": "min_rate_per_s",
    "header_adaptive_enabled": "header_adaptive",
    "quota_shared_across_endpoints": "shared_across_endpoints",
}


@dataclass(frozen=True)
class Draft:
    """A spec that is not yet checked, with the rows that checks look at."""

    spec: Spec
    merged: Merged
    endpoint: Row
    detail: Row | None
    credential: Row | None
    rows: RegistryRows

    @property
    def code(self) -> str:
        return self.spec.provenance_code

    def scoped(self, table: Table) -> list[Row]:
        return self.rows.scoped(table, self.code, self.spec.endpoint_name, self.spec.operation)


def draft_spec(
    rows: RegistryRows,
    endpoint: Row,
    operation: Operation,
    overrides: Mapping[str, Any] | None,
    findings: Findings,
) -> Draft:
    """The spec of an endpoint and operation; for whatever is missing there is a finding, and a value in its place."""
    code, name = endpoint["provenance_code"], endpoint["endpoint_name"]
    merged = Merged()
    credential = choose_credential(rows, code, name, operation)
    linked = endpoint["linked_endpoint_name"]
    found = [] if linked is None else rows.scoped(tables.reg_prov_endpoint_def, code, linked, operation)
    detail = found[-1] if found else None
    if linked is not None and detail is None:
        findings.add(tables.reg_prov_endpoint_def, "linked_endpoint_name", f"no endpoint is named {linked!r}", name)
    if operation is Operation.UPDATE and linked is None:
        expected = "expected the endpoint by which records are asked for by id"
        findings.add(tables.reg_prov_endpoint_def, "linked_endpoint_name", expected, name)
    search_call = draft_call(rows, endpoint, operation, merged, "search", findings)
    detail_call = None if detail is None else draft_call(rows, detail, operation, merged, "detail", findings)
    _put_pagination(rows, endpoint, operation, merged)
    _put_window(rows, endpoint, operation, merged)
    _put_retry(rows, endpoint, operation, merged)
    _put_rate(rows, endpoint, operation, merged, credential)
    _put_batching(rows, endpoint, operation, merged)
    _put_limits(endpoint, merged)
    put_overrides(merged, overrides, findings)
    spec = Spec(
        provenance_code=code,
        endpoint_name=name,
        operation=operation,
        search=search_call,
        detail=detail_call,
        two_phase=bool(endpoint["two_phase_enabled"]),
        auth=_auth(rows, endpoint, operation, credential),
        pagination=_pagination(merged, findings),
        window=_window(merged, findings),
        retry=RetrySpec(**merged.part("retry", RetrySpec)),
        rate=RateSpec(**merged.part("rate", RateSpec)),
        batching=BatchingSpec(**merged.part("batching", BatchingSpec)),
        expr=_expr(rows, endpoint, operation),
        output_fields=_output_fields(endpoint, detail),
        id_range_param=next((param for param in search_call.params if "idRange." in (param.expr or "")), None),
        id_range=_id_range(endpoint),
        stale_after=merged.get("stale_after"),
        update_buckets=merged.get("update_buckets"),
        max_concurrent_slices=merged.get("max_concurrent_slices"),
        stock_limit=merged.get("stock_limit"),
    )
    return Draft(spec, merged, endpoint, detail, credential, rows)


def as_code(kind: type[Code], value: Any, fallback: Code) -> Code:
    """The code, or a fallback for one that the check of the dictionaries reports."""
    return kind(value) if value in tuple(kind) else fallback


def _put_pagination(rows: RegistryRows, endpoint: Row, operation: Operation, merged: Merged) -> None:
    merged.put_defaults("pagination", PaginationSpec)
    for key in ("has_more_path", "total_path", "next_token_path", "next_url_path"):
        merged.put(f"pagination.{key}", rows.field_paths.get(key), "reg_expr_field_dict")
    of_endpoint = {"has_more_path": "has_more_path", "total_path": "total_path"}
    merged.put_columns("pagination", endpoint, of_endpoint, origin_of(tables.reg_prov_endpoint_def, endpoint))
    table = tables.reg_prov_pagination_cfg
    for row in _scoped(rows, table, endpoint, operation):
        merged.put_columns("pagination", row, _PAGINATION_COLUMNS, origin_of(table, row))
        merged.put("pagination.token_ttl", seconds(row["token_ttl_seconds"]), origin_of(table, row))


def _put_window(rows: RegistryRows, endpoint: Row, operation: Operation, merged: Merged) -> None:
    merged.put_defaults("window", WindowSpec)
    for name, value in _WINDOW_DEFAULTS.items():
        merged.put(f"window.{name}", value, PLATFORM_DEFAULT)
    table = tables.reg_prov_window_offset_cfg
    for row in _scoped(rows, table, endpoint, operation):
        origin = origin_of(table, row)
        found = {
            "start": row["start_at"],
            "size": _size(row["window_size_value"], row["window_size_unit_code"]),
            "min_size": _size(row["min_window_size_value"], row["min_window_size_unit_code"]),
            "max_size": seconds(row["max_window_span_seconds"]),
            "align": row["calendar_align_to"],
            "watermark_key": row["offset_field_key"],
            "safety_lag": seconds(row["watermark_lag_seconds"]),
            "supports_updated_since": row["supports_updated_since"],
            "granularity": milliseconds(row["filter_granularity_millis"]),
            "filter_is_inclusive": row["filter_inclusive"],
        }
        for name, value in found.items():
            merged.put(f"window.{name}", value, origin)


def _put_retry(rows: RegistryRows, endpoint: Row, operation: Operation, merged: Merged) -> None:
    merged.put_defaults("retry", RetrySpec)
    for row in _scoped(rows, tables.reg_prov_http_cfg, endpoint, operation):
        origin = origin_of(tables.reg_prov_http_cfg, row)
        merged.put("retry.retry_after_cap_ms", row["retry_after_cap_millis"], origin)
    table = tables.reg_prov_retry_cfg
    for row in _scoped(rows, table, endpoint, operation):
        origin = origin_of(table, row)
        merged.put_columns("retry", row, _RETRY_COLUMNS, origin)
        retries = row["max_retry_times"]
        merged.put("retry.max_attempts", None if retries is None else retries + 1, origin)
        merged.put("retry.retry_statuses", _as_tuple(row["retry_http_status_json"]), origin)
        merged.put("retry.give_up_statuses", _as_tuple(row["giveup_http_status_json"]), origin)


def _put_rate(rows: RegistryRows, endpoint: Row, operation: Operation, merged: Merged, credential: Row | None) -> None:
    """If the credential's secret is present here, the rate for requests with it takes the place of the general rate."""
    merged.put_defaults("rate", RateSpec)
    table = tables.reg_prov_rate_limit_cfg
    has_secret = credential is not None and secret_is_present(credential["secret_ref"])
    for row in _scoped(rows, table, endpoint, operation):
        origin = origin_of(table, row)
        merged.put_columns("rate", row, _RATE_COLUMNS, origin)
        if has_secret and row["per_credential_qps_limit"] is not None:
            merged.put("rate.refill_per_s", row["per_credential_qps_limit"], origin)
            merged.put("rate.max_concurrent", row["per_credential_max_concurrent"], origin)
            merged.put("rate.per_credential", True, origin)


def _put_batching(rows: RegistryRows, endpoint: Row, operation: Operation, merged: Merged) -> None:
    merged.put_defaults("batching", BatchingSpec)
    table = tables.reg_prov_batching_cfg
    columns = {"detail_fetch_batch_size": "id_batch_size", "ids_join_delimiter": "ids_join"}
    for row in _scoped(rows, table, endpoint, operation):
        merged.put_columns("batching", row, columns, origin_of(table, row))
    window = tables.reg_prov_window_offset_cfg
    for row in _scoped(rows, window, endpoint, operation):
        merged.put("batching.max_ids_per_slice", row["max_ids_per_window"], origin_of(window, row))


def _put_limits(endpoint: Row, merged: Merged) -> None:
    origin = origin_of(tables.reg_prov_endpoint_def, endpoint)
    for name in ("update_buckets", "max_concurrent_slices", "stock_limit"):
        merged.put(name, getattr(Spec, name), PLATFORM_DEFAULT)
        merged.put(name, endpoint[name], origin)
    merged.put("stale_after", seconds(endpoint["stale_after_seconds"]), origin)


def _pagination(merged: Merged, findings: Findings) -> PaginationSpec:
    part = merged.part("pagination", PaginationSpec)
    if "type" not in part:
        findings.add(tables.reg_prov_pagination_cfg, "pagination_mode_code", "expected a type of pagination, got none")
    part["type"] = as_code(PaginationType, part.get("type"), PaginationType.OFFSET)
    part["repeated_token"] = as_code(RepeatedToken, part.get("repeated_token"), RepeatedToken.ENDS)
    return PaginationSpec(**part)


def _window(merged: Merged, findings: Findings) -> WindowSpec:
    part = merged.part("window", WindowSpec)
    if "start" not in part:
        findings.add(tables.reg_prov_window_offset_cfg, "start_at", "expected the day from which on windows begin")
    if "watermark_key" not in part:
        expected = "expected the field by which windows advance, such as updated_at"
        findings.add(tables.reg_prov_window_offset_cfg, "offset_field_key", expected)
    return WindowSpec(**{"start": _NO_START, "watermark_key": "", **part})


def _auth(rows: RegistryRows, endpoint: Row, operation: Operation, credential: Row | None) -> AuthSpec:
    """A credential that the endpoint can do without is used only where its secret is present."""
    required = bool(endpoint["auth_required"])
    if credential is None or not (required or secret_is_present(credential["secret_ref"])):
        return AuthSpec(required=required)
    hooks = [row["signing_hook"] for row in _scoped(rows, tables.reg_prov_http_cfg, endpoint, operation)]
    location = credential["location_code"]
    return AuthSpec(
        type=as_code(AuthType, credential["auth_type_code"], AuthType.NONE),
        location=None if location is None else as_code(Location, location, Location.QUERY),
        field_name=credential["field_name"],
        credential_id=credential["id"],
        credential_alias=credential["credential_alias"],
        signing_hook=next((hook for hook in reversed(hooks) if hook is not None), None),
        required=required,
    )


def _expr(rows: RegistryRows, endpoint: Row, operation: Operation) -> ExprSpec:
    """Null policy and time format are those of the render rule for all fields (`*`)."""
    part: dict[str, Any] = {}
    for row in _scoped(rows, tables.reg_prov_expr_render_rule, endpoint, operation):
        if row["field_key"] == "*":
            part["null_policy"] = as_code(NullPolicy, row["null_policy_code"] or NullPolicy.OMIT, NullPolicy.OMIT)
            part["time_format"] = row["time_format"] or ExprSpec.time_format
    allowed: set[str] = set()
    for row in _scoped(rows, tables.reg_prov_expr_capability, endpoint, operation):
        allowed.update(row["allowed_functions_json"] or ())
    return ExprSpec(allowed_functions=tuple(sorted(allowed)), **part)


def _output_fields(endpoint: Row, detail: Row | None) -> tuple[OutputField, ...]:
    """Where a search lists ids alone, the output fields are those of its detail endpoint."""
    owner = detail if endpoint["two_phase_enabled"] and detail is not None else endpoint
    return tuple(OutputField(each["name"], each["path"]) for each in owner["output_fields_json"] or ())


def _id_range(endpoint: Row) -> tuple[int, int] | None:
    low, high = endpoint["id_range_from"], endpoint["id_range_to"]
    return None if low is None or high is None else (low, high)


def _scoped(rows: RegistryRows, table: Table, endpoint: Row, operation: Operation) -> list[Row]:
    return rows.scoped(table, endpoint["provenance_code"], endpoint["endpoint_name"], operation)


def _size(value: int | None, unit: str | None) -> timedelta | None:
    return None if value is None or unit not in UNIT_SECONDS else timedelta(seconds=value * UNIT_SECONDS[unit])


def _as_tuple(value: Any) -> tuple[Any, ...] | None:
    return None if value is None else tuple(value)
