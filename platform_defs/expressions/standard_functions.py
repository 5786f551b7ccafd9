"""The functions of every template: texts, numbers, instants in UTC, JSONPath and hashes. None does I/O."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from platform_defs.canonical import sha256_hex
from platform_defs.expressions import limits
from platform_defs.expressions.date_patterns import DatePattern, compile_pattern
from platform_defs.expressions.errors import InvalidPattern, LimitExceeded, UnreadableTime
from platform_defs.expressions.functions import NOT_LITERAL, Function, FunctionRegistry
from platform_defs.expressions.instants import read_instant
from platform_defs.expressions.json_paths import compile_path
from platform_defs.expressions.values import json_text, kind_of, scalar_text

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected a text, got {kind_of(value)}")
    return value


def _count(value: object) -> int:
    if type(value) is not int:
        raise ValueError(f"expected a whole number, got {kind_of(value)}")
    return value


def _instant(value: object) -> datetime:
    """An instant, or a time as snapshots and sources write it."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC)
    try:
        return read_instant(value)
    except UnreadableTime as error:
        raise ValueError(f"expected {error.expected}, got {kind_of(value)}") from None


def _bounded(length: int) -> None:
    """Refuses a text before it is built."""
    if length > limits.OUTPUT_LENGTH:
        raise LimitExceeded(f"expected a result of at most {limits.OUTPUT_LENGTH} characters, got {length}")


def _joined(texts: Sequence[str], separator: str) -> str:
    _bounded(sum(map(len, texts)) + len(separator) * max(len(texts) - 1, 0))
    return separator.join(texts)


def concat(*values: object) -> str:
    return _joined([scalar_text(value) for value in values], "")


def join(values: object, separator: object) -> str:
    """The elements of a list with a text between them; elements that are null are left out."""
    if not isinstance(values, list | tuple):
        raise ValueError(f"expected a list, got {kind_of(values)}")
    return _joined([scalar_text(value) for value in values if value is not None], _text(separator))


def length(value: object) -> int:
    if not isinstance(value, str | list | tuple | Mapping):
        raise ValueError(f"expected a text, a list or an object, got {kind_of(value)}")
    return len(value)


def replace(text: object, old: object, new: object) -> str:
    """Every occurrence of one text by another; no regular expressions."""
    whole, searched, inserted = _text(text), _text(old), _text(new)
    if not searched:
        raise ValueError("expected a text to search for, got an empty one")
    _bounded(len(whole) + whole.count(searched) * max(len(inserted) - len(searched), 0))
    return whole.replace(searched, inserted)


def substring(text: object, begin: object, end: object = None) -> str:
    """From begin, counted from 0, up to but without end; what lies beyond the text is left out."""
    first = _count(begin)
    last = len(_text(text)) if end is None else _count(end)
    if first < 0 or last < first:
        raise ValueError("expected 0 <= begin <= end")
    return _text(text)[first:last]


def to_text(value: object) -> str:
    """The text of a scalar; canonical JSON of a list or an object."""
    return json_text(value) if isinstance(value, list | tuple | Mapping) else scalar_text(value)


def to_number(value: object) -> int | float:
    if type(value) is int or (type(value) is float and math.isfinite(value)):
        return value
    text = _text(value).strip()
    match = _NUMBER.fullmatch(text)
    if match is None or len(text) > limits.NUMBER_LENGTH or not math.isfinite(float(text)):
        raise ValueError(f"expected a number of at most {limits.NUMBER_LENGTH} characters, got another text")
    return int(text) if match[1] is None and match[2] is None else float(text)


def coalesce(*values: Any) -> Any:
    """The first value that is neither missing nor null."""
    return next((value for value in values if value is not None), None)


def hash_value(value: object) -> str:
    """SHA-256 of the value's canonical JSON, in hexadecimal."""
    return sha256_hex(json_text(value))


def plus(instant: object, amount: object, unit: timedelta) -> datetime:
    """The instant so many units later; a negative amount is earlier."""
    if isinstance(amount, bool) or not isinstance(amount, int | float):
        raise ValueError(f"expected a number, got {kind_of(amount)}")
    begin = _instant(instant)
    try:
        return begin + amount * unit
    except (OverflowError, ValueError):
        raise ValueError("expected an instant between the years 1 and 9999") from None


def epoch_millis(instant: object) -> int:
    return (_instant(instant) - _EPOCH) // timedelta(milliseconds=1)


def format_date_time(instant: object, pattern: object = "ISO") -> str:
    return _pattern(pattern).format(_instant(instant))


def parse_date_time(text: object, pattern: object = NOT_LITERAL) -> datetime:
    """By a pattern, or without one in any form that sources use."""
    if pattern is NOT_LITERAL:
        return _instant(text)
    return _pattern(pattern).parse(_text(text).strip(), UTC)


def _pattern(pattern: object) -> DatePattern:
    try:
        return compile_pattern(_text(pattern))
    except InvalidPattern as error:
        # a pattern that is computed may be any value of the context, so it is not repeated
        raise ValueError(f"expected {error.expected} at position {error.position} of the pattern") from None


def _prepare_format(arguments: tuple[Any, ...]) -> Callable[..., Any]:
    """A literal pattern is compiled with the template, so that a wrong letter never waits for the first request."""
    if len(arguments) == 1 or arguments[1] is NOT_LITERAL:
        return format_date_time
    format_instant = compile_pattern(_text(arguments[1])).format
    return lambda instant, _: format_instant(_instant(instant))


def _prepare_parse(arguments: tuple[Any, ...]) -> Callable[..., Any]:
    if len(arguments) == 1 or arguments[1] is NOT_LITERAL:
        return parse_date_time
    parse = compile_pattern(_text(arguments[1])).parse
    return lambda text, _: parse(_text(text).strip(), UTC)


def _prepare_path(arguments: tuple[Any, ...]) -> Callable[..., Any]:
    """A path must be a literal: one that came from data could search the whole document or hold a costly pattern."""
    if not isinstance(arguments[1], str):
        raise ValueError("expected a JSONPath in quotes as second argument")
    path = compile_path(arguments[1])
    return lambda document, _: path.first(document) if path.is_singular else path.values(document)


def _unprepared(*_: object) -> None:
    raise AssertionError("jsonPath is called as its prepare() returned it")


STANDARD_FUNCTIONS = FunctionRegistry(
    [
        Function("now", lambda now: now, 0, 0, reads_clock=True),
        Function("formatDateTime", format_date_time, 1, 2, prepare=_prepare_format),
        Function("parseDateTime", parse_date_time, 1, 2, prepare=_prepare_parse),
        Function("plusSeconds", partial(plus, unit=timedelta(seconds=1)), 2, 2),
        Function("minusSeconds", partial(plus, unit=timedelta(seconds=-1)), 2, 2),
        Function("plusDays", partial(plus, unit=timedelta(days=1)), 2, 2),
        Function("epochMillis", epoch_millis, 1, 1),
        Function("coalesce", coalesce, 1, None, takes_null=True),
        Function("concat", concat, 1, None),
        Function("join", join, 2, 2),
        Function("lower", lambda text: _text(text).lower(), 1, 1),
        Function("upper", lambda text: _text(text).upper(), 1, 1),
        Function("trim", lambda text: _text(text).strip(), 1, 1),
        Function("length", length, 1, 1),
        Function("replace", replace, 3, 3),
        Function("substring", substring, 2, 3),
        Function("toText", to_text, 1, 1),
        Function("toNumber", to_number, 1, 1),
        Function("jsonPath", _unprepared, 2, 2, prepare=_prepare_path),
        Function("hash", hash_value, 1, 1),
    ]
)
