"""Drafts how one endpoint is asked and how its answer is read: address, templates, parameters and paths."""

from collections.abc import Iterator, Mapping, Sequence

from platform_defs.ingest.codes import EndpointRole, Location, Operation
from platform_defs.ingest.registry.rows import RegistryRows, Row
from platform_defs.ingest.spec.merging import Findings, Merged, origin_of
from platform_defs.ingest.spec.model import CallSpec, HttpSpec, RequestParam, ResponseSpec
from platform_defs.store.tables import registry as tables

_HTTP_COLUMNS = {
    "base_url_override": "base_url",
    "timeout_connect_millis": "connect_timeout_ms",
    "timeout_read_millis": "read_timeout_ms",
    "timeout_total_millis": "total_timeout_ms",
    "tls_verify_enabled": "tls_verify",
    "proxy_url_value": "proxy_url",
    "accept_compress_enabled": "compress",
    "redirect_enabled": "redirects",
    "plain_http_allowed": "plain_http_allowed",
}
_ENDPOINT_COLUMNS = {
    "http_method": "method",
    "path_template": "path_template",
    "default_body_payload": "body_template",
    "request_content_type": "content_type",
    "post_above_url_length": "post_above_url_length",
}
_RESPONSE_COLUMNS = {
    "items_path": "items_path",
    "id_path": "id_path",
    "updated_at_path": "updated_at_path",
    "updated_at_from_window": "updated_at_from_window",
    "response_timezone": "timezone",
    "id_case_ignored": "id_ignores_case",
    "id_prefix_path": "id_prefix_path",
}
_RESPONSE_LISTS = {
    "updated_at_formats_json": "updated_at_formats",
    "error_paths_json": "error_paths",
    "required_paths_json": "required_paths",
}
# pagination columns that name a parameter -> its standard key and what is sent in it
_PAGE_PARAMS = {
    "offset_param_name": ("offset", "${page.offset}"),
    "limit_param_name": ("limit", "${page.size}"),
    "page_number_param_name": ("page", "${page.page}"),
    "page_size_param_name": ("page_size", "${page.size}"),
    "cursor_param_name": ("cursor", "${page.token}"),
    "sort_field_param_name": ("sort_by", "${sort.by}"),
    "sort_direction_param_name": ("sort_direction", "${sort.direction}"),
}


def draft_call(
    rows: RegistryRows, endpoint: Row, operation: Operation, merged: Merged, prefix: str, findings: Findings
) -> CallSpec:
    """How an endpoint is asked and its answer read; `prefix` is the path of this part in the spec and in `merged`."""
    code, name = endpoint["provenance_code"], endpoint["endpoint_name"]
    source, origin = rows.sources[code], origin_of(tables.reg_prov_endpoint_def, endpoint)
    http, response = f"{prefix}.http", f"{prefix}.response"
    merged.put_defaults(http, HttpSpec)
    merged.put_defaults(response, ResponseSpec)
    for key in ("items_path", "id_path", "updated_at_path"):
        merged.put(f"{response}.{key}", rows.field_paths.get(key), "reg_expr_field_dict")
    of_source = origin_of(tables.reg_provenance, source)
    merged.put(f"{http}.base_url", source["base_url_default"], of_source)
    merged.put(f"{response}.timezone", source["timezone_default"], of_source)
    merged.put_columns(http, endpoint, _ENDPOINT_COLUMNS, origin)
    merged.put_map(f"{http}.query_template", endpoint["default_query_params"], origin)
    merged.put_columns(response, endpoint, _RESPONSE_COLUMNS, origin)
    for column, field_name in _RESPONSE_LISTS.items():
        value = endpoint[column]
        merged.put(f"{response}.{field_name}", None if value is None else tuple(value), origin)
    table = tables.reg_prov_http_cfg
    for row in rows.scoped(table, code, name, operation):
        merged.put_columns(http, row, _HTTP_COLUMNS, origin_of(table, row))
        merged.put_map(f"{http}.headers_template", row["default_headers_json"], origin_of(table, row))
        merged.put_map(f"{http}.query_template", row["default_query_json"], origin_of(table, row))
    if merged.get(f"{http}.base_url") is None:
        findings.add(tables.reg_provenance, "base_url_default", "expected a base URL such as https://api.example.org")
    for key in ("items_path", "id_path"):
        if merged.get(f"{response}.{key}") is None:
            findings.add(tables.reg_prov_endpoint_def, key, "expected a JSONPath, got none", name)
    params = list(_params(rows, endpoint, operation, merged, prefix, findings))
    _place_path_params(params, merged, http)
    _place_body_params(params, endpoint, merged, http, findings)
    found_response = {"items_path": "$", "id_path": "$", "updated_at_path": None}
    return CallSpec(
        endpoint_name=name,
        role=EndpointRole(endpoint["role"]) if endpoint["role"] in tuple(EndpointRole) else EndpointRole.SEARCH,
        http=HttpSpec(**{"base_url": "", **merged.part(http, HttpSpec)}),
        params=tuple(param for param in params if param.location in (Location.QUERY, Location.HEADER)),
        response=ResponseSpec(**{**found_response, **merged.part(response, ResponseSpec)}),
        permit_cost=endpoint["permit_cost"],
    )


def _params(
    rows: RegistryRows, endpoint: Row, operation: Operation, merged: Merged, prefix: str, findings: Findings
) -> Iterator[RequestParam]:
    """Parameters by their standard key: those that pagination or batching name, and over them the parameter map."""
    code, name = endpoint["provenance_code"], endpoint["endpoint_name"]
    is_detail = endpoint["role"] == EndpointRole.DETAIL
    found: dict[str, RequestParam] = {}
    for std_key, param_name, expr, origin in (
        _ids_param(rows, endpoint, operation) if is_detail else _page_params(rows, endpoint, operation)
    ):
        found[std_key] = RequestParam(std_key, param_name, Location.QUERY, expr=expr)
        merged.origins[f"{prefix}.params.{std_key}"] = origin
    rules = _render_rules(rows, code, name, operation, findings)
    table = tables.reg_prov_api_param_map
    for row in rows.scoped(table, code, name, operation):
        if row["endpoint_name"] is None and is_detail:
            # a source's own parameters are those of its searches: an endpoint that is asked by id has its own
            continue
        location = row["location_code"]
        std_key = row["std_key"]
        found[std_key] = RequestParam(
            std_key=std_key,
            name=row["provider_param_name"],
            location=Location(location) if location in tuple(Location) else Location.QUERY,
            expr=row["expr_template"] if row["expr_template"] is not None else rules.get(std_key),
            default=row["default_value"],
            required=bool(row["is_required"]),
            pattern=row["value_pattern"],
        )
        merged.origins[f"{prefix}.params.{std_key}"] = origin_of(table, row)
    yield from found.values()


def _place_path_params(params: Sequence[RequestParam], merged: Merged, http: str) -> None:
    """Writes a PATH parameter's expression where the path has `${its key}`."""
    path = merged.get(f"{http}.path_template")
    for param in params:
        if param.location is Location.PATH:
            value = param.expr if param.expr is not None else (param.default or "")
            path = path.replace(f"${{{param.std_key}}}", value)
    merged.values[f"{http}.path_template"] = path


def _place_body_params(
    params: Sequence[RequestParam], endpoint: Row, merged: Merged, http: str, findings: Findings
) -> None:
    """Adds BODY parameters to the body, which must then be an object."""
    placed = {
        param.name: param.expr if param.expr is not None else param.default
        for param in params
        if param.location is Location.BODY
    }
    if not placed:
        return
    body = merged.get(f"{http}.body_template")
    if body is None or isinstance(body, dict):
        merged.values[f"{http}.body_template"] = {**(body or {}), **placed}
    else:
        expected = "expected an object, because parameters are placed in it"
        findings.add(tables.reg_prov_endpoint_def, "default_body_payload", expected, endpoint["endpoint_name"])


def _page_params(rows: RegistryRows, endpoint: Row, operation: Operation) -> Iterator[tuple[str, str, str, str]]:
    table = tables.reg_prov_pagination_cfg
    for row in rows.scoped(table, endpoint["provenance_code"], endpoint["endpoint_name"], operation):
        for column, (std_key, expr) in _PAGE_PARAMS.items():
            if row[column] is not None:
                yield std_key, row[column], expr, origin_of(table, row)


def _ids_param(rows: RegistryRows, endpoint: Row, operation: Operation) -> Iterator[tuple[str, str, str, str]]:
    table = tables.reg_prov_batching_cfg
    for row in rows.scoped(table, endpoint["provenance_code"], endpoint["endpoint_name"], operation):
        if row["ids_param_name"] is not None:
            yield "ids", row["ids_param_name"], "${idsText}", origin_of(table, row)


def _render_rules(
    rows: RegistryRows, code: str, name: str, operation: Operation, findings: Findings
) -> Mapping[str, str]:
    """Templates by the standard key whose parameter has no expression of its own."""
    found: dict[str, str] = {}
    table = tables.reg_prov_expr_render_rule
    for row in rows.scoped(table, code, name, operation):
        if row["field_key"] == "*":
            continue
        template = row["template"] if row["item_template"] is None else _list_template(row, findings, name)
        if template is not None:
            found[row["field_key"]] = template
    return found


def _list_template(row: Row, findings: Findings, name: str) -> str | None:
    """One expression over all ids from a template for each: `doi:${item}` joined by `,` is `doi:a,doi:b`."""
    before, item, after = row["item_template"].partition("${item}")
    joiner = f"{after}{row['joiner'] or ','}{before}"
    if not item or "${" in joiner or "'" in joiner:
        expected = "expected ${item} once, with text around it that has no quote and no other expression"
        findings.add(tables.reg_prov_expr_render_rule, "item_template", expected, name)
        return None
    return f"{before}${{join(ids, '{joiner}')}}{after}"
