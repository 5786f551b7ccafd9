"""Reads the times that real sources send: always an instant in UTC, to the microsecond, or UnreadableTime."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from decimal import Decimal, InvalidOperation
from zoneinfo import ZoneInfo

from platform_defs.expressions.date_patterns import compile_pattern, month_number, parse_iso
from platform_defs.expressions.errors import InvalidField, UnreadableTime

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
# MySQL's DATETIME begins here; an earlier time would be refused by one store and kept by another
_EARLIEST_YEAR = 1000
_SECONDS, _MILLIS = Decimal(1_000_000), Decimal(1_000)
# A number nearer to 0 than this is rather a year or a count than an epoch.
_SMALLEST_EPOCH = Decimal(10**8)
# Epoch seconds from 1900 to 2286; other numbers are milliseconds, which Crossref also sends for 1971 and for 1969.
_EARLIEST_SECOND, _LATEST_SECOND = Decimal(-2_208_988_800), Decimal(10**10 - 1)

# Twelve digits are left out: milliseconds of the years to 2001, or yyyyMMddHHmm. A configured format says which.
_EPOCH_TEXT = re.compile(r"-?(?:[0-9]{9,11}|[0-9]{13})(?:\.[0-9]+)?")
_COMPACT = re.compile(r"([0-9]{4})([0-9]{2})([0-9]{2})(?:([0-9]{2})([0-9]{2})([0-9]{2}))?")
_YEAR_OR_MONTH = re.compile(r"([0-9]{4})(?:[-/]([0-9]{1,2}))?")
_SLASHES = re.compile(r"([0-9]{4})/([0-9]{1,2})/([0-9]{1,2})(?:[ T]([0-9]{2}):([0-9]{2})(?::([0-9]{2}))?)?")
_MONTH_NAME = re.compile(r"([0-9]{4}) ([A-Za-z]{3,9})\.?(?: ([0-9]{1,2}))?")

_EXPECTED = (
    "a time such as 2003-05-07T12:00:00Z, 2003-05-07, 2003/05/07 12:00, 2003 May 7, [[2003, 5, 7]], "
    "or epoch seconds or milliseconds"
)

Reading = Callable[[object, tzinfo], datetime]


def _read_automatically(value: object, zone: tzinfo) -> datetime:
    match value:
        case str():
            return _from_text(value.strip(), zone)
        case datetime():
            return (value if value.tzinfo else value.replace(tzinfo=zone)).astimezone(UTC)
        case bool():
            raise ValueError
        case int() | float() | Decimal():
            return _from_epoch(value)
        case list() | tuple():
            return _from_date_parts(value, zone)
        case _:
            raise ValueError


def _from_text(text: str, zone: tzinfo) -> datetime:
    if len(text) > 10 and text[4] == "-":
        return parse_iso(text, zone)
    if _EPOCH_TEXT.fullmatch(text):
        return _from_epoch(Decimal(text))
    for shape in (_COMPACT, _SLASHES, _YEAR_OR_MONTH):
        if match := shape.fullmatch(text):
            return _from_numbers([int(part) for part in match.groups() if part is not None], zone)
    if match := _MONTH_NAME.fullmatch(text):
        year, month, day = match.groups()
        return _from_numbers([int(year), month_number(month), int(day or 1)], zone)
    return parse_iso(text, zone)


def _from_numbers(numbers: Sequence[int], zone: tzinfo) -> datetime:
    """Year, month, day, hour, minute, second; those at the end may be missing."""
    names = ("year", "month", "day", "hour", "minute", "second")
    parts = {"month": 1, "day": 1} | dict(zip(names, numbers, strict=False))
    return datetime(**parts, tzinfo=zone).astimezone(UTC)


def _from_epoch(number: int | float | Decimal, unit: Decimal | None = None) -> datetime:
    """Without a unit it is in seconds or milliseconds, by its magnitude."""
    # by its shortest text, so that 1636646662.687894 means these microseconds on every machine
    exact = number if isinstance(number, Decimal) else Decimal(repr(number))
    # a number with a large exponent would be computed digit by digit before it is found to be out of range
    if not exact.is_finite() or exact.adjusted() > 15 or (unit is None and abs(exact) < _SMALLEST_EPOCH):
        raise ValueError
    chosen = unit or (_SECONDS if _EARLIEST_SECOND <= exact <= _LATEST_SECOND else _MILLIS)
    return _EPOCH + int(exact * chosen) * _MICROSECOND


def _from_date_parts(parts: Sequence[object], zone: tzinfo) -> datetime:
    """One to three numbers, [2003, 5, 7], or a list that contains them first, [[2003, 5, 7]]."""
    if parts and isinstance(parts[0], list | tuple):
        parts = parts[0]
    if not 1 <= len(parts) <= 3:
        raise ValueError
    return _from_numbers([_date_part(part) for part in parts], zone)


def _date_part(part: object) -> int:
    if isinstance(part, str) and re.fullmatch(r"[0-9]{1,4}", part):
        return int(part)
    if type(part) is not int:
        raise ValueError
    return part


def _number(value: object) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        raise ValueError
    return Decimal(str(value).strip())


def _read_date_parts(value: object, zone: tzinfo) -> datetime:
    if not isinstance(value, list | tuple):
        raise ValueError
    return _from_date_parts(value, zone)


# formats that are no pattern
_NAMED: dict[str, Reading] = {
    "AUTO": _read_automatically,
    "EPOCH_SECONDS": lambda value, zone: _from_epoch(_number(value), _SECONDS),
    "EPOCH_MILLIS": lambda value, zone: _from_epoch(_number(value), _MILLIS),
    "DATE_PARTS": _read_date_parts,
}


def _pattern_reading(pattern: str) -> Reading:
    parse = compile_pattern(pattern).parse

    def read(value: object, zone: tzinfo) -> datetime:
        if not isinstance(value, str):
            raise ValueError
        return parse(value.strip(), zone)

    return read


@dataclass(frozen=True, slots=True)
class InstantReader:
    """Reads times in the configured formats, in this order and no others. Immutable: share it between threads."""

    formats: tuple[str, ...]
    zone: str
    _readings: tuple[Reading, ...] = field(repr=False, compare=False)
    _tzinfo: tzinfo = field(repr=False, compare=False)

    def read(self, value: object) -> datetime:
        """The instant in UTC. A year or a month alone is its first moment in the zone."""
        for reading in self._readings:
            try:
                moment = reading(value, self._tzinfo)
            except (ValueError, OverflowError, InvalidOperation):
                continue
            if moment.year >= _EARLIEST_YEAR:
                return moment
        raise UnreadableTime(value, _EXPECTED if self.formats == ("AUTO",) else f"a time as {', '.join(self.formats)}")


def compile_instants(formats: Sequence[str] = ("AUTO",), zone: str = "UTC") -> InstantReader:
    """Formats are patterns of date_patterns.py, ISO, EPOCH_SECONDS, EPOCH_MILLIS, DATE_PARTS or AUTO, which tells all
    known forms apart by their shape. The zone is for times that have none."""
    if not formats:
        raise InvalidField("expected at least one format of times, such as AUTO")
    readings = tuple(_NAMED.get(name) or _pattern_reading(name) for name in formats)
    try:
        tz = UTC if zone == "UTC" else ZoneInfo(zone)
    except (KeyError, ValueError, OSError):
        raise InvalidField(f"expected the name of a time zone such as UTC or Europe/Berlin, got {zone!r}") from None
    return InstantReader(tuple(formats), zone, readings, tz)


AUTOMATIC = compile_instants()


def read_instant(value: object) -> datetime:
    """The instant of a time in any known form; times without a zone are in UTC."""
    return AUTOMATIC.read(value)
