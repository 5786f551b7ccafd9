"""Reads a YAML file and reports every problem with file, line and field, for any system that takes such files.

YamlFileError (a PlatformError) refuses a file as a whole; `problems` has one line `FILE:LINE: text` each.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import yaml

from platform_defs.errors import PlatformError, one_line

MAX_DEPTH = 32
_TEXT = "tag:yaml.org,2002:str"


@dataclass(frozen=True, order=True)
class Problem:
    line: int
    text: str


class YamlFileError(PlatformError):
    def __init__(self, file_name: str, problems: Iterable[Problem]) -> None:
        self.problems = tuple(f"{file_name}:{problem.line}: {problem.text}" for problem in sorted(problems))
        super().__init__("\n".join(self.problems))


class NotYaml(ValueError):
    """The file cannot be read at all, so that `problem` is its only one."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.text)
        self.problem = problem


@dataclass(frozen=True)
class Text:
    """A text of the file, with its line for problems that are found later."""

    value: str
    line: int


def line_of(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def read_document(content: bytes) -> yaml.Node | None:
    """The root node of a file in UTF-8, None for an empty file; raises NotYaml.

    Aliases are refused, since a few lines of them expand to gigabytes, and so is deep nesting.
    """
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise NotYaml(Problem(line, "expected YAML in UTF-8, got bytes that are no text")) from None
    try:
        _refuse_aliases_and_deep_nesting(text)
        document: yaml.Node | None = yaml.compose(text, Loader=yaml.SafeLoader)
        return document
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = 1 if mark is None else mark.line + 1
        reason = ", ".join(part for part in (error.context, error.problem) if part)
        raise NotYaml(Problem(line, f"expected YAML; {reason}")) from None
    except yaml.YAMLError as error:
        position = getattr(error, "position", 0)
        line = text.count("\n", 0, position) + 1
        raise NotYaml(Problem(line, f"expected YAML; {one_line(error)}")) from None


def _refuse_aliases_and_deep_nesting(text: str) -> None:
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        line = 1 if event.start_mark is None else event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent):
            raise NotYaml(Problem(line, f"aliases (*{event.anchor}) are not read"))
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_DEPTH:
            raise NotYaml(Problem(line, "nested too deeply"))


@dataclass(frozen=True)
class Fields:
    """The fields of a mapping by name; whatever is wrong with them is added to `problems`.

    `what` names the mapping in problems, such as "model".
    """

    what: str
    line: int
    nodes: Mapping[str, yaml.Node] = field(repr=False)
    problems: list[Problem] = field(repr=False)

    @classmethod
    def of(
        cls, node: yaml.Node, what: str, problems: list[Problem], required: Sequence[str], optional: Sequence[str] = ()
    ) -> "Fields":
        """Adds a problem for each field that is missing, unknown or there twice."""
        nodes: dict[str, yaml.Node] = {}
        if not isinstance(node, yaml.MappingNode):
            problems.append(
                Problem(line_of(node), f"{what}: expected fields, such as {', '.join(required or optional)}")
            )
            return cls(what, line_of(node), nodes, problems)
        for key, value in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else ""
            if name in nodes:
                problems.append(Problem(line_of(key), f"{what}: {name} is there twice"))
            elif name not in (*required, *optional):
                known = ", ".join((*required, *optional))
                problems.append(Problem(line_of(key), f"{what}: unknown field {name or '?'}; known are {known}"))
            nodes[name] = value
        problems += [Problem(line_of(node), f"{what}: {name} is missing") for name in required if name not in nodes]
        return cls(what, line_of(node), nodes, problems)

    def problem(self, line: int, text: str) -> None:
        self.problems.append(Problem(line, f"{self.what}: {text}"))

    def text(self, name: str, *, longest: int | None = None, plain: bool = False) -> Text | None:
        """A text that is not blank; with `plain` also a number, date or the like, as it is written in the file."""
        node = self.nodes.get(name)
        return None if node is None else self._text(node, name, longest, plain)

    def matching_text(
        self, name: str, pattern: re.Pattern[str], expected: str, *, longest: int | None = None, plain: bool = False
    ) -> Text | None:
        """A text that the whole pattern matches; the problem is otherwise `expected`, which says so in words."""
        found = self.text(name, longest=longest, plain=plain)
        if found is None or pattern.fullmatch(found.value):
            return found
        self.problem(found.line, f"{name}: {found.value!r}: {expected}")
        return None

    def texts(self, name: str, *, longest: int) -> list[Text]:
        """A list of texts, each of which may be there only once."""
        found: dict[str, Text] = {}
        for node in self.items(name):
            text = self._text(node, f"an entry of {name}", longest, False)
            if text is not None and text.value in found:
                self.problem(text.line, f"{name}: {text.value} is there twice")
            elif text is not None:
                found[text.value] = text
        return list(found.values())

    def items(self, name: str) -> list[yaml.Node]:
        """The nodes of a list; empty where the field is missing, which `of` has reported if it is required."""
        node = self.nodes.get(name)
        if node is None:
            return []
        if not isinstance(node, yaml.SequenceNode):
            self.problem(line_of(node), f"{name}: expected a list")
            return []
        return list(node.value)

    def _text(self, node: yaml.Node, name: str, longest: int | None, plain: bool) -> Text | None:
        line = line_of(node)
        if not isinstance(node, yaml.ScalarNode) or not (plain or node.tag == _TEXT):
            quote = " in quotes" if isinstance(node, yaml.ScalarNode) else ""
            self.problem(line, f"{name}: expected text{quote}")
        elif not node.value.strip():
            self.problem(line, f"{name}: expected text, found none")
        elif longest is not None and len(node.value) > longest:
            self.problem(line, f"{name}: {len(node.value)} characters, at most {longest} are stored")
        else:
            return Text(node.value, line)
        return None
