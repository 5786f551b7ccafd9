"""Named values of a request, each rendered for itself: query parameters, headers and form fields.

Names are fixed when the fields are compiled; whatever a value contains, it stays the value of its own name.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote_plus

from platform_defs.expressions import limits
from platform_defs.expressions.checks import ValueCheck
from platform_defs.expressions.context import Context
from platform_defs.expressions.errors import (
    CompileError,
    ExpressionError,
    InvalidField,
    InvalidFields,
    LimitExceeded,
    MissingValue,
    UnsafeValue,
)
from platform_defs.expressions.functions import FunctionRegistry
from platform_defs.expressions.standard_functions import STANDARD_FUNCTIONS
from platform_defs.expressions.syntax import Reference
from platform_defs.expressions.templates import NullPolicy, Template, compile_template
from platform_defs.expressions.values import OMITTED, is_utf8, scalar_text

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# A header value of visible ASCII and inner spaces: nothing that ends a line, or that two servers read differently.
_HEADER_VALUE = re.compile(r"(?:[!-~](?:[ -~]*[!-~])?)?")
# The HTTP client writes these itself; a second one would let two servers see two different requests.
_FRAMING_HEADERS = frozenset(
    ["connection", "content-length", "host", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"]
)

HEADER = "header"

Scalar = str | int | float | bool
Pairs = list[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """What a source's definition says about one parameter, header or form field.

    A list is sent as the name repeated for each element, or `joined_by` this text as one value.
    """

    name: str
    template: Scalar
    required: bool = False
    default: Scalar | None = None
    joined_by: str | None = None
    check: ValueCheck | None = None
    null_policy: NullPolicy | None = None  # None: that of all fields


@dataclass(frozen=True, slots=True)
class _CompiledField:
    field: Field
    template: Template | None  # None: the value is a constant and no text
    place: str
    check_value: Callable[[str], None]

    def render(self, context: Context) -> list[str]:
        try:
            value = self.field.template if self.template is None else self.template.render(context)
            if value is OMITTED:
                value = self.field.default
            if value is None:
                if self.field.required:
                    raise MissingValue(str(self.field.template))
                return []
            return self.texts_of(value)
        except ExpressionError as error:
            raise error.at(f"{self.place} {self.field.name}") from None

    def texts_of(self, value: Any) -> list[str]:
        if type(value) is str:
            texts = [value]
        elif not isinstance(value, list | tuple):
            texts = [_text(value)]
        else:
            texts = [_text(element) for element in value if element is not None]
            if self.field.required and not texts:
                raise MissingValue(str(self.field.template))
        check = self.field.check
        for text in texts:
            self.check_value(text)
            if check is not None:
                check.apply(text)
        joiner = self.field.joined_by
        if joiner is None or not isinstance(value, list | tuple):
            return texts
        if any(joiner in text for text in texts):
            raise UnsafeValue(f"expected elements without {joiner!r}, which joins them")
        return [joiner.join(texts)] if texts else []


def _text(value: Any) -> str:
    try:
        return scalar_text(value)
    except ValueError as error:
        raise UnsafeValue(str(error)) from None


@dataclass(frozen=True, slots=True)
class CompiledFields:
    """Fields of one place; immutable, so they may be rendered by several threads at once."""

    _fields: tuple[_CompiledField, ...]
    references: frozenset[Reference]
    functions: frozenset[str]

    def render(self, context: Context) -> Pairs:
        """Names and values in the order of the fields, not encoded: an HTTP client or encode_pairs does that."""
        pairs = [(item.field.name, text) for item in self._fields for text in item.render(context)]
        length = sum(len(name) + len(text) for name, text in pairs)
        if length > limits.OUTPUT_LENGTH:
            raise LimitExceeded(f"expected at most {limits.OUTPUT_LENGTH} characters in all fields, got {length}")
        return pairs


def compile_query(
    fields: Iterable[Field] | Mapping[str, Scalar],
    *,
    functions: FunctionRegistry = STANDARD_FUNCTIONS,
    null_policy: NullPolicy = NullPolicy.OMIT,
) -> CompiledFields:
    """Query parameters, which may also be sent as a form; raises InvalidFields with all problems at once."""
    return _compile("query parameter", fields, functions, null_policy, _check_name, _check_text)


def compile_headers(
    fields: Iterable[Field] | Mapping[str, Scalar],
    *,
    functions: FunctionRegistry = STANDARD_FUNCTIONS,
    null_policy: NullPolicy = NullPolicy.OMIT,
) -> CompiledFields:
    """Headers of a request; raises InvalidFields with all problems at once."""
    return _compile(HEADER, fields, functions, null_policy, _check_header_name, _check_header_value)


def encode_pairs(pairs: Iterable[tuple[str, str]]) -> str:
    """A query string or a form body: every reserved character of names and values is percent-encoded."""
    return "&".join(f"{quote_plus(name)}={quote_plus(value)}" for name, value in pairs)


def _compile(
    place: str,
    fields: Iterable[Field] | Mapping[str, Scalar],
    functions: FunctionRegistry,
    null_policy: NullPolicy,
    check_name: Callable[[str], None],
    check_value: Callable[[str], None],
) -> CompiledFields:
    if isinstance(fields, Mapping):
        fields = [Field(name=name, template=template) for name, template in fields.items()]
    compiled: list[_CompiledField] = []
    problems: list[CompileError] = []
    seen: set[str] = set()
    for item in fields:
        try:
            check_name(item.name)
            if place == HEADER and item.name.lower() in seen:
                raise InvalidField("expected the header once, got it again")
            seen.add(item.name.lower())
            compiled.append(_compile_field(place, item, functions, null_policy, check_value))
        except CompileError as error:
            problems.append(error.at(f"{place} {item.name}"))
    if problems:
        raise InvalidFields(problems)
    templates = [item.template for item in compiled if item.template is not None]
    return CompiledFields(
        tuple(compiled),
        frozenset(reference for template in templates for reference in template.references),
        frozenset(name for template in templates for name in template.functions),
    )


def _compile_field(
    place: str, item: Field, functions: FunctionRegistry, null_policy: NullPolicy, check_value: Callable[[str], None]
) -> _CompiledField:
    if item.joined_by == "":
        raise InvalidField("expected a text that joins the elements of a list, got an empty one")
    template = None
    if isinstance(item.template, str):
        template = compile_template(item.template, functions=functions, null_policy=item.null_policy or null_policy)
    compiled = _CompiledField(item, template, place, check_value)
    constants: list[Scalar] = [] if item.default is None else [item.default]
    if template is None:
        constants.append(item.template)
    elif template.is_constant:
        constants.append("".join(piece for piece in template.pieces if isinstance(piece, str)))
    for constant in constants:
        try:
            compiled.texts_of(constant)
        except UnsafeValue as error:
            raise InvalidField(error.reason) from None
    return compiled


def _check_name(name: str) -> None:
    if not name or not is_utf8(name) or not name.isprintable():
        raise InvalidField("expected a name of printable characters")


def _check_header_name(name: str) -> None:
    if _TOKEN.fullmatch(name) is None:
        raise InvalidField("expected a header name of letters, digits and dashes")
    if name.lower() in _FRAMING_HEADERS:
        raise InvalidField("expected another header: this one is written by the HTTP client")


def _check_text(text: str) -> None:
    if not is_utf8(text):
        raise UnsafeValue("expected text that UTF-8 can write, got half of a surrogate pair")


def _check_header_value(text: str) -> None:
    if _HEADER_VALUE.fullmatch(text) is None:
        raise UnsafeValue(
            "expected visible ASCII characters without spaces at the ends, got control or other characters"
        )
