"""Checks cron expressions of five fields, as people write them in triggers; Dagster computes the times themselves."""

import re
from calendar import monthrange

_NAME = re.compile(r"[A-Za-z]{3}")
_PART = re.compile(r"(?:(\*)|([0-9A-Za-z]+)(?:-([0-9A-Za-z]+))?)(?:/([0-9]+))?")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
# a leap year: the 29th of February comes now and then
_LEAP_YEAR = 2024


def cron_problem(cron: str) -> str | None:
    """What is wrong with a cron expression; None if it is good."""
    fields = cron.split()
    if len(fields) != 5:
        return f"expected five fields (minute hour day month weekday), got {len(fields)}"
    limits = (("minute", 0, 59, ()), ("hour", 0, 23, ()), ("day", 1, 31, ()), ("month", 1, 12, _MONTHS))
    found: dict[str, set[int]] = {}
    for text, (name, low, high, names) in zip(fields, (*limits, ("weekday", 0, 7, _DAYS)), strict=True):
        try:
            found[name] = _values(text, low, high, names)
        except ValueError as error:
            return f"{name}: {error}"
    never = not any(day <= monthrange(_LEAP_YEAR, month)[1] for month in found["month"] for day in found["day"])
    return "these days and months never come together" if never and fields[4] == "*" else None


def _values(text: str, low: int, high: int, names: tuple[str, ...]) -> set[int]:
    values: set[int] = set()
    for part in text.split(","):
        match = _PART.fullmatch(part)
        if match is None:
            raise ValueError(f"expected *, a number, a range such as 1-5 or a step such as */15, got {part!r}")
        every, first, last, step = match.groups()
        begin = low if every else _number(first, low, high, names)
        end = high if every or (step and last is None) else begin if last is None else _number(last, low, high, names)
        if begin > end:
            raise ValueError(f"expected a range that begins with the smaller number, got {part!r}")
        if step is not None and int(step) < 1:
            raise ValueError(f"expected a step of at least 1, got {part!r}")
        values.update(range(begin, end + 1, int(step or 1)))
    return values


def _number(text: str, low: int, high: int, names: tuple[str, ...]) -> int:
    if _NAME.fullmatch(text) and text.lower() in names:
        return names.index(text.lower()) + low
    if not text.isdecimal() or not low <= int(text) <= high:
        allowed = f" or one of {', '.join(names)}" if names else ""
        raise ValueError(f"expected a number from {low} to {high}{allowed}, got {text!r}")
    return int(text)
