"""Paths of URLs as templates: a value fills one segment, or several where the template says segments(value)."""

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

from platform_defs.expressions import limits
from platform_defs.expressions.context import Context
from platform_defs.expressions.errors import ExpressionError, InvalidTemplate, LimitExceeded, MissingValue, UnsafeValue
from platform_defs.expressions.functions import Function, FunctionRegistry
from platform_defs.expressions.standard_functions import STANDARD_FUNCTIONS
from platform_defs.expressions.syntax import Reference
from platform_defs.expressions.templates import NullPolicy, Piece, Template, compile_template
from platform_defs.expressions.values import is_utf8, kind_of, scalar_text

# characters of RFC 3986 that may stand in a segment, and whole percent-encoded bytes
_LITERAL = re.compile(r"(?:[A-Za-z0-9\-._~!$&'()*+,;=:@/]|%[0-9A-Fa-f]{2})*")
_DOTS = (".", "..")


@dataclass(frozen=True, slots=True)
class _Segments:
    """What segments() gives: the only value that may contain more than one segment."""

    parts: tuple[str, ...]


def _segments(value: object) -> _Segments:
    if isinstance(value, str):
        return _Segments(tuple(value.split("/")))
    if isinstance(value, list | tuple) and value:
        return _Segments(tuple(scalar_text(part) for part in value))
    raise ValueError(f"expected a text or a list that is not empty, got {kind_of(value)}")


_SEGMENTS = Function("segments", _segments, 1, 1)


@dataclass(frozen=True, slots=True)
class UrlPathTemplate:
    """A compiled path; immutable, so one may be rendered by several threads at once."""

    _template: Template

    @property
    def text(self) -> str:
        return self._template.text

    @property
    def references(self) -> frozenset[Reference]:
        return self._template.references

    @property
    def functions(self) -> frozenset[str]:
        """Without segments(), which every path may use."""
        return self._template.functions - {_SEGMENTS.name}

    def render(self, context: Context) -> str:
        """The path, percent-encoded. A missing value is an error: without it the request would go elsewhere."""
        try:
            return "".join(
                piece if isinstance(piece, str) else _encode_piece(piece, context) for piece in self._template.pieces
            )
        except ExpressionError as error:
            raise error.at("path") from None


def compile_url_path(text: str, *, functions: FunctionRegistry = STANDARD_FUNCTIONS) -> UrlPathTemplate:
    """Raises InvalidTemplate, also for literal text that is no path: it begins with / and has no query."""
    template = compile_template(text, functions=functions.extended_by(_SEGMENTS), null_policy=NullPolicy.ERROR)
    if not text.startswith("/"):
        raise InvalidTemplate(text, 1, "a path that begins with /")
    for piece in template.pieces:
        if isinstance(piece, str) and _LITERAL.fullmatch(piece) is None:
            position = max(text.find(piece), 0) + 1
            raise InvalidTemplate(text, position, "only characters of a path from here on, others percent-encoded,")
    outline = "".join(piece if isinstance(piece, str) else "value" for piece in template.pieces)
    if outline.startswith("//") or any(_is_dots(segment) for segment in outline.split("/")):
        raise InvalidTemplate(text, 1, "a path that does not begin with // and has no segments . and ..")
    return UrlPathTemplate(template)


def _encode_piece(piece: Piece, context: Context) -> str:
    value = piece.evaluate(context)
    if value is None:
        raise MissingValue(piece.source)
    try:
        parts = value.parts if isinstance(value, _Segments) else (_single_text(value),)
        return "/".join(_encode_segment(part) for part in parts)
    except ExpressionError as error:
        raise error.at(piece.source) from None


def _single_text(value: Any) -> str:
    try:
        return scalar_text(value)
    except ValueError as error:
        raise UnsafeValue(str(error)) from None


def _encode_segment(text: str) -> str:
    if not text:
        raise UnsafeValue("expected a segment of a path, got an empty text")
    if len(text) > limits.PATH_LENGTH:
        raise LimitExceeded(f"expected at most {limits.PATH_LENGTH} characters, got {len(text)}")
    if not is_utf8(text):
        raise UnsafeValue("expected text that UTF-8 can write, got half of a surrogate pair")
    # Dots alone could also become .. beside dots of the template. Dots between %2F or %5C stay in one segment here, but
    # some servers decode these before they resolve the dots.
    if any(part in _DOTS for part in re.split(r"[/\\]", text)):
        raise UnsafeValue("expected a value without the segments . and ..")
    return quote(text, safe="")


def _is_dots(segment: str) -> bool:
    return unquote(segment) in _DOTS
