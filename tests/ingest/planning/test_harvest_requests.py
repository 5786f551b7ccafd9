"""Which windows the planner requests: due ones first, failed ones after a while, also those behind the watermark."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from platform_defs.ingest.codes import PlanStatus
from platform_defs.ingest.ledger.windows import WindowState
from platform_defs.ingest.planning.harvest_requests import TRY_AGAIN_AFTER, windows_to_request
from platform_defs.ingest.planning.windows import Window
from tests.ingest.specs import paged_spec

SPEC = replace(paged_spec().window, safety_lag=timedelta(0))
NOW = datetime(2026, 1, 6, 1, tzinfo=UTC)
LONG_AGO = NOW - TRY_AGAIN_AFTER * 2


def day(number: int) -> Window:
    return Window(datetime(2026, 1, number, tzinfo=UTC), datetime(2026, 1, number + 1, tzinfo=UTC))


def states(**found: tuple[PlanStatus, datetime]) -> dict[Window, WindowState]:
    return {
        day(int(name[1:])): WindowState(day(int(name[1:])), 1, "plan", status, changed_at)
        for name, (status, changed_at) in found.items()
    }


def requested(watermark: int, known: dict[Window, WindowState], most: int = 31) -> list[Window]:
    return windows_to_request(SPEC, day(watermark).start, known, NOW, most=most)


def test_due_windows_are_requested_up_to_the_first_that_another_one_works_on() -> None:
    assert requested(2, {}) == [day(2), day(3), day(4), day(5)]
    assert requested(2, {}, most=2) == [day(2), day(3)]
    assert requested(2, states(d4=(PlanStatus.SLICING, NOW))) == [day(2), day(3)]


def test_a_window_that_failed_is_requested_again_after_a_while_and_keeps_no_later_one_waiting() -> None:
    assert requested(2, states(d2=(PlanStatus.PARTIAL, NOW))) == [day(3), day(4), day(5)]
    assert requested(2, states(d2=(PlanStatus.PARTIAL, LONG_AGO))) == [day(2), day(3), day(4), day(5)]


def test_a_window_behind_the_watermark_that_was_fetched_again_in_vain_is_requested_when_nothing_is_due() -> None:
    known = states(d1=(PlanStatus.COMPLETED, LONG_AGO), d2=(PlanStatus.PARTIAL, LONG_AGO), d3=(PlanStatus.PARTIAL, NOW))
    assert requested(5, known) == [day(5)]
    assert requested(6, known) == [day(2)]
    half = Window(day(2).start, day(2).start + timedelta(hours=12))
    assert requested(6, {half: WindowState(half, 1, "plan", PlanStatus.PARTIAL, LONG_AGO)}) == []


def test_while_a_source_has_trouble_new_windows_wait_twice_as_long() -> None:
    patient = replace(SPEC, safety_lag=timedelta(minutes=40))
    for is_in_trouble, found in ((False, [day(4), day(5)]), (True, [day(4)])):
        assert windows_to_request(patient, day(4).start, {}, NOW, most=31, is_in_trouble=is_in_trouble) == found
