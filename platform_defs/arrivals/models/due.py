"""When the tables of a batch are due: the grammar of a model's `due`, and its instant for a batch."""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

_DUE = re.compile(r"(?:\+(?P<days>\d{1,3}) )?(?P<hour>[01]\d|2[0-3]):(?P<minute>[0-5]\d)", re.ASCII)
# Batches that follow each other by the calendar, by the length of their opTime: years, months and days.
_FORMATS = {4: "%Y", 6: "%Y%m", 8: "%Y%m%d"}


@dataclass(frozen=True)
class Due:
    """A number of days after the batch's first day, at a time of day in the zone of the deployment."""

    days: int
    at: time

    @classmethod
    def parse(cls, text: str) -> "Due | None":
        """Reads `08:30` or `+1 08:30`; None for any other text."""
        found = _DUE.fullmatch(text)
        if found is None:
            return None
        return cls(int(found["days"] or 0), time(int(found["hour"]), int(found["minute"])))

    @property
    def words(self) -> str:
        """As a person says it: `08:30 on the day after the batch's`."""
        named = {0: "on the batch's own day", 1: "on the day after the batch's"}
        return f"{self.at:%H:%M} " + named.get(self.days, f"{self.days} days after the batch's")

    def instant(self, op_time: str, zone: ZoneInfo) -> datetime | None:
        """When the batch's tables are due; None if the opTime is no date."""
        day = batch_day(op_time)
        if day is None:
            return None
        try:
            return datetime.combine(day + timedelta(days=self.days), self.at, zone).astimezone(UTC)
        except OverflowError:  # many warehouses write 99991231 for "never"
            return None


@lru_cache(maxsize=4096)  # thousands of models have the same batches
def batch_day(op_time: str) -> date | None:
    """The first day of a batch: 2025-12-19 for `20251219`, `2025-12-19` and `2025121908`, 2025-12-01 for `202512`."""
    digits = op_time.replace("-", "")
    for length in sorted(_FORMATS, reverse=True):
        if len(digits) >= length:
            try:
                return datetime.strptime(digits[:length], _FORMATS[length]).replace(tzinfo=UTC).date()
            except ValueError:
                return None
    return None


def last_due_batch(due: Due, digits: int, zone: ZoneInfo, now: datetime) -> str | None:
    """The batch that fell due last, for opTimes with this many digits; None if these are not years, months or days."""
    if digits not in _FORMATS:
        return None
    day = now.astimezone(zone).date() - timedelta(days=due.days)
    op_time = day.strftime(_FORMATS[digits])
    at = due.instant(op_time, zone)
    if at is not None and at > now:
        first = batch_day(op_time) or day
        op_time = (first - timedelta(days=1)).strftime(_FORMATS[digits])
    return op_time
