"""Reads event times as real producers write them: always an instant in UTC, to the microsecond, or a reason why not."""

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
# MySQL's DATETIME begins here; an earlier time would be refused by one store and kept by another
_EARLIEST_YEAR = 1000

_EPOCH_TEXT = re.compile(r"-?[0-9]{9,20}(\.[0-9]+)?", re.ASCII)
_IN_BRACKETS = re.compile(r"(?P<time>[^\[\]]+)\[(?P<zone>[A-Za-z0-9_+\-/:]+)\]", re.ASCII)
_NAMED_UTC = re.compile(r"\s*(?:UTC|GMT|[zZ])$")

# A number this large cannot be meant in the coarser unit: 10^11 seconds are the year 5138.
_UNITS = ((Decimal(10) ** 11, 1_000_000), (Decimal(10) ** 14, 1_000), (Decimal(10) ** 17, 1))
_NANOSECOND = Decimal("0.001")


def parse_time(value: object) -> datetime:
    """The instant in UTC; ValueError says what was expected.

    Text is ISO 8601, with any number of fractional digits (cut after the sixth), with a zone in brackets, without zone
    (UTC) or as a date alone; a number is an epoch in seconds, milli-, micro- or nanoseconds, told apart by its size.
    """
    if type(value) is str:
        text = value.strip()
        return _in_range(_from_epoch(Decimal(text)) if _EPOCH_TEXT.fullmatch(text) else _from_text(text))
    if type(value) is int or type(value) is float:
        # by its shortest text, so that 1636646662.687894 means these microseconds on every machine
        return _in_range(_from_epoch(Decimal(repr(value))))
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
    except (ValueError, OverflowError, KeyError, OSError):  # KeyError and OSError: no such zone
        raise _not_a_time() from None


def _from_epoch(number: Decimal) -> datetime:
    if not number.is_finite():
        raise _not_a_time()
    factor = next((Decimal(micros) for limit, micros in _UNITS if abs(number) < limit), _NANOSECOND)
    try:
        return _EPOCH + int(number * factor) * _MICROSECOND
    except OverflowError:
        raise _out_of_range() from None


def _in_range(moment: datetime) -> datetime:
    if moment.year < _EARLIEST_YEAR:
        raise _out_of_range()
    return moment


def _not_a_time() -> ValueError:
    return ValueError("expected a time such as 2024-05-01T12:00:00.000Z, a date, or an epoch number")


def _out_of_range() -> ValueError:
    return ValueError(f"expected a time between the years {_EARLIEST_YEAR} and 9999")
