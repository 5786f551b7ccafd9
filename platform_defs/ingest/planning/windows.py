"""Windows of time: aligned, half-open, in UTC, and always the same for the same Registry rows."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from platform_defs.ingest.errors import PlanError
from platform_defs.ingest.spec.model import WindowSpec

MAX_WINDOWS = 50_000
ALIGNMENTS = {
    "min": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(weeks=1),
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# 1970-01-05 was a Monday: weeks begin on Mondays
_ORIGINS = {"week": datetime(1970, 1, 5, tzinfo=UTC)}


@dataclass(frozen=True, order=True)
class Window:
    """From `start` up to, but not including, `end`."""

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        if self.start >= self.end:
            raise PlanError(f"a window must end after it starts, got {self.start:%F %T} to {self.end:%F %T}")

    @property
    def size(self) -> timedelta:
        return self.end - self.start

    def contains(self, instant: datetime) -> bool:
        return self.start <= instant < self.end

    def __str__(self) -> str:
        return f"[{self.start:%Y-%m-%dT%H:%M:%SZ}, {self.end:%Y-%m-%dT%H:%M:%SZ})"


@dataclass(frozen=True)
class WindowGrid:
    """All windows of an endpoint: number n is [start + n * size, start + (n + 1) * size)."""

    start: datetime
    size: timedelta

    @classmethod
    def of(cls, spec: WindowSpec) -> "WindowGrid":
        return cls(align_down(spec.start, spec.align), spec.size)

    def window(self, number: int) -> Window:
        start = self.start + number * self.size
        return Window(start, start + self.size)

    def window_at(self, instant: datetime) -> Window:
        """The window that contains the instant."""
        return self.window((instant - self.start) // self.size)

    def windows_up_to(self, first: datetime, until: datetime) -> Iterator[Window]:
        """Windows that end at or before `until`, from the one that contains `first`, none before the grid's start."""
        number = max(0, (first - self.start) // self.size)
        last = (until - self.start) // self.size
        return (self.window(each) for each in range(number, last))

    def windows_touching(self, first: datetime, until: datetime) -> Iterator[Window]:
        """Windows that share time with [first, until), none before the grid's start."""
        number = max(0, (first - self.start) // self.size)
        last = -((self.start - until) // self.size)
        return (self.window(each) for each in range(number, last))

    def count_up_to(self, until: datetime) -> int:
        return max(0, (until - self.start) // self.size)

    def key_of(self, window: Window) -> str:
        """The partition key: the day where windows are whole days that begin at midnight, else day and time."""
        return f"{window.start:%Y-%m-%d}" if self.has_day_keys else f"{window.start:%Y-%m-%dT%H:%M}"

    def window_of_key(self, key: str) -> Window:
        """The window of a partition key; raises PlanError if there is none."""
        try:
            instant = datetime.fromisoformat(key).replace(tzinfo=UTC)
        except ValueError:
            raise PlanError(
                f"expected the start of a window such as {self.key_of(self.window(0))}, got {key!r}"
            ) from None
        window = self.window_at(instant)
        if window.start != instant or instant < self.start:
            raise PlanError(f"no window starts at {key}; the windows start at {self.start:%F %T} every {self.size}")
        return window

    @property
    def has_day_keys(self) -> bool:
        day = timedelta(days=1)
        return self.size % day == timedelta(0) and self.start.time() == _EPOCH.time()


def is_partition_size(size: timedelta) -> bool:
    """Whether a cron expression can say when such windows begin: a week, a day, or hours of which a day has a whole
    number."""
    hour, day, week = ALIGNMENTS["hour"], ALIGNMENTS["day"], ALIGNMENTS["week"]
    return size in (day, week) or (size >= hour and not size % hour and not day % size)


def align_down(instant: datetime, align: str) -> datetime:
    """The last multiple of the alignment at or before the instant."""
    origin, step = _ORIGINS.get(align, _EPOCH), ALIGNMENTS[align]
    return origin + (instant - origin) // step * step


def due_windows(spec: WindowSpec, cursor: datetime | None, now: datetime) -> list[Window]:
    """The windows between the watermark and now minus the safety lag; without a cursor from the endpoint's start."""
    grid = WindowGrid.of(spec)
    return list(grid.windows_up_to(grid.start if cursor is None else cursor, now - spec.safety_lag))
