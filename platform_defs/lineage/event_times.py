"""Parses event times in all spellings that real producers use, into UTC with microseconds."""

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
# MySQL's DATETIME begins with this year. Other stores would keep earlier times, but all stores must accept the same.
_EARLIEST_YEAR = 1000

# a number, except one of eight digits, which is a date in ISO 8601 without dashes
_NUMBER_TEXT = re.compile(r"-?(?![0-9]{8}$)[0-9]+(\.[0-9]+)?", re.ASCII)
_IN_BRACKETS = re.compile(r"(?P<time>[^\[\]]+)\[(?P<zone>[A-Za-z0-9_+\-/:]+)\]", re.ASCII)
_NAMED_UTC = re.compile(r"\s*(?:UTC|GMT|[zZ])$")

# Number of digits of an epoch number -> microseconds of its unit. Epoch numbers of the years 2001 to 2286 have these
# lengths. A number of another length is refused: read as an epoch it might lie centuries ahead, and an event of that
# time would win over all later ones.
_UNITS = {10: Decimal(1_000_000), 13: Decimal(1_000), 16: Decimal(1), 19: Decimal("0.001")}
_COMPACT_DIGITS = 14


def parse_time(value: object) -> datetime:
    """The instant in UTC. Raises ValueError, which says what was expected.

    A text is ISO 8601: with any number of fractional digits (cut after the sixth), with a zone in brackets, without a
    zone (UTC), or a date alone. A number, also as text, is an epoch in seconds, milli-, micro- or nanoseconds if it has
    10, 13, 16 or 19 digits, and yyyyMMddHHmmss in UTC if it has 14.
    """
    if type(value) is str:
        text = value.strip()
        return _in_range(_from_number(Decimal(text)) if _NUMBER_TEXT.fullmatch(text) else _from_text(text))
    if type(value) is int or type(value) is float:
        # through its shortest text, so that 1636646662.687894 means exactly these microseconds
        return _in_range(_from_number(Decimal(repr(value))))
    raise ValueError("expected a time in ISO 8601 or an epoch number")


def _from_text(text: str) -> datetime:
    zone = None
    if text.endswith("]"):
        match = _IN_BRACKETS.fullmatch(text)
        if match is None:
            raise _not_a_time()
        text, zone = match["time"], match["zone"]
    try:
        moment = datetime.fromisoformat(_NAMED_UTC.sub("+00:00", text))
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC if zone is None else ZoneInfo(zone))
        return moment.astimezone(UTC)
    except (ValueError, OverflowError, KeyError, OSError):  # KeyError and OSError mean that the zone does not exist
        raise _not_a_time() from None


def _from_number(number: Decimal) -> datetime:
    digits = number.adjusted() + 1 if number.is_finite() else 0
    if digits == _COMPACT_DIGITS:
        try:
            return datetime.strptime(f"{number:f}", "%Y%m%d%H%M%S").replace(tzinfo=UTC)
        except ValueError:
            raise _not_a_time() from None
    if digits not in _UNITS:
        raise _not_a_time()
    return _EPOCH + int(number * _UNITS[digits]) * _MICROSECOND


def _in_range(moment: datetime) -> datetime:
    if moment.year < _EARLIEST_YEAR:
        raise ValueError(f"expected a time between the years {_EARLIEST_YEAR} and 9999")
    return moment


def _not_a_time() -> ValueError:
    return ValueError(
        "expected a time such as 2024-05-01T12:00:00.000Z, a date, or an epoch number of 10, 13, 16 or 19 digits"
    )
