"""Values that expressions work with: JSON values and UTC instants, and the one text that each of them has."""

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, Final

from platform_defs.canonical import canonical_json
from platform_defs.expressions import limits


class Omitted(Enum):
    """Type of OMITTED, so that `is OMITTED` narrows types."""

    OMITTED = "omitted"


# what rendering gives instead of a value when the whole parameter, key or element is to be left out
OMITTED: Final = Omitted.OMITTED

_INTEGER_BITS = 10_000


def instant_text(instant: datetime) -> str:
    """The text of an instant in every hash, snapshot and request: ISO 8601 in UTC to the nanosecond.

    As java.time.Instant writes it, the fraction has as many groups of three digits as it needs:
    2025-09-20T00:00:00Z, 2025-09-20T00:00:00.250Z. Our clocks have microseconds, so the ninth digit is never needed.
    """
    if instant.tzinfo is None:
        raise ValueError("expected an instant with a zone, got a time without one")
    microsecond = instant.microsecond
    unit = "seconds" if not microsecond else "microseconds" if microsecond % 1000 else "milliseconds"
    return f"{instant.astimezone(UTC).replace(tzinfo=None).isoformat(timespec=unit)}Z"


def scalar_text(value: object) -> str:
    """A text, number, boolean or instant as text; ValueError for lists, objects and null, which have no one text."""
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int() | float() | Decimal():
            return _number_text(value)
        case datetime():
            return instant_text(value)
        case _:
            raise ValueError(f"expected a text, a number, a boolean or an instant, got {kind_of(value)}")


def _number_text(value: int | float | Decimal) -> str:
    _check_number(value)
    if not isinstance(value, Decimal):
        return repr(value)
    # without an exponent, which could stand for a million zeros
    if abs(value.adjusted()) > limits.NUMBER_LENGTH:
        raise ValueError(f"expected a number of at most {limits.NUMBER_LENGTH} digits, got a longer one")
    return f"{value:f}"


def _check_number(value: int | float | Decimal) -> None:
    if isinstance(value, int):
        # Python refuses to write integers of more than 4,300 digits, in JSON too
        if value.bit_length() > _INTEGER_BITS:
            raise ValueError("expected a number of a readable length, got one of thousands of digits")
    elif not (value.is_finite() if isinstance(value, Decimal) else math.isfinite(value)):
        raise ValueError("expected a finite number, got one that is not")


def json_value(value: Any, depth: int = limits.DEPTH) -> Any:
    """The value with instants as text, of nothing but JSON's types; ValueError where that is impossible."""
    match value:
        case None | str() | bool():
            return value
        case int() | float():
            _check_number(value)
            return value
        case Decimal():
            text = _number_text(value)
            return float(text) if "." in text else int(text)
        case datetime():
            return instant_text(value)
        case list() | tuple() | Mapping() if depth == 0:
            raise ValueError(f"expected at most {limits.DEPTH} lists and objects within each other, got more")
        case list() | tuple():
            return [json_value(element, depth - 1) for element in value]
        case Mapping():
            return {_key(name): json_value(element, depth - 1) for name, element in value.items()}
        case _:
            raise ValueError(f"expected a JSON value or an instant, got {kind_of(value)}")


def json_text(value: Any) -> str:
    """Canonical JSON of a value, instants as text."""
    return canonical_json(json_value(value))


def _key(name: object) -> str:
    if not isinstance(name, str):
        raise ValueError(f"expected an object whose keys are texts, got {kind_of(name)} as a key")
    return name


def is_utf8(text: str) -> bool:
    """False for a text with half of a surrogate pair, which JSON can carry and a request cannot."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def kind_of(value: object) -> str:
    """What a value is, for messages that must not repeat it because it may be a secret."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case str():
            return "a text"
        case int() | float() | Decimal():
            return "a number"
        case datetime():
            return "an instant"
        case list() | tuple():
            return "a list"
        case Mapping():
            return "an object"
        case _:
            return f"a value of type {type(value).__name__}"
