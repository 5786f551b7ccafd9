"""Date-time patterns with Java's letters, in UTC: yyyy-MM-dd'T'HH:mm:ss.SSS, and the name ISO."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from itertools import groupby
from operator import attrgetter

from platform_defs.expressions import limits
from platform_defs.expressions.errors import InvalidPattern
from platform_defs.expressions.values import instant_text

MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip

_NAMED = {"ISO_DATE": "yyyy-MM-dd", "ISO_DATE_TIME": "yyyy-MM-dd'T'HH:mm:ssX"}
_PIECE = re.compile(r"'(?:[^']|'')*'|.", re.DOTALL)
# letters that Java has too, but that nobody who writes a request in UTC means
_MISTAKEN = {"Y": "y (Y is the year of the week)", "D": "d (D is the day of the year)", "h": "H", "K": "H", "k": "H"}
_RESERVED = "[]{}#"
_ZONE = r"[Zz]|UTC|GMT|[+-][0-9]{2}(?::?[0-9]{2}){0,2}"
_ISO = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
    rf"(?:[T ][0-9]{{2}}:[0-9]{{2}}(?::[0-9]{{2}}(?:[.,][0-9]+)?)?(?P<zone> ?(?:{_ZONE}))?)?",
    re.IGNORECASE,
)
_LEAP_SECOND = re.compile(r"(?<=:)60(?:[.,][0-9]+)?(?![0-9.,:])")


@dataclass(frozen=True, slots=True)
class _Field:
    """How one run of a letter is written (a %-format and its value) and read (a regular expression)."""

    written: str
    value: Callable[[datetime], object]
    read: str
    meaning: str


@dataclass(frozen=True, slots=True)
class DatePattern:
    """A compiled pattern. `parse` raises ValueError; fields that the pattern lacks are read as 1 January, 00:00."""

    text: str
    format: Callable[[datetime], str]
    parse: Callable[[str, tzinfo], datetime]


@lru_cache(maxsize=256)
def compile_pattern(text: str) -> DatePattern:
    """Raises InvalidPattern with the position of the letter that has no meaning here."""
    if len(text) > limits.PATTERN_LENGTH:
        raise InvalidPattern(text, limits.PATTERN_LENGTH + 1, f"at most {limits.PATTERN_LENGTH} characters")
    if text == "ISO":
        return DatePattern(text, instant_text, parse_iso)
    fields: list[_Field] = []
    written: list[str] = []
    read: list[str] = []
    for piece, position in _pieces(_NAMED.get(text, text)):
        if _is_letter(piece):
            field = _field(text, piece, position)
            fields.append(field)
            written.append(field.written)
            read.append(f"({field.read})")
        else:
            literal = _literal(text, piece, position)
            written.append(literal.replace("%", "%%"))
            read.append(re.escape(literal))
    meanings = [field.meaning for field in fields]
    return DatePattern(text, _formatter("".join(written), fields), _parser(text, "".join(read), meanings))


def parse_iso(text: str, zone: tzinfo) -> datetime:
    """A day or a date-time in ISO 8601, in `zone` if it names none; digits after the microseconds are cut off.

    A leap second is the last moment of its minute: a moment later it would belong to another day than the one for which
    its source lists it.
    """
    if text[16:19] == ":60":
        text = _LEAP_SECOND.sub("59.999999", text)
    if text[10:11] == "T" and text[-1] == "Z":  # nine of ten times are written so, and need no regular expression
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is UTC:
            return moment
    match = _ISO.fullmatch(text)
    if match is None:
        raise ValueError("expected a day or a date-time in ISO 8601")
    if named := match["zone"]:
        offset = "Z" if named.strip().upper() in ("Z", "UTC", "GMT") else named.strip()
        text = text[: match.start("zone")] + offset
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).astimezone(UTC)


def month_number(name: str) -> int:
    """1 to 12 of an English name or its first three letters; ValueError."""
    found = [number for number, month in enumerate(MONTHS, 1) if name.lower() in (month.lower(), month[:3].lower())]
    if not found:
        raise ValueError("expected the English name of a month")
    return found[0]


def _pieces(text: str) -> list[tuple[str, int]]:
    """Runs of one letter, quoted literals and single other characters, each with its position counted from 1."""
    matches = list(_PIECE.finditer(text))
    pieces = []
    # every piece that is no letter is a group of its own, by its number
    for _, run in groupby(enumerate(matches), key=lambda item: item[1][0] if _is_letter(item[1][0]) else item[0]):
        found = [match for _, match in run]
        pieces.append(("".join(match[0] for match in found), found[0].start() + 1))
    return pieces


def _is_letter(piece: str) -> bool:
    return piece[0].isascii() and piece[0].isalpha()


def _literal(text: str, piece: str, position: int) -> str:
    if piece == "'":
        raise InvalidPattern(text, position, "a closing ' of this literal")
    if piece in _RESERVED:
        raise InvalidPattern(text, position, f"the reserved character {piece} in quotes")
    if len(piece) == 1:
        return piece
    return piece[1:-1].replace("''", "'") or "'"


def _field(text: str, run: str, position: int) -> _Field:
    letter, length = run[0], len(run)
    allowed = {"y": (1, 2, 4), "u": (1, 2, 4), "M": (1, 2, 3, 4), "S": range(1, 10), "X": (1, 2, 3)}
    if letter not in "yuMdHmsSX":
        hint = (
            f"{_MISTAKEN[letter]} instead of {letter}" if letter in _MISTAKEN else "one of the letters y M d H m s S X"
        )
        raise InvalidPattern(text, position, hint)
    if length not in allowed.get(letter, (1, 2)):
        counts = ", ".join(str(count) for count in allowed.get(letter, (1, 2)))
        raise InvalidPattern(text, position, f"{letter} repeated {counts} times")
    match letter, length:
        case (("y" | "u"), 2):
            return _Field("%02d", lambda moment: moment.year % 100, "[0-9]{2}", "year of 2000")
        case (("y" | "u"), _):
            return _Field("%04d" if length == 4 else "%d", attrgetter("year"), "[0-9]{4}", "year")
        case "M", 3:
            names = "|".join(month[:3] for month in MONTHS)
            return _Field("%s", lambda moment: MONTHS[moment.month - 1][:3], names, "month name")
        case "M", 4:
            return _Field("%s", lambda moment: MONTHS[moment.month - 1], "|".join(MONTHS), "month name")
        case "S", _:
            divisor, factor = 10 ** max(6 - length, 0), 10 ** max(length - 6, 0)
            fraction = f"%0{length}d"
            return _Field(
                fraction, lambda moment: moment.microsecond // divisor * factor, f"[0-9]{{{length}}}", "fraction"
            )
        case "X", _:
            offset = {1: "[+-][0-9]{2}(?:[0-9]{2})?", 2: "[+-][0-9]{4}", 3: "[+-][0-9]{2}:[0-9]{2}"}[length]
            return _Field("%s", lambda moment: "Z", f"Z|{offset}", "offset")
    name = {"M": "month", "d": "day", "H": "hour", "m": "minute", "s": "second"}[letter]
    return _Field("%02d" if length == 2 else "%d", attrgetter(name), "[0-9]{2}" if length == 2 else "[0-9]{1,2}", name)


def _formatter(written: str, fields: list[_Field]) -> Callable[[datetime], str]:
    values = [field.value for field in fields]

    def format_instant(instant: datetime) -> str:
        utc = _in_utc(instant)
        return written % tuple([value(utc) for value in values])

    return format_instant


def _in_utc(instant: datetime) -> datetime:
    if instant.tzinfo is UTC:
        return instant
    if instant.tzinfo is None:
        raise ValueError("expected an instant with a zone, got a time without one")
    return instant.astimezone(UTC)


def _parser(text: str, read: str, meanings: list[str]) -> Callable[[str, tzinfo], datetime]:
    shape = re.compile(read, re.IGNORECASE)

    def parse(value: str, zone: tzinfo) -> datetime:
        match = shape.fullmatch(value)
        if match is None:
            raise ValueError(f"expected a time in the form {text}")
        parts = {"month": 1, "day": 1}
        for meaning, found in zip(meanings, match.groups(), strict=True):
            match meaning:
                case "year of 2000":
                    parts["year"] = 2000 + int(found)
                case "month name":
                    parts["month"] = month_number(found)
                case "fraction":
                    parts["microsecond"] = int(found.ljust(6, "0")[:6])
                case "offset":
                    zone = _offset(found)
                case _:
                    parts[meaning] = int(found)
        if "year" not in parts:
            raise ValueError(f"expected a pattern with a year, got {text}")
        return datetime(**parts, tzinfo=zone).astimezone(UTC)

    return parse


def _offset(text: str) -> tzinfo:
    moment = datetime.fromisoformat(f"2000-01-01T00:00{text.upper()}")
    assert moment.tzinfo is not None
    return moment.tzinfo
