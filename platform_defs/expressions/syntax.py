"""The grammar of templates: text with ${expression}, read into immutable nodes; no node can reach Python.

template   = { text | "$${" | "${" expression "}" }          $${ writes ${
expression = literal | call | reference
call       = name "(" [ expression { "," expression } ] ")"
reference  = name { "." name | "[" integer "]" | "[" string "]" }
literal    = string in ' or " | number | true | false | null
"""

import math
import re
from dataclasses import dataclass

from platform_defs.expressions import limits
from platform_defs.expressions.errors import InvalidTemplate
from platform_defs.expressions.values import is_utf8

_OPENING = re.compile(r"\$\$\{|\$\{")
_SPACE = re.compile(r"\s*")
# A dash needs no quotes because there is no subtraction. After a dot a name may begin with a digit: ids of nodes do.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_LATER_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_INDEX = re.compile(r"-?[0-9]{1,9}")
_STRING_PART = re.compile(r"[^'\"\\]+")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", "'": "'", '"': '"'}
_CODE_POINT = re.compile(r"u([0-9A-Fa-f]{4})")
_CONSTANTS = {"true": True, "false": False, "null": None}

# steps into the context: names of objects, indexes of lists
Reference = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class LiteralNode:
    value: str | int | float | bool | None
    source: str


@dataclass(frozen=True, slots=True)
class ReferenceNode:
    steps: Reference
    source: str


@dataclass(frozen=True, slots=True)
class CallNode:
    name: str
    arguments: "tuple[Expression, ...]"
    source: str
    position: int


Expression = LiteralNode | ReferenceNode | CallNode


def parse_template(text: str) -> tuple[str | Expression, ...]:
    """Literal texts (never empty, never two in a row) and expressions, in order; raises InvalidTemplate."""
    if len(text) > limits.TEMPLATE_LENGTH:
        raise InvalidTemplate(text, limits.TEMPLATE_LENGTH + 1, f"at most {limits.TEMPLATE_LENGTH} characters")
    parts: list[str | Expression] = []
    literal: list[str] = []
    parser = _Parser(text)
    while (opening := _OPENING.search(text, parser.position)) is not None:
        literal.append(text[parser.position : opening.start()])
        parser.position = opening.end()
        if opening[0] == "$${":
            literal.append("${")
            continue
        if before := "".join(literal):
            parts.append(before)
        literal.clear()
        parts.append(parser.expression())
        parser.expect("}", "a closing } after the expression")
    literal.append(text[parser.position :])
    if after := "".join(literal):
        parts.append(after)
    return tuple(parts)


def parse_reference(text: str) -> Reference:
    """The steps of a reference alone, such as nodes.a.artifact; raises InvalidTemplate."""
    parser = _Parser(text)
    node = parser.expression()
    if not isinstance(node, ReferenceNode) or parser.position != len(text):
        raise InvalidTemplate(text, parser.position + 1, "a reference such as params.x and nothing after it")
    return node.steps


class _Parser:
    """Recursive descent over one text; position is where the next token begins, counted from 0."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0

    def fail(self, expected: str) -> InvalidTemplate:
        return InvalidTemplate(self.text, self.position + 1, expected)

    def skip_space(self) -> None:
        match = _SPACE.match(self.text, self.position)
        assert match is not None
        self.position = match.end()

    def take(self, pattern: re.Pattern[str]) -> str | None:
        match = pattern.match(self.text, self.position)
        if match is None:
            return None
        self.position = match.end()
        return match[0]

    def follows(self, character: str) -> bool:
        """Whether the next token is this character, which is then consumed."""
        self.skip_space()
        if not self.text.startswith(character, self.position):
            return False
        self.position += 1
        return True

    def expect(self, character: str, expected: str) -> None:
        if not self.follows(character):
            raise self.fail(expected)

    def expression(self, depth: int = 0) -> Expression:
        self.skip_space()
        begin = self.position
        if depth > limits.DEPTH:
            raise self.fail(f"at most {limits.DEPTH} calls within each other")
        first = self.text[begin : begin + 1]
        if first in ("'", '"') and first:
            return LiteralNode(self.string(), self.text[begin : self.position])
        if first == "-" or first.isdigit():
            return LiteralNode(self.number(), self.text[begin : self.position])
        name = self.take(_NAME)
        if name is None:
            raise self.fail("a name, a function, a text in quotes or a number")
        if self.follows("("):
            arguments = self.arguments(depth + 1)
            return CallNode(name, arguments, self.text[begin : self.position], begin + 1)
        self.position = begin + len(name)
        if name in _CONSTANTS:
            return LiteralNode(_CONSTANTS[name], name)
        steps = (name, *self.steps())
        return ReferenceNode(steps, self.text[begin : self.position])

    def arguments(self, depth: int) -> tuple[Expression, ...]:
        if self.follows(")"):
            return ()
        arguments = [self.expression(depth)]
        while self.follows(","):
            arguments.append(self.expression(depth))
        if not self.follows(")"):
            raise self.fail("a comma or a closing )")
        return tuple(arguments)

    def steps(self) -> list[str | int]:
        steps: list[str | int] = []
        while True:
            if self.text.startswith(".", self.position):
                self.position += 1
                name = self.take(_LATER_NAME)
                if name is None:
                    raise self.fail('a name after the dot; other keys are written ["key"]')
                steps.append(name)
            elif self.text.startswith("[", self.position):
                self.position += 1
                steps.append(self.step_in_brackets())
                self.expect("]", "a closing ]")
            else:
                return steps

    def step_in_brackets(self) -> str | int:
        self.skip_space()
        if self.text[self.position : self.position + 1] in ("'", '"'):
            return self.string()
        index = self.take(_INDEX)
        if index is None:
            raise self.fail("an index or a key in quotes")
        return int(index)

    def number(self) -> int | float:
        begin = self.position
        digits = self.take(_NUMBER)
        if digits is None or len(digits) > limits.NUMBER_LENGTH:
            self.position = begin
            raise self.fail(f"a number of at most {limits.NUMBER_LENGTH} characters")
        number = float(digits) if any(mark in digits for mark in ".eE") else int(digits)
        if not math.isfinite(number):
            self.position = begin
            raise self.fail("a number that is not infinite")
        return number

    def string(self) -> str:
        quote = self.text[self.position]
        begin = self.position
        self.position += 1
        parts: list[str] = []
        while True:
            if plain := self.take(_STRING_PART):
                parts.append(plain)
            character = self.text[self.position : self.position + 1]
            if not character:
                self.position = begin
                raise self.fail(f"a closing {quote} of this text")
            self.position += 1
            if character == quote:
                return "".join(parts)
            parts.append(self.escape() if character == "\\" else character)

    def escape(self) -> str:
        if code := self.take(_CODE_POINT):
            character = chr(int(code[1:], 16))
            if not is_utf8(character):
                raise self.fail("a character that is no half of a surrogate pair before this")
            return character
        character = self.text[self.position : self.position + 1]
        if character not in _ESCAPES or not character:
            raise self.fail("one of n r t \\ ' \" or uXXXX after the backslash")
        self.position += 1
        return _ESCAPES[character]
