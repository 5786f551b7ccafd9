"""The windows that a person asks for with a begin and an end, either of which may be missing."""

from datetime import datetime, timedelta

from platform_defs.ingest.codes import Operation
from platform_defs.ingest.errors import PlanError
from platform_defs.ingest.planning.windows import Window, WindowGrid, due_windows
from platform_defs.ingest.registry import values
from platform_defs.ingest.spec.model import Spec


def wanted_windows(
    spec: Spec, watermark: datetime | None, start: datetime | None, end: datetime | None, now: datetime
) -> list[Window]:
    """Windows that share time with [start, end). If neither is given, a harvest takes what is due since its watermark.

    Raises PlanError if a time is given and there is no such window: an empty answer would look as if all were done.
    """
    grid, stable = WindowGrid.of(spec.window), now - spec.window.safety_lag
    if start is None and end is None and spec.operation is Operation.HARVEST:
        return due_windows(spec.window, watermark, now)
    first, until = start or grid.start, end or stable
    if start is not None and first >= until:
        raise PlanError(f"expected a begin before the end, got {first:%F %T} and {until:%F %T} UTC")
    touching = grid.windows_touching(first, until)
    found = [window for window in touching if end is not None or window.end <= stable]
    if not found and (start is not None or end is not None):
        asked = f"between {first:%F %T} and {until:%F %T} UTC"
        names = f"{spec.provenance_code}/{spec.endpoint_name}"
        size = f"{grid.size / timedelta(hours=1):g} hours"
        raise PlanError(f"no window of {names} is over {asked}: they begin on {grid.start:%F %T}, each is {size} long")
    return found


def parse_instant(text: str, name: str) -> datetime:
    """A time as people write it, in UTC unless it has a zone; raises PlanError, which begins with the name."""
    try:
        return values.parse_instant(text)
    except ValueError:
        raise PlanError(f"{name}: expected a time such as 2026-11-16 or 2026-11-16T05:00Z, got {text!r}") from None
