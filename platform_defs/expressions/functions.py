"""Functions that templates may call: what a function declares, and the immutable registries that white-list them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from platform_defs.expressions.errors import InvalidField


class _NotLiteral:
    """Type of NOT_LITERAL."""


# stands for an argument whose value is known only when the template is rendered
NOT_LITERAL: Final = _NotLiteral()


@dataclass(frozen=True, slots=True)
class Function:
    """A pure function. It raises ValueError ("expected X, got Y") for arguments that it cannot work with.

    Null and missing arguments make the result null without a call, unless `takes_null`. A function that `reads_clock`
    gets the context's instant before its arguments. `prepare` sees the arguments when the template is compiled, those
    that are no literals as NOT_LITERAL: it raises CompileError or ValueError for one that can never work, and returns
    the callable to use, which may have compiled a literal pattern or path once.
    """

    name: str
    call: Callable[..., Any]
    least: int
    most: int | None
    takes_null: bool = False
    reads_clock: bool = False
    prepare: Callable[[tuple[Any, ...]], Callable[..., Any]] | None = None

    @property
    def arity(self) -> str:
        if self.most is None:
            return f"at least {self.least} arguments"
        if self.least == self.most:
            return f"{self.least} argument{'' if self.least == 1 else 's'}"
        return f"{self.least} to {self.most} arguments"

    def accepts(self, count: int) -> bool:
        return self.least <= count and (self.most is None or count <= self.most)


class FunctionRegistry:
    """Functions by name; never changes, so that a compiled template keeps its meaning."""

    __slots__ = ("_functions",)

    def __init__(self, functions: Iterable[Function]) -> None:
        self._functions: Mapping[str, Function] = MappingProxyType({function.name: function for function in functions})

    def get(self, name: str) -> Function | None:
        return self._functions.get(name)

    def __contains__(self, name: object) -> bool:
        return name in self._functions

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._functions))

    def restricted_to(self, names: Iterable[str]) -> "FunctionRegistry":
        """The white list of one source (allowedFunctions); a name that no function has is an InvalidField."""
        allowed = set(names)
        if unknown := sorted(allowed.difference(self._functions)):
            raise InvalidField(f"expected functions among {', '.join(self)}, got {', '.join(unknown)}")
        return FunctionRegistry(function for name, function in self._functions.items() if name in allowed)

    def extended_by(self, *functions: Function) -> "FunctionRegistry":
        return FunctionRegistry([*self._functions.values(), *functions])
