"""JSON structures whose leaves are templates, such as bodies: values stay typed, JSON is never put together as text."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from platform_defs.canonical import canonical_json
from platform_defs.expressions import limits
from platform_defs.expressions.checks import ValueCheck
from platform_defs.expressions.context import Context
from platform_defs.expressions.errors import (
    CompileError,
    ExpressionError,
    InvalidField,
    InvalidFields,
    LimitExceeded,
    UnsafeValue,
)
from platform_defs.expressions.functions import FunctionRegistry
from platform_defs.expressions.standard_functions import STANDARD_FUNCTIONS
from platform_defs.expressions.syntax import Reference
from platform_defs.expressions.templates import NullPolicy, Template, compile_template
from platform_defs.expressions.values import OMITTED, is_utf8, json_value, scalar_text

_Render = Callable[[Context], Any]


@dataclass(frozen=True, slots=True)
class JsonTemplate:
    """A compiled structure; immutable, so one may be rendered by several threads at once."""

    references: frozenset[Reference]
    functions: frozenset[str]
    place: str
    _render: _Render = field(repr=False, compare=False)

    def render(self, context: Context) -> Any:
        """The structure with its values, of JSON's types only; keys and elements without a value are left out."""
        return self._render(context)

    def encode(self, context: Context) -> bytes | None:
        """The rendered structure as canonical JSON in UTF-8; None if the body as a whole is omitted."""
        value = self.render(context)
        if value is OMITTED:
            return None
        text = canonical_json(value)
        if len(text) > limits.OUTPUT_LENGTH:
            raise LimitExceeded(f"{self.place}: expected at most {limits.OUTPUT_LENGTH} characters, got {len(text)}")
        return text.encode()


def compile_json(
    structure: Any,
    *,
    functions: FunctionRegistry = STANDARD_FUNCTIONS,
    null_policy: NullPolicy = NullPolicy.OMIT,
    checks: Mapping[str, ValueCheck] | None = None,
    place: str = "body",
) -> JsonTemplate:
    """Texts in the structure are templates; keys are not. Checks belong to JSON pointers, such as /filter/from.

    Raises InvalidFields with all problems at once; messages begin with the place and the pointer.
    """
    compiler = _Compiler(functions, null_policy, dict(checks or {}), place)
    render = compiler.compile(structure, "", limits.DEPTH)
    for pointer in compiler.checks:
        compiler.problems.append(
            InvalidField("expected a template here, because it has a check").at(f"{place} {pointer}")
        )
    if compiler.problems:
        raise InvalidFields(compiler.problems)
    return JsonTemplate(
        frozenset(reference for template in compiler.templates for reference in template.references),
        frozenset(name for template in compiler.templates for name in template.functions),
        place,
        render,
    )


class _Compiler:
    """Walks a structure once; collects its templates, and its problems instead of stopping at the first."""

    def __init__(
        self, functions: FunctionRegistry, null_policy: NullPolicy, checks: dict[str, ValueCheck], place: str
    ) -> None:
        self.functions = functions
        self.null_policy = null_policy
        self.checks = checks  # those of pointers that the walk has not met yet
        self.place = place
        self.templates: list[Template] = []
        self.problems: list[CompileError] = []

    def compile(self, structure: Any, pointer: str, depth: int) -> _Render:
        try:
            match structure:
                case str():
                    return self._leaf(structure, pointer)
                case Mapping() | list() | tuple() if depth == 0:
                    raise InvalidField(f"expected at most {limits.DEPTH} lists and objects within each other")
                case Mapping():
                    return self._object(structure, pointer, depth)
                case list() | tuple():
                    return self._list(structure, pointer, depth)
            constant = json_value(structure)
        except CompileError as error:
            self.problems.append(error.at(self._where(pointer)))
        except ValueError as error:
            self.problems.append(InvalidField(str(error)).at(self._where(pointer)))
        else:
            return lambda context: constant
        return lambda context: OMITTED  # never rendered: there are problems

    def _where(self, pointer: str) -> str:
        return f"{self.place} {pointer or '/'}"

    def _object(self, structure: Mapping[Any, Any], pointer: str, depth: int) -> _Render:
        members: list[tuple[str, _Render]] = []
        for key, value in structure.items():
            if not isinstance(key, str) or "${" in key or not is_utf8(key):
                raise InvalidField(f"expected a key that is a text without an expression, got {key!r}")
            escaped = key.replace("~", "~0").replace("/", "~1")
            members.append((key, self.compile(value, f"{pointer}/{escaped}", depth - 1)))
        return lambda context: {key: value for key, render in members if (value := render(context)) is not OMITTED}

    def _list(self, structure: list[Any] | tuple[Any, ...], pointer: str, depth: int) -> _Render:
        elements = [self.compile(value, f"{pointer}/{index}", depth - 1) for index, value in enumerate(structure)]
        return lambda context: [value for render in elements if (value := render(context)) is not OMITTED]

    def _leaf(self, text: str, pointer: str) -> _Render:
        template = compile_template(text, functions=self.functions, null_policy=self.null_policy)
        self.templates.append(template)
        check = self.checks.pop(pointer, None)
        where = self._where(pointer)

        def render(context: Context) -> Any:
            try:
                value = template.render(context)
                if value is OMITTED:
                    return OMITTED
                return _safe_value(value, check)
            except ExpressionError as error:
                raise error.at(where) from None

        return render


def _safe_value(value: Any, check: ValueCheck | None) -> Any:
    """The value in JSON's types; a check applies to the text of a scalar, or of each element of a list."""
    try:
        typed = json_value(value)
        if check is not None:
            for element in typed if isinstance(typed, list) else [typed]:
                check.apply(scalar_text(element))
        text = canonical_json(typed)
    except ValueError as error:
        raise UnsafeValue(str(error)) from None
    if not is_utf8(text):
        raise UnsafeValue("expected text that UTF-8 can write, got half of a surrogate pair")
    return typed
