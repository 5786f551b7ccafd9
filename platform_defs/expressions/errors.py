"""What can be wrong with an expression, where it is written and when it is rendered.

ExpressionError
├── CompileError             refused before anything is rendered
│   ├── InvalidTemplate      `position` (counted from 1) and `expected` say what is wrong in a template
│   ├── InvalidPath          the same for a JSONPath
│   ├── InvalidPattern       the same for the pattern of a date-time
│   ├── InvalidField         a parameter, header, form field or check that can never be rendered safely
│   └── InvalidFields        `problems` has every CompileError of one query, body, set of headers ...
└── RenderError              this request cannot be rendered; no part of it may be sent
    ├── MissingValue         null or missing where the null policy is `error` or the field is required
    ├── EvaluationFailed     a function cannot work with its arguments
    ├── LimitExceeded        the result would be larger than a limit of limits.py
    ├── UnsafeValue          the value could change the request's structure, or its check refuses it
    └── UnreadableTime       a source's time in no form that is expected; `value` is what the source sent

Rendered values may be secrets, so no message but that of UnreadableTime repeats one.
"""

import reprlib
from collections.abc import Sequence
from typing import Self

from platform_defs.errors import PlatformError


class ExpressionError(PlatformError):
    """Base of the tree; `reason` is the message without the `where` that at() puts before it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.where = ""

    def at(self, where: str) -> Self:
        """The same error, which now names the field or place that it belongs to."""
        self.where = f"{where}: {self.where}" if self.where else where
        self.args = (f"{self.where}: {self.reason}" if self.reason else self.where,)
        return self


class CompileError(ExpressionError):
    """Refused before anything is rendered."""


class _InvalidText(CompileError):
    """A text of one of the small languages, and the position in it from which on it cannot be read."""

    language = "text"

    def __init__(self, text: str, position: int, expected: str) -> None:
        super().__init__(f"expected {expected} at position {position} of the {self.language} {_excerpt(text)}")
        self.text = text
        self.position = position
        self.expected = expected


class InvalidTemplate(_InvalidText):
    language = "template"


class InvalidPath(_InvalidText):
    language = "JSONPath"


class InvalidPattern(_InvalidText):
    language = "date-time pattern"


class InvalidField(CompileError):
    """A name, a check or a combination of settings that can never be rendered safely."""


class InvalidFields(CompileError):
    """Every problem of a query, a body or a set of headers at once."""

    def __init__(self, problems: Sequence[CompileError]) -> None:
        super().__init__("; ".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


class RenderError(ExpressionError):
    """This request cannot be rendered."""


class MissingValue(RenderError):
    """A value that must be there is missing or null; `expression` is the source of the expression."""

    def __init__(self, expression: str) -> None:
        super().__init__(f"expected a value, but {expression} is missing or null")
        self.expression = expression


class EvaluationFailed(RenderError):
    """A function cannot work with its arguments."""


class LimitExceeded(RenderError):
    """The result would be larger than allowed."""


class UnsafeValue(RenderError):
    """A value that could change the structure of the request, or that its check refuses."""


class UnreadableTime(RenderError):
    """A source's time that is in none of the expected forms."""

    def __init__(self, value: object, expected: str) -> None:
        super().__init__(f"expected {expected}, got {_excerpt(value)}")
        self.value = value
        self.expected = expected


# a response can hold a megabyte where a time was expected: reprlib never builds the whole text of it
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 80


def _excerpt(value: object) -> str:
    try:
        return _SHORT.repr(value)
    except ValueError:  # Python refuses to write integers of thousands of digits
        return "a number of thousands of digits"
