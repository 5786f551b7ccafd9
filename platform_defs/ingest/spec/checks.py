"""The checks that every spec must pass before anything is planned by it (the nine of 4.17, and those of 3.3.3 to 4.11).

All of them run, so that one failed compilation names everything that is wrong.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta

from platform_defs.ingest.codes import CursorType, Operation, PaginationType
from platform_defs.ingest.planning.windows import ALIGNMENTS, MAX_WINDOWS, WindowGrid, is_partition_size
from platform_defs.ingest.registry.rows import RegistryRows
from platform_defs.ingest.spec.credentials import secret_is_present
from platform_defs.ingest.spec.dictionary_checks import check_codes
from platform_defs.ingest.spec.merging import Findings, strongest
from platform_defs.ingest.spec.parts import Draft
from platform_defs.ingest.spec.security_checks import check_auth, check_http
from platform_defs.ingest.spec.template_checks import check_templates
from platform_defs.store.tables import registry as tables

LONGEST_TIMEOUT_MS = 120_000
MOST_ATTEMPTS = 20
LOWEST_RATE = 0.1
# a bucket is a partition in the UI
MOST_BUCKETS = 1024
_FORWARD = (Operation.HARVEST, Operation.BACKFILL)


def check_spec(draft: Draft, rows: RegistryRows, now: datetime, findings: Findings) -> None:
    """Runs all checks; each adds a finding for whatever is wrong."""
    check_codes(draft, rows, findings)
    check_auth(draft, findings)
    check_http(draft, findings)
    _check_timeouts(draft, findings)
    _check_pagination(draft, findings)
    _check_window(draft, now, findings)
    _check_ordering(draft, findings)
    _check_two_phases(draft, findings)
    _check_response(draft, findings)
    _check_rate(draft, findings)
    _check_retry(draft, findings)
    _check_cursor(draft, findings)
    _check_id_range(draft, findings)
    check_templates(draft, findings)


def degradations(draft: Draft) -> Iterator[str]:
    """What the source cannot do and the platform does without."""
    spec, pagination = draft.spec, draft.spec.pagination
    if pagination.total_path is None:
        yield "no total: sizes are estimated from earlier windows, and a window too large for the source is not noticed"
    names_next = pagination.type in (PaginationType.TOKEN, PaginationType.URL)
    if pagination.has_more_path is None and not names_next:
        yield "no hasMore: a full page is taken to have a next one"
    if not spec.window.supports_updated_since:
        yield "no updatedSince: all pages are read, and records outside the window are dropped here"
    if spec.search is not None and spec.search.response.updated_at_from_window:
        yield "no modification time in the items: a record's time is the start of the window that listed it"
    if draft.credential is not None and not secret_is_present(draft.credential["secret_ref"]):
        needed = "the source must be asked with it" if spec.auth.required else "asked without it, at the general rate"
        yield f"credential {draft.credential['credential_alias']}: its secret is not present here; {needed}"


def _check_timeouts(draft: Draft, findings: Findings) -> None:
    table = tables.reg_prov_http_cfg
    for call in (draft.spec.search, draft.spec.detail):
        if call is None:
            continue
        timeouts = {
            "timeout_connect_millis": call.http.connect_timeout_ms,
            "timeout_read_millis": call.http.read_timeout_ms,
            "timeout_total_millis": call.http.total_timeout_ms,
        }
        for column, value in timeouts.items():
            if not 0 < value <= LONGEST_TIMEOUT_MS:
                findings.add(table, column, f"expected 1 to {LONGEST_TIMEOUT_MS} ms, got {value}")


def _check_pagination(draft: Draft, findings: Findings) -> None:
    table, spec = tables.reg_prov_pagination_cfg, draft.spec.pagination
    if findings.has(table, "pagination_mode_code"):
        return
    if spec.type is PaginationType.TOKEN and spec.next_token_path is None:
        findings.add(table, "next_token_path", "expected a JSONPath, because pages are named by a token")
    if spec.type is PaginationType.URL and spec.next_url_path is None:
        findings.add(table, "next_url_path", "expected a JSONPath, because pages are named by a URL")
    if spec.type not in (PaginationType.TOKEN, PaginationType.URL):
        for column, value in (("next_token_path", spec.next_token_path), ("next_url_path", spec.next_url_path)):
            if value is not None:
                findings.add(table, column, f"expected none with {spec.type} pagination, got {value}")
    elif any(row["offset_param_name"] or row["page_number_param_name"] for row in draft.scoped(table)):
        findings.add(table, "offset_param_name", f"expected no page or offset parameter with {spec.type} pagination")
    if spec.page_size is None and spec.type in (PaginationType.OFFSET, PaginationType.PAGE, PaginationType.TIME):
        findings.add(table, "page_size_value", f"expected the size of a page with {spec.type} pagination")
    for column, number in (("page_size_value", spec.page_size), ("max_pages_per_execution", spec.max_page)):
        if number is not None and number < 1:
            findings.add(table, column, f"expected 1 or more, got {number}")
    limit = strongest(draft.scoped(table), "max_page_size")
    if limit is not None and spec.page_size is not None and spec.page_size > limit["max_page_size"]:
        most = limit["max_page_size"]
        findings.add(table, "page_size_value", f"expected at most the source's {most}, got {spec.page_size}")
    if spec.type is PaginationType.TIME and not (draft.spec.window.supports_updated_since or _has_stable_order(draft)):
        expected = "expected a source that filters by time or sorts stably, because pages are cut by time"
        findings.add(table, "pagination_mode_code", expected)


def _check_window(draft: Draft, now: datetime, findings: Findings) -> None:
    table, spec = tables.reg_prov_window_offset_cfg, draft.spec.window
    if spec.align not in ALIGNMENTS:
        return  # the dictionary of alignments reports it
    step = ALIGNMENTS[spec.align]
    if not is_partition_size(spec.size):
        expected = "expected 1h, 2h, 3h, 4h, 6h, 8h, 12h, 1d or 1w, the sizes that partitions of the UI may have"
        findings.add(table, "window_size_value", f"{expected}, got {spec.size}")
    if spec.size <= timedelta(0) or spec.size % step:
        expected = f"expected a whole multiple of the alignment ({spec.align}), got {spec.size}"
        findings.add(table, "window_size_value", expected)
        return
    if spec.min_size <= timedelta(0):
        findings.add(table, "min_window_size_value", f"expected more than nothing, got {spec.min_size}")
    if spec.min_size > spec.max_size:
        expected = f"expected at least the smallest size {spec.min_size}, got {spec.max_size}"
        findings.add(table, "max_window_span_seconds", expected)
    if spec.min_size > spec.size:
        findings.add(table, "min_window_size_value", f"expected at most the size {spec.size}, got {spec.min_size}")
    if spec.granularity <= timedelta(0) or spec.size % spec.granularity:
        expected = f"expected a part of the window's size {spec.size}, got {spec.granularity}"
        findings.add(table, "filter_granularity_millis", expected)
    if spec.safety_lag < timedelta(0):
        findings.add(table, "watermark_lag_seconds", f"expected 0 or more, got {spec.safety_lag}")
    if findings.has(table, "start_at"):
        return
    if spec.start > now:
        findings.add(table, "start_at", f"expected a time that has passed, got {spec.start:%Y-%m-%d}")
    elif (count := WindowGrid.of(spec).count_up_to(now)) > MAX_WINDOWS:
        expected = f"expected at most {MAX_WINDOWS} windows from the start until now, got {count}"
        findings.add(table, "start_at", f"{expected}; a later start or larger windows make fewer")


def _check_ordering(draft: Draft, findings: Findings) -> None:
    """Without a filter by time a source must sort stably, so that the client can filter (check 3)."""
    spec = draft.spec
    if spec.window.supports_updated_since or spec.operation is Operation.UPDATE:
        return
    if not _has_stable_order(draft):
        expected = "expected a field by which pages are sorted stably, because the source cannot filter by time"
        findings.add(tables.reg_prov_pagination_cfg, "sort_field_value", expected)
    if spec.search is not None and spec.search.response.updated_at_path is None:
        expected = "expected a JSONPath, because records can only be filtered here"
        findings.add(tables.reg_prov_endpoint_def, "updated_at_path", expected, spec.endpoint_name)


def _has_stable_order(draft: Draft) -> bool:
    row = strongest(draft.scoped(tables.reg_prov_pagination_cfg), "sort_stable")
    return draft.spec.pagination.order_by is not None and row is not None and bool(row["sort_stable"])


def _check_two_phases(draft: Draft, findings: Findings) -> None:
    spec, table = draft.spec, tables.reg_prov_endpoint_def
    name = spec.endpoint_name
    if spec.two_phase and draft.endpoint["linked_endpoint_name"] is None:
        findings.add(table, "linked_endpoint_name", "expected the endpoint with the details of the listed ids", name)
    if draft.detail is not None and draft.detail["role"] != "DETAIL":
        expected = f"expected an endpoint of role DETAIL, {draft.detail['endpoint_name']} is {draft.detail['role']}"
        findings.add(table, "linked_endpoint_name", expected, name)
    if draft.endpoint["role"] != "SEARCH" and draft.endpoint["role"] in ("DETAIL", "METRICS"):
        findings.add(table, "role", f"expected SEARCH for {spec.operation}, got {draft.endpoint['role']}", name)
    batching = tables.reg_prov_batching_cfg
    if spec.batching.id_batch_size < 1:
        findings.add(batching, "detail_fetch_batch_size", f"expected 1 or more, got {spec.batching.id_batch_size}")
    if spec.detail is None:
        return
    if spec.two_phase and not any(row["detail_fetch_batch_size"] is not None for row in draft.scoped(batching)):
        expected = "expected how many ids one request for details may have"
        findings.add(batching, "detail_fetch_batch_size", expected)
    limit = strongest(draft.scoped(batching), "max_ids_per_request")
    if limit is not None and spec.batching.id_batch_size > limit["max_ids_per_request"]:
        most, got = limit["max_ids_per_request"], spec.batching.id_batch_size
        findings.add(batching, "detail_fetch_batch_size", f"expected at most the source's {most}, got {got}")
    if not spec.two_phase and spec.search is not None:
        for column in ("id_path", "id_prefix_path", "updated_at_path"):
            ours, theirs = getattr(spec.search.response, column), getattr(spec.detail.response, column)
            if ours != theirs:
                expected = f"expected {ours} as {name} has it, got {theirs}: one record would be read in two ways"
                findings.add(table, column, expected, spec.detail.endpoint_name)


def _check_response(draft: Draft, findings: Findings) -> None:
    """Items, id and time are needed of whatever is stored; a search that lists ids alone needs no time (check 5)."""
    spec, table = draft.spec, tables.reg_prov_endpoint_def
    stored = spec.detail if spec.two_phase else spec.search
    for call in (spec.search, spec.detail):
        if call is None or (call is spec.search and call is not stored):
            continue
        response = call.response
        if response.updated_at_path is None and not response.updated_at_from_window:
            expected = "expected a JSONPath, or updated_at_from_window where the items carry no time"
            findings.add(table, "updated_at_path", expected, call.endpoint_name)
        if response.updated_at_path is not None and response.updated_at_from_window:
            expected = "expected either a path or the window's time, got both"
            findings.add(table, "updated_at_path", expected, call.endpoint_name)
    search = spec.search
    if spec.two_phase and search is not None and spec.detail is not None:
        from_window = spec.detail.response.updated_at_from_window
        if search.response.updated_at_from_window != from_window:
            expected = f"expected {str(from_window).lower()} as {spec.detail.endpoint_name} has it"
            findings.add(table, "updated_at_from_window", expected, search.endpoint_name)


def _check_rate(draft: Draft, findings: Findings) -> None:
    table, rate = tables.reg_prov_rate_limit_cfg, draft.spec.rate
    if rate.refill_per_s <= 0:
        findings.add(table, "refill_rate_per_sec", f"expected more than 0 requests a second, got {rate.refill_per_s:g}")
    limit = strongest(draft.scoped(table), "provider_limit_per_sec")
    if limit is not None and rate.refill_per_s > limit["provider_limit_per_sec"]:
        most = limit["provider_limit_per_sec"]
        column = "per_credential_qps_limit" if rate.per_credential else "refill_rate_per_sec"
        findings.add(table, column, f"expected at most the source's {most:g} a second, got {rate.refill_per_s:g}")
    for column, value, least in (
        ("burst_capacity", rate.burst, 1),
        ("demote_rate", rate.demote_rate, 1),
        ("min_rate_per_sec", rate.min_rate_per_s, LOWEST_RATE),
        ("max_concurrent_requests", rate.max_concurrent, 1),
        ("warmup_sec", rate.warmup_s, 0),
    ):
        if value is not None and value < least:
            findings.add(table, column, f"expected {least:g} or more, got {value:g}")
    if 0 < rate.refill_per_s < rate.min_rate_per_s:
        expected = f"expected at most the rate {rate.refill_per_s:g}, got {rate.min_rate_per_s:g}"
        findings.add(table, "min_rate_per_sec", expected)
    for column, quota in (("quota_hourly", rate.quota_hourly), ("quota_daily", rate.quota_daily)):
        if quota is not None and quota < 1:
            findings.add(table, column, f"expected 1 or more, got {quota}")


def _check_retry(draft: Draft, findings: Findings) -> None:
    table, retry = tables.reg_prov_retry_cfg, draft.spec.retry
    if not 1 <= retry.max_attempts <= MOST_ATTEMPTS:
        findings.add(table, "max_retry_times", f"expected 0 to {MOST_ATTEMPTS - 1}, got {retry.max_attempts - 1}")
    if retry.initial_delay_ms > retry.max_delay_ms:
        expected = f"expected at least the first delay of {retry.initial_delay_ms} ms, got {retry.max_delay_ms}"
        findings.add(table, "max_delay_millis", expected)
    if retry.multiplier < 1:
        findings.add(table, "exp_multiplier_value", f"expected 1 or more, got {retry.multiplier:g}")
    if not 0 <= retry.jitter_ratio <= 1:
        findings.add(table, "jitter_factor_ratio", f"expected 0 to 1, got {retry.jitter_ratio:g}")
    if both := sorted(set(retry.retry_statuses) & set(retry.give_up_statuses)):
        expected = f"expected each status to be retried or given up, got both for {', '.join(map(str, both))}"
        findings.add(table, "giveup_http_status_json", expected)


def _check_cursor(draft: Draft, findings: Findings) -> None:
    """The cursor of the operation's own direction and namespace (check 8): harvest and backfill advance by time."""
    row = strongest(draft.scoped(tables.reg_prov_window_offset_cfg), "offset_type_code")
    if row is None or row["offset_type_code"] not in tuple(CursorType):
        return
    kind, operation = CursorType(row["offset_type_code"]), draft.spec.operation
    allowed = (CursorType.TIME,) if operation in _FORWARD else (CursorType.TIME, CursorType.ID)
    if kind not in allowed:
        expected = f"expected {' or '.join(allowed)} for {operation}, got {kind}"
        findings.add(tables.reg_prov_window_offset_cfg, "offset_type_code", expected)


def _check_id_range(draft: Draft, findings: Findings) -> None:
    spec, table, name = draft.spec, tables.reg_prov_endpoint_def, draft.spec.endpoint_name
    if spec.id_range is not None and spec.id_range[0] > spec.id_range[1]:
        findings.add(table, "id_range_to", f"expected {spec.id_range[0]} or more, got {spec.id_range[1]}", name)
    if (spec.id_range is None) != (spec.id_range_param is None):
        expected = "expected both a range of ids and a parameter that refers to idRange.from and idRange.to, or neither"
        findings.add(table, "id_range_from", expected, name)
    if not 1 <= spec.update_buckets <= MOST_BUCKETS:
        findings.add(table, "update_buckets", f"expected 1 to {MOST_BUCKETS}, got {spec.update_buckets}", name)
