"""Windows neither overlap nor leave a gap, and the same Registry rows always give the same ones."""

import itertools
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from platform_defs.ingest.cursors.watermark import contiguous_end, contiguous_start
from platform_defs.ingest.errors import PlanError
from platform_defs.ingest.planning.windows import Window, WindowGrid, align_down, due_windows
from tests.ingest.specs import paged_spec

FIRST, LAST = (datetime(year, 1, 1, tzinfo=UTC).replace(tzinfo=None) for year in (2000, 2035))
INSTANTS = st.datetimes(FIRST, LAST, timezones=st.just(UTC))
SIZES = st.sampled_from([timedelta(hours=1), timedelta(hours=6), timedelta(days=1), timedelta(days=7)])
START = datetime(2026, 1, 1, tzinfo=UTC)


@given(INSTANTS, SIZES, INSTANTS, INSTANTS)
def test_windows_follow_each_other_without_gap_or_overlap(
    start: datetime, size: timedelta, first: datetime, until: datetime
) -> None:
    grid = WindowGrid(align_down(start, "hour"), size)
    until = min(until, first + 50 * size)
    windows = list(grid.windows_up_to(first, until))
    assert all(before.end == after.start for before, after in itertools.pairwise(windows))
    if windows:
        assert windows[0].contains(max(first, grid.start))
        assert windows[-1].end <= until < windows[-1].end + size


@given(INSTANTS, SIZES, INSTANTS, st.integers(1, 1000))
def test_windows_that_touch_a_range_cover_it(start: datetime, size: timedelta, first: datetime, minutes: int) -> None:
    grid = WindowGrid(align_down(start, "hour"), size)
    until = first + timedelta(minutes=minutes)
    windows = list(grid.windows_touching(first, until))
    if until <= grid.start:
        assert windows == []
    else:
        assert windows[0].contains(max(first, grid.start))
        assert windows[-1].start < until <= windows[-1].end


@given(SIZES, st.integers(0, 500))
def test_a_partition_key_names_its_window(size: timedelta, number: int) -> None:
    grid = WindowGrid(START, size)
    window = grid.window(number)
    assert grid.window_of_key(grid.key_of(window)) == window


def test_keys_of_days_are_days_and_keys_of_hours_have_the_hour() -> None:
    assert WindowGrid(START, timedelta(days=1)).key_of(WindowGrid(START, timedelta(days=1)).window(1)) == "2026-01-02"
    hourly = WindowGrid(START, timedelta(hours=6))
    assert hourly.key_of(hourly.window(1)) == "2026-01-01T06:00"


@pytest.mark.parametrize("key", ["2026-01-01T05:00", "2025-12-31", "yesterday"])
def test_what_starts_no_window_is_refused(key: str) -> None:
    with pytest.raises(PlanError):
        WindowGrid(START, timedelta(days=1)).window_of_key(key)


def test_without_a_cursor_windows_begin_at_the_endpoints_start_and_end_before_the_safety_lag() -> None:
    spec = replace(paged_spec().window, safety_lag=timedelta(hours=2))
    now = datetime(2026, 1, 4, 1, tzinfo=UTC)
    assert [window.start.day for window in due_windows(spec, None, now)] == [1, 2]
    assert [window.start.day for window in due_windows(spec, datetime(2026, 1, 2, tzinfo=UTC), now)] == [2]
    assert due_windows(spec, datetime(2026, 1, 3, tzinfo=UTC), now) == []


@given(st.lists(st.integers(0, 40), unique=True), st.integers(0, 40))
def test_the_watermark_is_the_end_of_the_contiguous_prefix(numbers: list[int], first: int) -> None:
    grid = WindowGrid(START, timedelta(days=1))
    start = grid.window(first).start
    expected = first
    while expected in numbers:
        expected += 1
    assert contiguous_end(start, [grid.window(number) for number in numbers]) == grid.window(expected).start


@given(st.lists(st.integers(0, 40), unique=True), st.integers(0, 40))
def test_a_backfill_moves_back_over_contiguous_windows(numbers: list[int], last: int) -> None:
    grid = WindowGrid(START, timedelta(days=1))
    end = grid.window(last).end
    expected = last
    while expected in numbers:
        expected -= 1
    assert contiguous_start(end, [grid.window(number) for number in numbers]) == grid.window(expected).end


def test_a_window_must_end_after_it_starts() -> None:
    with pytest.raises(PlanError):
        Window(START, START)
