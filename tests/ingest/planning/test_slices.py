"""Slices cover their window once, whatever history suggests, and say everything that makes them what they are."""

import itertools
from dataclasses import replace
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from platform_defs.ingest.codes import Location, Operation, PaginationType
from platform_defs.ingest.planning.slices import (
    Estimate,
    SliceDraft,
    cut_window,
    id_range_of,
    id_slice,
    slice_window,
    smallest_size,
    split_slice,
    time_slice,
    window_of,
)
from platform_defs.ingest.planning.windows import Window, WindowGrid
from platform_defs.ingest.spec.model import RequestParam, Spec
from tests.ingest.specs import paged_spec

SPEC = paged_spec()
DAY = WindowGrid.of(SPEC.window).window(3)


@given(
    st.floats(0, 1e6),
    st.sampled_from([timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)]),
    st.integers(1, 30),
    st.integers(1, 5000),
)
def test_slices_of_a_window_neither_overlap_nor_leave_a_gap(
    per_hour: float, smallest: timedelta, days: int, page_size: int
) -> None:
    window = Window(DAY.start, DAY.start + timedelta(days=days))
    spec = replace(
        SPEC,
        window=replace(SPEC.window, min_size=smallest),
        pagination=replace(SPEC.pagination, page_size=page_size),
    )
    parts = cut_window(spec, window, Estimate(records_per_hour=per_hour))
    assert parts[0].start == window.start
    assert parts[-1].end == window.end
    assert all(before.end == after.start for before, after in itertools.pairwise(parts))
    assert all(part.size >= smallest for part in parts)


def test_history_decides_how_many_slices_a_window_gets() -> None:
    assert len(slice_window(SPEC, DAY, Estimate())) == 1
    assert len(slice_window(SPEC, DAY, Estimate(records_per_hour=1000))) == 12  # 24,000 records, 2,000 a slice
    assert len(slice_window(SPEC, DAY, Estimate(records_per_hour=1e9))) == 24  # no slice is below an hour


def test_a_backfill_fetches_the_newest_slices_first() -> None:
    spec = replace(SPEC, operation=Operation.BACKFILL)
    starts = [window_of(draft.spec).start for draft in slice_window(spec, DAY, Estimate(records_per_hour=1000))]
    assert starts == sorted(starts, reverse=True)


def test_the_same_slice_has_the_same_signature_and_another_budget_changes_nothing() -> None:
    known = time_slice(SPEC, DAY, records=5)
    assert time_slice(SPEC, DAY, records=7, comment="later").signature == known.signature
    assert time_slice(SPEC, Window(DAY.start, DAY.end + timedelta(hours=1))).signature != known.signature
    assert time_slice(replace(SPEC, operation=Operation.BACKFILL), DAY).signature != known.signature
    other_query = replace(SPEC, window=replace(SPEC.window, watermark_key="created"))
    assert time_slice(other_query, DAY).expr_hash != known.expr_hash


def test_a_source_without_a_filter_by_time_is_cut_into_ranges_of_pages() -> None:
    spec = replace(
        SPEC,
        window=replace(SPEC.window, supports_updated_since=False),
        pagination=replace(SPEC.pagination, type=PaginationType.PAGE, page_size=10),
    )
    pages = [draft.spec["bounds"]["page"] for draft in slice_window(spec, DAY, Estimate(pages=450))]
    assert [(page["fromPage"], page["toPage"]) for page in pages] == [(1, 200), (201, 400), (401, None)]


def test_ids_to_fetch_again_make_a_slice_of_their_bucket() -> None:
    spec = replace(SPEC, operation=Operation.UPDATE)
    assert id_slice(spec, 3, ["a", "b"], number=0).spec["bounds"]["id"]["hashBucket"] == 3
    assert id_slice(spec, 3, ["a"], number=0).signature != id_slice(spec, 3, ["b"], number=0).signature


def _leaves(spec: Spec, draft: SliceDraft, depth: int = 40) -> list[SliceDraft]:
    parts = split_slice(spec, draft.spec) if depth else []
    return [leaf for part in parts for leaf in _leaves(spec, part, depth - 1)] if parts else [draft]


@given(st.integers(1, 40), st.integers(1, 24))
def test_splitting_ends_at_the_smallest_window_and_loses_no_time(hours: int, smallest: int) -> None:
    spec = replace(SPEC, window=replace(SPEC.window, min_size=timedelta(hours=smallest)))
    window = Window(DAY.start, DAY.start + timedelta(hours=hours))
    parts = [window_of(leaf.spec) for leaf in _leaves(spec, time_slice(spec, window))]
    assert parts[0].start == window.start
    assert parts[-1].end == window.end
    assert all(before.end == after.start for before, after in itertools.pairwise(parts))
    assert all(part.size < 2 * smallest_size(spec) for part in parts)


def test_a_window_that_cannot_get_smaller_is_split_by_ranges_of_ids() -> None:
    smallest = Window(DAY.start, DAY.start + timedelta(hours=1))
    assert split_slice(SPEC, time_slice(SPEC, smallest).spec) == []
    spec = replace(SPEC, id_range_param=RequestParam("ids", "ids", Location.QUERY), id_range=(1, 8))
    leaves = _leaves(spec, time_slice(spec, smallest))
    assert [id_range_of(leaf.spec) for leaf in leaves] == [(number, number) for number in range(1, 9)]
