"""Compiles text with ${expressions} into immutable templates, and renders them against a context."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from platform_defs.expressions import limits
from platform_defs.expressions.context import Context
from platform_defs.expressions.errors import EvaluationFailed, LimitExceeded, MissingValue
from platform_defs.expressions.evaluation import Evaluate, collect_names, compile_expression
from platform_defs.expressions.functions import FunctionRegistry
from platform_defs.expressions.standard_functions import STANDARD_FUNCTIONS
from platform_defs.expressions.syntax import Reference, parse_reference, parse_template
from platform_defs.expressions.values import OMITTED, scalar_text


class NullPolicy(Enum):
    """What becomes of a template one of whose values is missing or null."""

    OMIT = "omit"  # the whole parameter, key or element is left out
    EMPTY = "empty"  # the value is an empty text
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Piece:
    """One ${expression} of a template; `evaluate` gives None where a value is missing."""

    source: str
    evaluate: Evaluate = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Template:
    """A compiled template; immutable, so one may be rendered by several threads at once."""

    text: str
    null_policy: NullPolicy
    pieces: tuple[str | Piece, ...] = field(repr=False, compare=False)
    references: frozenset[Reference] = field(repr=False, compare=False)
    functions: frozenset[str] = field(repr=False, compare=False)
    _render: Evaluate = field(repr=False, compare=False)

    @property
    def is_constant(self) -> bool:
        return not any(isinstance(piece, Piece) for piece in self.pieces)

    def render(self, context: Context) -> Any:
        """The typed value of a single ${expression}, else text; OMITTED if the null policy leaves it out."""
        return self._render(context)


def compile_template(
    text: str,
    *,
    functions: FunctionRegistry = STANDARD_FUNCTIONS,
    null_policy: NullPolicy = NullPolicy.OMIT,
) -> Template:
    """Raises InvalidTemplate with position and what was expected there."""
    parts = parse_template(text)
    pieces = tuple(
        part if isinstance(part, str) else Piece(part.source, compile_expression(part, functions, text))
        for part in parts
    )
    references: set[Reference] = set()
    called: set[str] = set()
    for part in parts:
        if not isinstance(part, str):
            collect_names(part, references, called)
    return Template(text, null_policy, pieces, frozenset(references), frozenset(called), _renderer(pieces, null_policy))


def unknown_references(references: Iterable[Reference], known: Collection[str]) -> list[str]:
    """References that are neither one of the known names, such as nodes.a.artifact, nor inside of one, as text."""
    prefixes = [parse_reference(name) for name in known]
    return sorted(
        _reference_text(reference)
        for reference in references
        if not any(reference[: len(prefix)] == prefix for prefix in prefixes)
    )


def _reference_text(reference: Reference) -> str:
    first, *steps = reference
    return f"{first}{''.join(f'[{step}]' if isinstance(step, int) else f'.{step}' for step in steps)}"


def _renderer(pieces: tuple[str | Piece, ...], null_policy: NullPolicy) -> Evaluate:
    match pieces:
        case ():
            return lambda context: ""
        case [str(constant)]:
            return lambda context: constant
        case [Piece() as piece]:
            return _single_renderer(piece, null_policy)
    return _text_renderer(pieces, null_policy)


def _single_renderer(piece: Piece, null_policy: NullPolicy) -> Evaluate:
    evaluate, source = piece.evaluate, piece.source

    def render(context: Context) -> Any:
        value = evaluate(context)
        if value is not None:
            return value
        return _null_value(null_policy, source)

    return render


def _text_renderer(pieces: tuple[str | Piece, ...], null_policy: NullPolicy) -> Evaluate:
    def render(context: Context) -> Any:
        texts: list[str] = []
        length = 0
        for piece in pieces:
            if isinstance(piece, str):
                text = piece
            else:
                value = piece.evaluate(context)
                if value is None:
                    value = _null_value(null_policy, piece.source)
                    if value is OMITTED:
                        return OMITTED
                text = value if type(value) is str else _piece_text(value, piece.source)
            texts.append(text)
            length += len(text)
        if length > limits.OUTPUT_LENGTH:
            raise LimitExceeded(f"expected at most {limits.OUTPUT_LENGTH} characters, got {length}")
        return "".join(texts)

    return render


def _piece_text(value: Any, source: str) -> str:
    try:
        return scalar_text(value)
    except ValueError as error:
        raise EvaluationFailed(f"{source}: {error}; use join or toText") from None


def _null_value(null_policy: NullPolicy, source: str) -> Any:
    if null_policy is NullPolicy.ERROR:
        raise MissingValue(source)
    return OMITTED if null_policy is NullPolicy.OMIT else ""
