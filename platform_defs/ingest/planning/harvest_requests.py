"""Which harvest windows should be fetched now: those that are due and new, and after a while those that failed."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from platform_defs.ingest.codes import PlanStatus
from platform_defs.ingest.ledger.windows import WindowState
from platform_defs.ingest.planning.windows import Window, WindowGrid, due_windows
from platform_defs.ingest.spec.model import WindowSpec

# A window that ended incomplete is tried again after this time: its source may be back.
TRY_AGAIN_AFTER = timedelta(minutes=15)
# While a source has trouble (the seed's 5.7) it may also list its records late: new windows wait twice as long.
LAG_IN_TROUBLE = 2


def windows_to_request(
    spec: WindowSpec,
    cursor: datetime | None,
    states: Mapping[Window, WindowState],
    now: datetime,
    *,
    most: int,
    is_in_trouble: bool = False,
) -> list[Window]:
    """The windows that one run should fetch: the first ones that are due, without a gap, at most `most`.

    If none is due, windows before the watermark that somebody fetched again and that did not become complete. While the
    source `is_in_trouble`, new windows are due later.
    """
    patient = replace(spec, safety_lag=LAG_IN_TROUBLE * spec.safety_lag) if is_in_trouble else spec
    due = [window for window in due_windows(patient, cursor, now) if _is_wanted(states.get(window), now)]
    return _first_contiguous(due or _to_fetch_again(spec, cursor, states, now), most)


def _to_fetch_again(
    spec: WindowSpec, cursor: datetime | None, states: Mapping[Window, WindowState], now: datetime
) -> list[Window]:
    grid = WindowGrid.of(spec)
    wanted = [window for window, state in states.items() if _is_wanted(state, now)]
    before = [window for window in wanted if cursor is not None and grid.start <= window.start and window.end <= cursor]
    # windows of another size, from before the Registry was changed, are no partitions any more
    return sorted((each for each in before if grid.window_at(each.start) == each), key=lambda each: each.start)


def _is_wanted(state: WindowState | None, now: datetime) -> bool:
    if state is None:
        return True
    if state.status is PlanStatus.CANCELLED:
        return False  # until somebody materialises it
    return state.status is not PlanStatus.COMPLETED and state.changed_at < now - TRY_AGAIN_AFTER


def _first_contiguous(windows: Sequence[Window], most: int) -> list[Window]:
    found: list[Window] = []
    for window in windows[:most]:
        if found and window.start != found[-1].end:
            break
        found.append(window)
    return found
