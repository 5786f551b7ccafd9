"""Which harvest windows should be fetched now: those that are due and new, and after a while those that failed."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from platform_defs.ingest.codes import PlanStatus
from platform_defs.ingest.ledger.windows import WindowState
from platform_defs.ingest.planning.windows import Window, due_windows
from platform_defs.ingest.spec.model import WindowSpec

# A window that ended incomplete is tried again after this time: its source may be back.
TRY_AGAIN_AFTER = timedelta(minutes=15)


def windows_to_request(
    spec: WindowSpec,
    cursor: datetime | None,
    states: Mapping[Window, WindowState],
    now: datetime,
    *,
    most: int,
) -> list[Window]:
    """The first windows that follow each other without a gap, at most `most`, that one run can take."""
    wanted = [window for window in due_windows(spec, cursor, now) if _is_wanted(states.get(window), now)]
    return _first_contiguous(wanted, most)


def _is_wanted(state: WindowState | None, now: datetime) -> bool:
    if state is None:
        return True
    return state.status is not PlanStatus.COMPLETED and state.changed_at < now - TRY_AGAIN_AFTER


def _first_contiguous(windows: Sequence[Window], most: int) -> list[Window]:
    found: list[Window] = []
    for window in windows[:most]:
        if found and window.start != found[-1].end:
            break
        found.append(window)
    return found
