"""Slices: the parts of a plan that are fetched side by side, each described completely enough to be replayed."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from math import ceil
from typing import Any

from platform_defs.canonical import canonical_hash
from platform_defs.ingest.codes import PRIORITIES, Operation, PaginationType, SliceDimension
from platform_defs.ingest.planning.windows import Window
from platform_defs.ingest.spec.model import Spec
from platform_defs.ingest.spec.snapshot import duration_text, expr_proto_hash, instant_of, instant_text

# How many pages a slice should have: enough to be worth its rows, few enough that losing one costs little.
PAGES_PER_SLICE = 20
PAGES_PER_PAGE_SLICE = 200
MAX_SLICES_PER_PLAN = 1000
# What one run of a slice may take before it makes room for others: several times the requests that were expected, or
# the seed's figure where nothing is known. Two phases and repeated pages need more than one request a page.
MAX_DURATION_S = 900
MAX_REQUESTS = 800
BUDGET_FACTOR = 4
# What does not change what a slice fetches has no part in its signature.
_UNSIGNED = ("telemetry", "budget")


@dataclass(frozen=True)
class SliceDraft:
    """A slice before it is stored; `spec` is the seed's slice_spec (8.2.2)."""

    spec: Mapping[str, Any]
    signature: str
    expr_snapshot: Mapping[str, Any]
    expr_hash: str


@dataclass(frozen=True)
class Estimate:
    """What earlier windows of the endpoint suggest; None where nothing is known."""

    records_per_hour: float | None = None
    pages: int | None = None


def slice_window(spec: Spec, window: Window, estimate: Estimate) -> list[SliceDraft]:
    """The slices of a window, in the order in which they should be fetched; a backfill goes from new to old."""
    if spec.window.supports_updated_since or spec.pagination.type not in (PaginationType.PAGE, PaginationType.OFFSET):
        parts = cut_window(spec, window, estimate)
        drafts = [time_slice(spec, part, records=_expected_records(part, estimate)) for part in parts]
        return drafts[::-1] if spec.operation is Operation.BACKFILL else drafts
    return _page_slices(spec, window, estimate)


def cut_window(spec: Spec, window: Window, estimate: Estimate) -> list[Window]:
    """The window in parts of about equal size: as many as the expected pages ask for, none below the smallest size.

    Every part but the last is a whole multiple of the smallest size, so that the source's own filter can tell them
    apart. A window larger than the largest size is cut even where nothing is known of it.
    """
    step = smallest_size(spec)
    wanted = ceil(window.size / spec.window.max_size)
    records = _expected_records(window, estimate)
    if records is not None and spec.pagination.page_size:
        target = spec.pagination.page_size * PAGES_PER_SLICE
        if spec.pagination.result_cap is not None:
            target = min(target, spec.pagination.result_cap)
        wanted = max(wanted, ceil(records / target))
    steps = max(1, window.size // step)
    pieces = max(1, min(wanted, steps, MAX_SLICES_PER_PLAN))
    bounds = [window.start + steps * number // pieces * step for number in range(pieces)] + [window.end]
    return [Window(start, end) for start, end in itertools.pairwise(bounds)]


def smallest_size(spec: Spec) -> timedelta:
    """No slice of time is smaller: neither than the Registry allows nor than the source's filter can tell apart."""
    return max(spec.window.min_size, spec.window.granularity)


def time_slice(
    spec: Spec,
    window: Window,
    *,
    id_range: tuple[int, int] | None = None,
    records: int | None = None,
    comment: str = "",
) -> SliceDraft:
    """A slice of time; where time cannot be cut any further, of a range of ids within it (both ends included)."""
    bounds: dict[str, Any] = {"time": {"from": instant_text(window.start), "to": instant_text(window.end)}}
    if id_range is not None:
        bounds["id"] = {"from": id_range[0], "to": id_range[1]}
    return _draft(spec, SliceDimension.TIME, bounds, records=records, comment=comment)


def id_slice(spec: Spec, bucket: int, ids: Sequence[str], *, number: int, comment: str = "") -> SliceDraft:
    """A slice of records to fetch again by their ids; `number` tells slices of one bucket apart."""
    bounds = {"id": {"hashBucket": bucket, "number": number, "ids": list(ids)}}
    return _draft(spec, SliceDimension.ID, bounds, records=len(ids), comment=comment)


def page_slice(spec: Spec, window: Window, first: int, last: int | None, *, comment: str = "") -> SliceDraft:
    """A range of pages of a source that cannot filter by time, both ends included; None is whatever comes."""
    time = {"from": instant_text(window.start), "to": instant_text(window.end)}
    page = {"fromPage": first, "toPage": last, "pageSize": spec.pagination.page_size, "base1": spec.pagination.base1}
    return _draft(spec, SliceDimension.PAGE, {"time": time, "page": page}, first_page=first, comment=comment)


def split_slice(
    spec: Spec,
    slice_spec: Mapping[str, Any],
    *,
    comment: str = "split: the source has more records here than it lets one query page through",
) -> list[SliceDraft]:
    """Two halves of a slice that holds too much: of its time, then of its ids; empty where it cannot be split."""
    bounds = slice_spec["bounds"]
    if slice_spec["dimension"] != SliceDimension.TIME:
        return []
    window = window_of(slice_spec)
    steps = window.size // smallest_size(spec)
    if steps >= 2 and "id" not in bounds:
        middle = window.start + steps // 2 * smallest_size(spec)
        halves = [Window(window.start, middle), Window(middle, window.end)]
        return [time_slice(spec, half, comment=comment) for half in halves]
    if spec.id_range_param is None or spec.id_range is None:
        return []
    low, high = id_range_of(slice_spec) or spec.id_range
    if low >= high:
        return []
    cut = (low + high) // 2
    return [time_slice(spec, window, id_range=each, comment=comment) for each in ((low, cut), (cut + 1, high))]


def window_of(slice_spec: Mapping[str, Any]) -> Window:
    time = slice_spec["bounds"]["time"]
    return Window(instant_of(time["from"]), instant_of(time["to"]))


def id_range_of(slice_spec: Mapping[str, Any]) -> tuple[int, int] | None:
    bounds = slice_spec["bounds"].get("id")
    return None if bounds is None or "from" not in bounds else (bounds["from"], bounds["to"])


def ids_of(slice_spec: Mapping[str, Any]) -> list[str]:
    return list(slice_spec["bounds"].get("id", {}).get("ids", ()))


def _page_slices(spec: Spec, window: Window, estimate: Estimate) -> list[SliceDraft]:
    """Ranges of pages, for a source that cannot filter by time; the last range has no end, since pages may be added."""
    first = 1 if spec.pagination.base1 else 0
    known = max(1, estimate.pages or 1)
    starts = list(range(first, first + known, PAGES_PER_PAGE_SLICE))[:MAX_SLICES_PER_PLAN]
    ends: list[int | None] = [*(start - 1 for start in starts[1:]), None]
    return [page_slice(spec, window, start, end) for start, end in zip(starts, ends, strict=True)]


def _draft(
    spec: Spec,
    dimension: SliceDimension,
    bounds: Mapping[str, Any],
    *,
    first_page: int | None = None,
    records: int | None = None,
    comment: str = "",
) -> SliceDraft:
    size = spec.pagination.page_size or 0
    page = (1 if spec.pagination.base1 else 0) if first_page is None else first_page
    skipped = page - (1 if spec.pagination.base1 else 0)
    initial = {"offset": skipped * size, "page": page, "token": spec.pagination.initial_token, "url": None}
    slice_spec = {
        "dimension": dimension,
        "bounds": dict(bounds),
        "phase": {
            "twoPhase": spec.two_phase or dimension is SliceDimension.ID,
            "idBatchSize": spec.batching.id_batch_size,
        },
        "pagination": {"type": spec.pagination.type, "initial": initial},
        "window": {"safetyLag": duration_text(spec.window.safety_lag), "watermarkKey": spec.window.watermark_key},
        "budget": {
            "maxRequests": _most_requests(spec, dimension, records),
            "maxDurationSec": MAX_DURATION_S,
            "priority": PRIORITIES[spec.operation],
        },
        "telemetry": {"totalEstimated": records, "comment": comment},
    }
    snapshot = {"protoHash": expr_proto_hash(spec), "bounds": dict(bounds), "initial": initial}
    expr_hash = canonical_hash(snapshot)
    signed = {name: value for name, value in slice_spec.items() if name not in _UNSIGNED}
    identity = [spec.provenance_code, spec.endpoint_name, spec.operation, expr_hash, signed]
    return SliceDraft(slice_spec, canonical_hash(identity), snapshot, expr_hash)


def _most_requests(spec: Spec, dimension: SliceDimension, records: int | None) -> int:
    """Far above what is expected, and never below a slice of the usual size: an estimate may be wrong."""
    by_ids = dimension is SliceDimension.ID
    size = spec.batching.id_batch_size if by_ids else spec.pagination.page_size
    if records is None or not size:
        return MAX_REQUESTS
    of_page = 1 + (ceil(size / spec.batching.id_batch_size) if spec.two_phase and not by_ids else 0)
    return BUDGET_FACTOR * of_page * max(PAGES_PER_SLICE, ceil(records / size) + 1)


def _expected_records(window: Window, estimate: Estimate) -> int | None:
    if estimate.records_per_hour is None:
        return None
    return ceil(estimate.records_per_hour * (window.size / timedelta(hours=1)))
