"""JSON values that clients and nodes hand in: how they are read, and what every store can keep of them."""

import json
import math
from collections.abc import Iterator
from typing import Any

MEBIBYTE = 1024 * 1024
MAX_BYTES = MEBIBYTE
# MySQL keeps JSON of at most 100 levels; a value of a node is a few levels inside of a larger one.
MAX_DEPTH = 90
# MySQL turns larger whole numbers into floating-point ones without a word.
_JSON_TYPES = (str, bool, int, float, type(None), dict, list, tuple)
_SMALLEST, _LARGEST = -(2**63), 2**64 - 1


def read_json_text(text: str) -> Any:
    """The value of a JSON text; raises ValueError with one line that says where the text is wrong."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"expected valid JSON; line {error.lineno} column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise ValueError(f"expected JSON nested at most {MAX_DEPTH} levels deep") from None
    except ValueError:
        # The only other ValueError: a whole number with more digits than Python converts.
        raise ValueError("expected valid JSON; a number is too long") from None


def write_json_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def json_problem(value: Any, *, max_bytes: int | None = MAX_BYTES) -> str | None:
    """Why a store cannot keep this JSON value as it is; None if it can."""
    for depth, part in _parts(value):
        if depth > MAX_DEPTH:
            return f"expected JSON nested at most {MAX_DEPTH} levels deep"
        if not isinstance(part, _JSON_TYPES) or (
            isinstance(part, dict) and not all(isinstance(key, str) for key in part)
        ):
            return f"expected JSON, got a value of the type {type(part).__name__} or a key that is no text"
        if isinstance(part, str) and not _is_storable_text(part):
            return "expected text in Unicode, got half of a surrogate pair (\\ud800 to \\udfff)"
        if isinstance(part, float) and not math.isfinite(part):
            return "expected finite numbers, got NaN or Infinity"
        if isinstance(part, int) and not _SMALLEST <= part <= _LARGEST:
            return "expected whole numbers of at most 64 bits; write larger ones as text"
    if max_bytes is not None:
        size = len(write_json_text(value).encode())
        if size > max_bytes:
            return f"expected at most {max_bytes} bytes of JSON, got {size}"
    return None


def _parts(value: Any) -> Iterator[tuple[int, Any]]:
    """Every value inside, with its depth, and the keys of objects; stops below the depth that is allowed."""
    level, depth = [value], 0
    while level and depth <= MAX_DEPTH + 1:
        below: list[Any] = []
        for part in level:
            yield depth, part
            if isinstance(part, dict):
                below += part.keys()
                below += part.values()
            elif isinstance(part, list | tuple):
                below += part
        level, depth = below, depth + 1


def _is_storable_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
