"""Everything that keeps a spec from being compiled, alone and together."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import Table

from platform_defs.ingest.codes import Operation
from platform_defs.ingest.errors import SpecError
from platform_defs.ingest.registry.rows import RegistryRows
from platform_defs.ingest.spec.compiler import compile_spec
from platform_defs.store.tables import registry as tables
from tests.ingest.registry.making import GOOD, NOW, edited, rows_of

ENDPOINT, HTTP = tables.reg_prov_endpoint_def, tables.reg_prov_http_cfg
PAGES, WINDOW = tables.reg_prov_pagination_cfg, tables.reg_prov_window_offset_cfg
RATE, RETRY = tables.reg_prov_rate_limit_cfg, tables.reg_prov_retry_cfg
CREDENTIAL, BATCHING = tables.reg_prov_credential, tables.reg_prov_batching_cfg
PARAMS, CAPABILITY = tables.reg_prov_api_param_map, tables.reg_prov_expr_capability
SEARCH, DETAIL = {"endpoint_name": "items"}, {"endpoint_name": "item"}
SOURCE = {"endpoint_name": None}


def problems(rows: RegistryRows, operation: Operation = Operation.HARVEST) -> tuple[str, ...]:
    with pytest.raises(SpecError) as refused:
        compile_spec(rows, "demo", "items", operation, now=NOW)
    return refused.value.problems


def test_the_file_of_these_tests_compiles() -> None:
    for operation in Operation:
        compile_spec(rows_of(), "demo", "items", operation, now=NOW)


# check of 4.17 or section -> table, columns, rows, the problem
CASES: list[tuple[Table, dict[str, Any], dict[str, Any], str]] = [
    # 1 and 9: credentials
    (CREDENTIAL, {"secret_ref": None}, {}, "reg_prov_credential.secret_ref: expected a reference to the key"),
    (CREDENTIAL, {"secret_ref": "hunter2"}, {}, "reg_prov_credential.secret_ref: expected env:NAME or file:PATH"),
    (CREDENTIAL, {"field_name": None}, {}, "reg_prov_credential.field_name: expected a name"),
    (CREDENTIAL, {"location_code": "BODY"}, {}, "reg_prov_credential.location_code: expected QUERY or HEADER"),
    (CREDENTIAL, {"auth_type_code": "OAUTH2"}, {}, "reg_prov_credential.token_url: expected the URL"),
    (CREDENTIAL, {"auth_type_code": "CUSTOM"}, {}, "reg_prov_http_cfg.signing_hook: expected the name of a hook"),
    (CREDENTIAL, {"token_url": "http://t.test"}, {}, "reg_prov_credential.token_url: expected an address with https"),
    (HTTP, {"default_headers_json": {"Authorization": "x"}}, {}, "Authorization: expected a credential for it"),
    (HTTP, {"default_query_json": {"api_key": "x"}}, {}, "api_key: expected a credential for it"),
    # 2: pagination
    (PAGES, {"pagination_mode_code": "TOKEN"}, {}, "reg_prov_pagination_cfg.next_token_path: expected a JSONPath"),
    (PAGES, {"pagination_mode_code": "URL"}, {}, "reg_prov_pagination_cfg.next_url_path: expected a JSONPath"),
    (PAGES, {"next_token_path": "$.next"}, {}, "next_token_path: expected none with OFFSET pagination"),
    (
        PAGES,
        {"pagination_mode_code": "TOKEN", "next_token_path": "$.next"},
        {},
        "offset_param_name: expected no page or offset parameter with TOKEN pagination",
    ),
    (PAGES, {"page_size_value": None}, {}, "page_size_value: expected the size of a page"),
    (PAGES, {"page_size_value": 300}, {}, "page_size_value: expected at most the source's 200, got 300"),
    (PAGES, {"max_pages_per_execution": 0}, {}, "max_pages_per_execution: expected 1 or more, got 0"),
    # 3: time and order
    (WINDOW, {"supports_updated_since": False}, {}, "sort_field_value: expected a field by which pages are sorted"),
    (WINDOW, {"window_size_unit_code": "MINUTE"}, {}, "window_size_value: expected 1h, 2h, 3h, "),
    (WINDOW, {"window_size_value": 2}, {}, "partitions of the UI may have, got 2 days, 0:00:00"),
    (WINDOW, {"calendar_align_to": "week"}, {}, "window_size_value: expected a whole multiple of the alignment (week)"),
    (WINDOW, {"min_window_size_unit_code": "WEEK"}, {}, "min_window_size_value: expected at most the size"),
    (WINDOW, {"max_window_span_seconds": 60}, {}, "max_window_span_seconds: expected at least the smallest size"),
    (
        WINDOW,
        {"filter_granularity_millis": 7_000_000},
        {},
        "filter_granularity_millis: expected a part of the window's",
    ),
    (WINDOW, {"watermark_lag_seconds": -1}, {}, "watermark_lag_seconds: expected 0 or more"),
    (WINDOW, {"offset_field_key": None}, {}, "offset_field_key: expected the field by which windows advance"),
    (WINDOW, {"start_at": None}, {}, "start_at: expected the day from which on windows begin"),
    (WINDOW, {"start_at": datetime(2027, 1, 1, tzinfo=UTC)}, {}, "start_at: expected a time that has passed"),
    (WINDOW, {"start_at": datetime(1800, 1, 1, tzinfo=UTC)}, {}, "start_at: expected at most 50000 windows"),
    # 4: two phases
    (ENDPOINT, {"linked_endpoint_name": "gone"}, SEARCH, "linked_endpoint_name (items): no endpoint is named 'gone'"),
    (
        ENDPOINT,
        {"two_phase_enabled": True, "linked_endpoint_name": None},
        SEARCH,
        "linked_endpoint_name (items): expected the endpoint with the details",
    ),
    (ENDPOINT, {"role": "METRICS"}, DETAIL, "expected an endpoint of role DETAIL, item is METRICS"),
    (BATCHING, {"detail_fetch_batch_size": 500}, SOURCE, "detail_fetch_batch_size: expected at most the source's 100"),
    (ENDPOINT, {"id_path": "$.key"}, DETAIL, "id_path (item): expected $.id as items has it, got $.key"),
    # 5: response
    (ENDPOINT, {"items_path": None}, SEARCH, "items_path (items): expected a JSONPath, got none"),
    (ENDPOINT, {"id_path": None}, SEARCH, "id_path (items): expected a JSONPath, got none"),
    (ENDPOINT, {"updated_at_path": None}, SEARCH, "updated_at_path (items): expected a JSONPath, or"),
    (ENDPOINT, {"items_path": "$.["}, SEARCH, "items_path (items)"),
    (ENDPOINT, {"updated_at_formats_json": ["qqqq"]}, SEARCH, "updated_at_formats_json (items)"),
    (ENDPOINT, {"response_timezone": "Mars/Olympus"}, SEARCH, "updated_at_formats_json (items)"),
    # 6: rates and retries
    (RATE, {"refill_rate_per_sec": 11.0}, {}, "refill_rate_per_sec: expected at most the source's 10 a second, got 11"),
    (RATE, {"refill_rate_per_sec": 0.0}, {}, "refill_rate_per_sec: expected more than 0"),
    (RATE, {"burst_capacity": 0}, {}, "burst_capacity: expected 1 or more, got 0"),
    (RATE, {"min_rate_per_sec": 0.01}, {}, "min_rate_per_sec: expected 0.1 or more"),
    (RETRY, {"max_retry_times": 50}, {}, "max_retry_times: expected 0 to 19, got 50"),
    (RETRY, {"max_delay_millis": 10}, {}, "max_delay_millis: expected at least the first delay"),
    (RETRY, {"jitter_factor_ratio": 2.0}, {}, "jitter_factor_ratio: expected 0 to 1, got 2"),
    (RETRY, {"giveup_http_status_json": [500]}, {}, "giveup_http_status_json: expected each status"),
    (HTTP, {"timeout_read_millis": 600_000}, {}, "timeout_read_millis: expected 1 to 120000 ms, got 600000"),
    # 7: dictionaries
    (ENDPOINT, {"http_method": "BREW"}, SEARCH, "http_method (items): expected one of GET, POST, got 'BREW'"),
    (PAGES, {"pagination_mode_code": "SCROLL"}, {}, "pagination_mode_code: expected one of OFFSET, PAGE"),
    (WINDOW, {"calendar_align_to": "moon"}, {}, "calendar_align_to: expected one of day, hour"),
    (PARAMS, {"location_code": "COOKIE"}, {"std_key": "from"}, "location_code (items): expected one of BODY, HEADER"),
    # 8: cursor, direction and namespace
    (WINDOW, {"offset_type_code": "ID"}, {}, "offset_type_code: expected TIME for HARVEST, got ID"),
    # JSON that was written by hand
    (HTTP, {"default_headers_json": ["Accept"]}, {}, "default_headers_json: expected an object of texts"),
    (
        ENDPOINT,
        {"output_fields_json": {"title": "$.t"}},
        SEARCH,
        "output_fields_json (items): expected a list of objects",
    ),
    (RETRY, {"retry_http_status_json": "500"}, {}, "retry_http_status_json: expected a list of HTTP statuses"),
    (CAPABILITY, {"allowed_functions_json": "now"}, {}, "allowed_functions_json: expected a list of texts"),
    (WINDOW, {"window_size_value": 2**31}, {}, "window_size_value: expected a window of less than a hundred years"),
    # addresses and templates
    (HTTP, {"base_url_override": "http://demo.test"}, {}, "base_url_override: expected https, got http://demo.test"),
    (HTTP, {"base_url_override": "https://u:p@demo.test"}, {}, "base_url_override: expected no user and password"),
    (HTTP, {"proxy_url_value": "http://u:p@proxy.test"}, {}, "proxy_url_value: expected an http or https address"),
    (ENDPOINT, {"path_template": "items"}, SEARCH, "path_template (items): expected a path that begins with /"),
    (ENDPOINT, {"default_body_payload": {"a": 1}}, SEARCH, "default_body_payload (items): expected none for GET"),
    (
        PARAMS,
        {"expr_template": "${formatDateTime("},
        {"std_key": "from"},
        "expr_template (items): query parameter from",
    ),
    (PARAMS, {"expr_template": "${now()}"}, {"std_key": "from"}, "only functions that reg_prov_expr_capability allows"),
    (PARAMS, {"expr_template": "${window.begin}"}, {"std_key": "from"}, "expected names among window.from"),
    (PARAMS, {"value_pattern": "["}, {"std_key": "from"}, "value_pattern (items): expected a regular expression"),
    (
        CAPABILITY,
        {"allowed_functions_json": ["formatDateTime", "exec"]},
        {},
        "allowed_functions_json: expected functions",
    ),
    (ENDPOINT, {"id_range_from": 1, "id_range_to": 9}, SEARCH, "id_range_from (items): expected both a range of ids"),
    (ENDPOINT, {"update_buckets": 5000}, SEARCH, "update_buckets (items): expected 1 to 1024, got 5000"),
]


@pytest.mark.parametrize(("table", "columns", "where", "expected"), CASES, ids=[case[3][:60] for case in CASES])
def test_a_row_that_is_wrong_is_named(
    table: Table, columns: dict[str, Any], where: dict[str, Any], expected: str
) -> None:
    found = problems(edited(rows_of(), table, columns, **where))
    assert any(expected in problem for problem in found), found


def test_an_endpoint_that_needs_a_credential_is_not_asked_without_one() -> None:
    content = GOOD.replace("        path: /items\n", "        path: /items\n        auth_required: true\n")
    rows = rows_of(content)
    bare = replace(rows, tables={**rows.tables, CREDENTIAL.name: []})
    assert problems(bare) == (
        "reg_prov_credential.auth_type_code: expected a credential: endpoint items may not be asked anonymously",
    )


def test_plain_http_is_taken_where_it_is_allowed() -> None:
    rows = edited(rows_of(), HTTP, {"base_url_override": "http://demo.test", "plain_http_allowed": True})
    compile_spec(rows, "demo", "items", Operation.HARVEST, now=NOW)


def test_an_update_may_advance_by_id() -> None:
    rows = edited(rows_of(), WINDOW, {"offset_type_code": "ID"})
    compile_spec(rows, "demo", "items", Operation.UPDATE, now=NOW)


def test_a_code_that_is_gone_from_the_dictionary_does_not_compile() -> None:
    rows = rows_of()
    without = {**rows.dictionary, "http_method": frozenset({"POST"})}
    (problem, *_) = problems(replace(rows, dictionary=without))
    assert problem == "reg_prov_endpoint_def.http_method (items): expected one of POST, got 'GET'"


def test_all_nine_checks_fail_together() -> None:
    rows = rows_of()
    for table, columns, where in (
        (ENDPOINT, {"auth_required": True, "two_phase_enabled": True, "items_path": None}, SEARCH),
        (ENDPOINT, {"role": "METRICS"}, DETAIL),
        (PAGES, {"pagination_mode_code": "TOKEN"}, {}),
        (WINDOW, {"supports_updated_since": False, "offset_type_code": "TOKEN"}, {}),
        (RATE, {"refill_rate_per_sec": 99.0}, {}),
        (RETRY, {"backoff_policy_type_code": "never"}, {}),
        (CREDENTIAL, {"auth_type_code": "NONE"}, {}),
        (HTTP, {"default_headers_json": {"Authorization": "Bearer x"}}, {}),
    ):
        rows = edited(rows, table, columns, **where)
    told = "\n".join(problems(rows))
    for expected in (
        "may not be asked anonymously",  # 1
        "reg_prov_pagination_cfg.next_token_path",  # 2
        "reg_prov_pagination_cfg.sort_field_value",  # 3
        "role DETAIL, item is METRICS",  # 4
        "reg_prov_endpoint_def.items_path (items)",  # 5
        "expected at most the source's 10 a second, got 99",  # 6
        "backoff_policy_type_code: expected one of exponential_jitter, got 'never'",  # 7
        "offset_type_code: expected TIME for HARVEST, got TOKEN",  # 8
        "Authorization: expected a credential for it",  # 9
    ):
        assert expected in told, told
