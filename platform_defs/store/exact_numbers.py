"""Exact numbers: 28 digits before the decimal point and 10 behind it, as the column type ExactNumber stores them."""

import re
from decimal import ROUND_HALF_EVEN, Context, Decimal

INTEGER_DIGITS = 28
DECIMALS = 10
_LIMIT = Decimal(10) ** INTEGER_DIGITS
_LAST_DECIMAL = Decimal(1).scaleb(-DECIMALS)
# Wide enough that neither rounding nor formatting loses a digit of a number that fits.
_CONTEXT = Context(prec=60, rounding=ROUND_HALF_EVEN)
_PLAIN = re.compile(r"[+-]?\d+(\.\d+)?", re.ASCII)


def exact_number(value: object) -> Decimal:
    """The number, rounded half-even to 10 decimals; a float counts as the shortest text that names it.

    Raises ValueError for what is no number and for more than 28 digits before the point. The message continues a
    sentence that names the value.
    """
    number = _as_decimal(value)
    if abs(number) >= _LIMIT:
        raise ValueError(f"has more than {INTEGER_DIGITS} digits before the decimal point: {_shortened(value)}")
    rounded = number.quantize(_LAST_DECIMAL, context=_CONTEXT)
    if abs(rounded) >= _LIMIT:
        raise ValueError(f"has more than {INTEGER_DIGITS} digits before the decimal point: {_shortened(value)}")
    return rounded


def decimal_text(number: Decimal) -> str:
    """Plain decimal text, without an exponent and without zeros that say nothing: `12.5`, `9007199254740993`, `0`."""
    text = f"{number:f}"
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _as_decimal(value: object) -> Decimal:
    number = None
    if isinstance(value, Decimal):
        number = value
    elif isinstance(value, int):  # bool is an int: true counts as 1
        number = Decimal(int(value))
    elif isinstance(value, float):
        number = Decimal(repr(value))
    elif isinstance(value, str) and _PLAIN.fullmatch(value):
        number = Decimal(value)
    if number is None or not number.is_finite():
        raise ValueError(f"is no number: {_shortened(value)}")
    return number


def _shortened(value: object) -> str:
    text = repr(str(value))
    return text if len(text) <= 100 else f"{text[:100]}…"
