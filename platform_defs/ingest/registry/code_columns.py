"""Which columns of the reg_* tables hold codes, and of which system dictionary."""

from sqlalchemy import Table

from platform_defs.store.tables import registry as tables

# table -> column -> type of dictionary
CODE_COLUMNS: dict[Table, dict[str, str]] = {
    tables.reg_prov_endpoint_def: {"http_method": "http_method", "role": "endpoint_role"},
    tables.reg_prov_pagination_cfg: {
        "pagination_mode_code": "pagination_mode",
        "repeated_token_code": "repeated_token",
    },
    tables.reg_prov_window_offset_cfg: {
        "window_mode_code": "window_mode",
        "window_size_unit_code": "window_unit",
        "min_window_size_unit_code": "window_unit",
        "calendar_align_to": "calendar_align",
        "offset_type_code": "ing_cursor_type",
    },
    tables.reg_prov_retry_cfg: {"backoff_policy_type_code": "backoff_policy"},
    tables.reg_prov_credential: {"auth_type_code": "auth_type", "location_code": "param_location"},
    tables.reg_prov_api_param_map: {"location_code": "param_location"},
    tables.reg_prov_expr_render_rule: {"null_policy_code": "null_policy"},
}
