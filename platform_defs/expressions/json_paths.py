"""JSONPath over parsed JSON: paths of names, indexes and [*] as closures, all others by a library of RFC 9535.

Beyond the RFC a path may leave out the leading $, and a name after a dot may contain dashes: message.next-cursor.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from jsonpath_rfc9535 import JSONPathEnvironment, JSONPathError, JSONPathQuery

from platform_defs.expressions import limits
from platform_defs.expressions.errors import EvaluationFailed, InvalidPath

_LETTER = r"A-Za-z_\u0080-\uD7FF\uE000-\U0010FFFF"
_NAME = rf"[{_LETTER}][{_LETTER}0-9-]*"
_QUOTED = r"'(?P<single>[^'\\\x00-\x1f]*)'" + r'|"(?P<double>[^"\\\x00-\x1f]*)"'
_PLAIN_STEP = re.compile(
    rf"\.(?:(?P<name>{_NAME})|(?P<star>\*))"
    rf"|\[[ \t]*(?:(?P<index>0|-?[1-9][0-9]{{0,14}})|(?P<all>\*)|{_QUOTED})[ \t]*\]"
)
_STRING_OR_DASHED_NAME = re.compile(
    r"'(?:[^'\\]|\\.)*'"
    + r'|"(?:[^"\\]|\\.)*"'
    + rf"|(?P<dots>\.\.?)(?P<name>[{_LETTER}][{_LETTER}0-9]*-[{_LETTER}0-9-]*)"
)
# each of them visits everything below every value that the one before it found
_MOST_DESCENTS = 2

Values = list[Any]


class _Wildcard:
    """Type of the step [*]."""


_ALL = _Wildcard()
_Step = str | int | _Wildcard


@dataclass(frozen=True, slots=True)
class Path:
    """A compiled path; immutable, so one may be used by several threads at once."""

    text: str
    # names and indexes only: it finds at most one value
    is_singular: bool
    # everything that the path finds, in the document's order; empty if it finds nothing
    values: Callable[[Any], Values] = field(repr=False, compare=False)
    # the first value that the path finds; None if there is none, or if it is null
    first: Callable[[Any], Any] = field(repr=False, compare=False)
    # of a path that is one name alone: that name
    name: str | None = field(default=None, repr=False, compare=False)


def compile_path(text: str) -> Path:
    """Raises InvalidPath with the position from which on the text is no path."""
    if not text:
        raise InvalidPath(text, 1, "a path such as $.message.items")
    if len(text) > limits.PATH_LENGTH:
        raise InvalidPath(text, limits.PATH_LENGTH + 1, f"at most {limits.PATH_LENGTH} characters")
    steps = _plain_steps(_from_root(text))
    if steps is None:
        query = _library_query(text)
        return Path(text, query.singular_query(), *_library_closures(query, text))
    names_and_indexes = [step for step in steps if not isinstance(step, _Wildcard)]
    if len(names_and_indexes) == len(steps):
        name = steps[0] if len(steps) == 1 and isinstance(steps[0], str) else None
        return Path(text, True, _stages(steps), _walk(names_and_indexes), name)
    find = _stages(steps)
    return Path(text, False, find, lambda document: next(iter(find(document)), None))


def _from_root(text: str) -> str:
    if text.startswith("$"):
        return text
    return f"${text}" if text.startswith("[") else f"$.{text}"


def _plain_steps(text: str) -> list[_Step] | None:
    """The steps of a path that needs no library, else None."""
    steps: list[_Step] = []
    position = 1
    while position < len(text):
        match = _PLAIN_STEP.match(text, position)
        if match is None:
            return None
        position = match.end()
        kind, found = match.lastgroup, match[match.lastgroup or 0]
        steps.append(_ALL if kind in ("star", "all") else int(found) if kind == "index" else found)
    return steps


def _stages(steps: Sequence[_Step]) -> Callable[[Any], Values]:
    """One comprehension a step over all values that the steps before it found: no call for a single value."""
    stages = tuple(_stage(step) for step in steps)

    def find(document: Any) -> Values:
        values = [document]
        for stage in stages:
            values = stage(values)
        return values

    return find


def _stage(step: _Step) -> Callable[[Values], Values]:
    if isinstance(step, str):
        return lambda values: [value[step] for value in values if isinstance(value, dict) and step in value]
    if isinstance(step, int):
        needed = step + 1 if step >= 0 else -step
        return lambda values: [value[step] for value in values if isinstance(value, list) and len(value) >= needed]
    return _children


def _children(values: Values) -> Values:
    found: Values = []
    for value in values:
        if isinstance(value, list):
            found += value
        elif isinstance(value, dict):
            found += value.values()
    return found


def _walk(steps: Sequence[str | int]) -> Callable[[Any], Any]:
    match steps:
        case [str(name)]:
            return lambda document: document.get(name) if isinstance(document, dict) else None
        case [str(outer), str(inner)]:
            return lambda document: (
                child.get(inner)
                if isinstance(document, dict) and isinstance(child := document.get(outer), dict)
                else None
            )

        case [str(name), int(index)] if index >= 0:
            return lambda document: (
                child[index]
                if isinstance(document, dict) and isinstance(child := document.get(name), list) and index < len(child)
                else None
            )

    def walk(document: Any) -> Any:
        value = document
        for step in steps:
            if isinstance(step, str):
                if not isinstance(value, dict):
                    return None
                value = value.get(step)
            elif isinstance(value, list) and -len(value) <= step < len(value):
                value = value[step]
            else:
                return None
        return value

    return walk


class _Environment(JSONPathEnvironment):
    def setup_function_extensions(self) -> None:
        """Without match and search: some patterns take exponential time, and a page of a source would wait for it."""
        super().setup_function_extensions()
        del self.function_extensions["match"], self.function_extensions["search"]


_ENVIRONMENT = _Environment()


def _library_query(text: str) -> JSONPathQuery:
    query, position_of = _quote_dashed_names(text)
    if text.count("..") > _MOST_DESCENTS:
        raise InvalidPath(text, text.rindex("..") + 1, f"at most {_MOST_DESCENTS} times ..")
    _check_nesting(text)
    try:
        return _ENVIRONMENT.compile(query)
    except JSONPathError as error:
        position = position_of(error.token.index if error.token else 0)
        # the library's sentence without places, which are places in the rewritten text
        problem = re.sub(r" (starting )?at index [0-9]+", "", Exception.__str__(error))
        raise InvalidPath(text, position, f"a valid path ({problem})") from None


def _check_nesting(text: str) -> None:
    """The library reads brackets by recursion; a bound makes the outcome independent of the caller's stack."""
    depth = 0
    for position, character in enumerate(text, 1):
        depth += 1 if character in "[(" else -1 if character in "])" else 0
        if depth > limits.DEPTH:
            raise InvalidPath(text, position, f"at most {limits.DEPTH} brackets within each other")


def _quote_dashed_names(text: str) -> tuple[str, Callable[[int], int]]:
    """The path as the RFC spells it, and a function from an index in it to the position in the text, from 1."""
    prefix = len(_from_root(text)) - len(text)
    added: list[tuple[int, int]] = [(prefix, prefix)]  # index in the new text from which on, characters added so far

    def quote(match: re.Match[str]) -> str:
        if match["name"] is None:
            return match[0]
        quoted = f"{'..' if match['dots'] == '..' else ''}['{match['name']}']"
        total = added[-1][1] + len(quoted) - len(match[0])
        added.append((match.end() + total - prefix, total))
        return quoted

    query = _STRING_OR_DASHED_NAME.sub(quote, _from_root(text))

    def position_of(index: int) -> int:
        shift = max((characters for begin, characters in added if begin <= index), default=0)
        return min(max(index - shift, 0), len(text)) + 1

    return query, position_of


def _library_closures(query: JSONPathQuery, text: str) -> tuple[Callable[[Any], Values], Callable[[Any], Any]]:
    def find(document: Any) -> Values:
        try:
            return [node.value for node in query.finditer(document)]
        except (JSONPathError, RecursionError):
            raise EvaluationFailed(f"expected a document less deep for the JSONPath {text!r}") from None

    def find_first(document: Any) -> Any:
        try:
            return next((node.value for node in query.finditer(document)), None)
        except (JSONPathError, RecursionError):
            raise EvaluationFailed(f"expected a document less deep for the JSONPath {text!r}") from None

    return find, find_first
