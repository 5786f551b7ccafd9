"""When a run ends before its slice is done, and what becomes of the rest of the slice. Pure decisions.

A slice has a budget (the seed's 8.2.2): requests and seconds that one run may take. And it may turn out to be too large
for its source (8.4): pages that are much larger than was asked for, or too many complaints about the rate.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from platform_defs.ingest.codes import PaginationType, SliceDimension
from platform_defs.ingest.fetching.pages import PagePosition
from platform_defs.ingest.planning.slices import (
    PAGES_PER_PAGE_SLICE,
    SliceDraft,
    id_range_of,
    id_slice,
    ids_of,
    page_slice,
    smallest_size,
    split_slice,
    time_slice,
    window_of,
)
from platform_defs.ingest.planning.windows import Window
from platform_defs.ingest.spec.model import Spec

# The seed's thresholds (8.4).
LARGE_PAGE_BYTES = 5 * 1024 * 1024
LARGE_PAGE_FACTOR = 2
MOST_429_SHARE = 0.05
# Of fewer requests no share is taken: the first complaint would be all of them.
FEWEST_REQUESTS = 20
# A slice of which more than this is fetched goes on: to fetch that again would cost more than smaller slices save.
MOST_FETCHED_SHARE = 0.25


@dataclass(frozen=True)
class RunUse:
    """What a run has used of its source up to now."""

    # also those that had to be repeated
    requests: int
    count_429: int
    time: timedelta


@dataclass(frozen=True)
class PageSize:
    """How large the last page was, and how large the source was asked to make it."""

    items: int
    size_in_bytes: int
    asked_for: int | None


@dataclass(frozen=True)
class Reslicing:
    """Why a slice is to be cut; `may_fetch_again` allows to fetch again what the run has fetched of it."""

    reason: str
    may_fetch_again: bool


def used_up(budget: Mapping[str, Any], use: RunUse, *, times: int) -> str | None:
    """Which part of its budget a run has used up; None while it may go on.

    A slice that was begun again from its start has its budget several `times`: else a source that forgets its place
    between two runs would never be read to its end.
    """
    requests, seconds = budget.get("maxRequests"), budget.get("maxDurationSec")
    if requests is not None and use.requests >= requests * times:
        return f"the run has made {use.requests} requests, and its budget is {requests * times}"
    if seconds is not None and use.time >= timedelta(seconds=seconds * times):
        return f"the run has taken {use.time.total_seconds():.0f} s, and its budget is {seconds * times} s"
    return None


def reslicing_for(page: PageSize, use: RunUse, over_budget: str | None) -> Reslicing | None:
    """Whether the rest of a slice should become several smaller ones; asked while there is a next page."""
    if page.asked_for is not None and page.items > LARGE_PAGE_FACTOR * page.asked_for:
        return Reslicing(f"a page has {page.items} items, and {page.asked_for} were asked for", True)
    # a full page with others behind it is as large in a smaller window
    is_full = page.asked_for is not None and page.items >= page.asked_for
    if page.size_in_bytes > LARGE_PAGE_BYTES and not is_full:
        return Reslicing(f"a page has {page.size_in_bytes:,} bytes", True)
    if over_budget is not None:
        return Reslicing(over_budget, True)
    if use.requests >= FEWEST_REQUESTS and use.count_429 > MOST_429_SHARE * use.requests:
        # more requests would make it worse: only what was not fetched yet is cut
        return Reslicing(f"the source answered 429 to {use.count_429} of {use.requests} requests", False)
    return None


def rest_in_parts(
    spec: Spec, slice_spec: Mapping[str, Any], following: PagePosition, why: Reslicing, fetched_share: float | None
) -> list[SliceDraft]:
    """The rest of a slice, from the page `following` on, as two slices; empty where it should go on as it is.

    A list of ids, a range of pages and pages by time can be cut exactly there. Any other list of pages has no known
    order: both halves of its whole window are fetched, unless most of it is there already. `fetched_share` is None
    where the source does not count its items.
    """
    comment = f"cut: {why.reason}"
    if slice_spec["dimension"] == SliceDimension.ID:
        return _rest_of_ids(spec, slice_spec, following, comment)
    if slice_spec["dimension"] == SliceDimension.PAGE:
        return _rest_of_pages(spec, slice_spec, following, comment)
    if spec.pagination.type is PaginationType.TIME:
        return _rest_of_time(spec, slice_spec, following, comment)
    is_worth_it = fetched_share < MOST_FETCHED_SHARE if fetched_share is not None else following.number == 2
    return split_slice(spec, slice_spec, comment=comment) if why.may_fetch_again and is_worth_it else []


def _rest_of_ids(spec: Spec, slice_spec: Mapping[str, Any], following: PagePosition, comment: str) -> list[SliceDraft]:
    size, bounds = spec.batching.id_batch_size, slice_spec["bounds"]["id"]
    left = ids_of(slice_spec)[(following.number - 1) * size :]
    middle = (len(left) // size + 1) // 2 * size
    if not 0 < middle < len(left):
        return []
    return [
        id_slice(spec, bounds["hashBucket"], part, number=bounds["number"], comment=comment)
        for part in (left[:middle], left[middle:])
    ]


def _rest_of_pages(
    spec: Spec, slice_spec: Mapping[str, Any], following: PagePosition, comment: str
) -> list[SliceDraft]:
    first, last = following.page, slice_spec["bounds"]["page"]["toPage"]
    middle = first + PAGES_PER_PAGE_SLICE // 2 if last is None else (first + last + 1) // 2
    if spec.pagination.page_size is None or (last is not None and first >= last):
        return []
    window = window_of(slice_spec)
    parts = ((first, middle - 1), (middle, last))
    return [page_slice(spec, window, start, end, comment=comment) for start, end in parts]


def _rest_of_time(spec: Spec, slice_spec: Mapping[str, Any], following: PagePosition, comment: str) -> list[SliceDraft]:
    window, step, id_range = window_of(slice_spec), smallest_size(spec), id_range_of(slice_spec)
    rest = following.time_from or window.start
    # on the grid of the slice's own start, whose points the source's filter can tell apart
    first, behind = (rest - window.start) // step + 1, -((window.start - window.end) // step)
    if first >= behind:
        return []
    middle = window.start + (first + behind) // 2 * step
    parts = (Window(rest, middle), Window(middle, window.end))
    return [time_slice(spec, part, id_range=id_range, comment=comment) for part in parts]
