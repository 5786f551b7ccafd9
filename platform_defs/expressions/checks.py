"""Checks that a rendered value must pass before a request with it may be sent: a white list, a pattern, a length."""

import re
from collections.abc import Collection
from dataclasses import dataclass, field

from platform_defs.expressions import limits
from platform_defs.expressions.errors import InvalidField, UnsafeValue


@dataclass(frozen=True, slots=True)
class ValueCheck:
    """A compiled check; its messages say what was expected and never repeat the value, which may be a secret."""

    pattern: str | None
    allowed: frozenset[str] | None
    max_length: int
    _compiled: re.Pattern[str] | None = field(repr=False, compare=False)

    def apply(self, text: str) -> None:
        """Raises UnsafeValue unless the whole text passes."""
        if len(text) > self.max_length:
            raise UnsafeValue(f"expected at most {self.max_length} characters, got {len(text)}")
        if self.allowed is not None and text not in self.allowed:
            raise UnsafeValue(f"expected one of {', '.join(sorted(self.allowed))}, got another value")
        if self._compiled is not None and self._compiled.fullmatch(text) is None:
            raise UnsafeValue(f"expected a value that matches {self.pattern}, got another one")


def compile_check(
    *, pattern: str | None = None, allowed: Collection[str] | None = None, max_length: int = 4_096
) -> ValueCheck:
    """The pattern is a regular expression of Python that must match the whole value; raises InvalidField."""
    if pattern is not None and len(pattern) > limits.CHECK_LENGTH:
        raise InvalidField(f"expected a pattern of at most {limits.CHECK_LENGTH} characters, got {len(pattern)}")
    try:
        compiled = None if pattern is None else re.compile(pattern)
    except (re.error, RecursionError) as error:
        raise InvalidField(f"expected a regular expression, got {pattern!r} ({error})") from None
    return ValueCheck(pattern, None if allowed is None else frozenset(allowed), max_length, compiled)
