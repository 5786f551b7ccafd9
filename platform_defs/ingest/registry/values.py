"""How single fields of a Registry file become columns: each reader adds a problem for what it cannot take."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import yaml

from platform_defs.yaml_lines import Fields, line_of


@dataclass(frozen=True)
class Reader:
    """Reads one field of a mapping of the file: its values for these columns of a row."""

    columns: tuple[str, ...]
    read: Callable[[Fields, str], Mapping[str, Any]]


_DURATION = re.compile(r"(?P<number>[0-9]{1,9})(?P<unit>ms|s|m|h|d|w)")
_MILLIS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_UNIT_CODES = {"s": "SECOND", "m": "MINUTE", "h": "HOUR", "d": "DAY", "w": "WEEK"}
UNIT_SECONDS = {"SECOND": 1, "MINUTE": 60, "HOUR": 3600, "DAY": 86_400, "WEEK": 604_800}
_INT = re.compile(r"-?[0-9]{1,18}")
_NUMBER = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")
SECRET_REFERENCE = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*|file:\S.*")
# Names are parts of keys of assets and tables.
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
NAME_RULE = "expected a letter, then letters, digits, '_' or '-'"
LONGEST_NAME = 64
_LARGEST_INTEGER_COLUMN = 2**31 - 1


def text(column: str, longest: int | None = None) -> Reader:
    def read(fields: Fields, name: str) -> Mapping[str, Any]:
        found = fields.text(name, longest=longest, plain=True)
        return {} if found is None else {column: found.value}

    return Reader((column,), read)


def name_text(column: str, longest: int = LONGEST_NAME) -> Reader:
    """A name that is part of keys, partition names and URLs."""

    def read(fields: Fields, name: str) -> Mapping[str, Any]:
        found = fields.matching_text(name, NAME, NAME_RULE, longest=longest)
        return {} if found is None else {column: found.value}

    return Reader((column,), read)


def code(column: str) -> Reader:
    """A code of a dictionary; whether the dictionary has it is checked when the spec is compiled."""

    def read(fields: Fields, name: str) -> Mapping[str, Any]:
        rule = "expected a code of letters, digits, '_' or '-'"
        found = fields.matching_text(name, re.compile(r"[A-Za-z*][A-Za-z0-9_-]*"), rule, longest=32, plain=True)
        return {} if found is None else {column: found.value}

    return Reader((column,), read)


def integer(column: str, *, least: int = 0, most: int = _LARGEST_INTEGER_COLUMN) -> Reader:
    def read(fields: Fields, name: str) -> Mapping[str, Any]:
        found = fields.matching_text(name, _INT, "expected a whole number", plain=True)
        if found is None:
            return {}
        if not least <= int(found.value) <= most:
            fields.problem(found.line, f"{name}: expected a whole number from {least} to {most}, got {found.value}")
            return {}
        return {column: int(found.value)}

    return Reader((column,), read)


def number(column: str) -> Reader:
    def read(fields: Fields, name: str) -> Mapping[str, Any]:
        found = fields.matching_text(name, _NUMBER, "expected a number that is not negative", plain=True)
        return {} if found is None else {column: float(found.value)}

    return Reader((column,), read)


def flag(column: str) -> Reader:
    def read(fields: Fields, name: str) -> Mapping[str, Any]:
        found = fields.matching_text(name, re.compile("true|false"), "expected true or false", plain=True)
        return {} if found is None else {column: found.value == "true"}

    return Reader((column,), read)


def duration(column: str, unit: str) -> Reader:
    """A duration such as 500ms, 10s or 1d, stored as a number of `unit` (ms or s)."""

    def read(fields: Fields, name: str) -> Mapping[str, Any]:
        millis = _duration_millis(fields, name)
        if millis is None:
            return {}
        if millis % _MILLIS[unit] or millis // _MILLIS[unit] > _LARGEST_INTEGER_COLUMN:
            line = line_of(fields.nodes[name])
            fields.problem(line, f"{name}: expected a duration in whole {'seconds' if unit == 's' else 'milliseconds'}")
            return {}
        return {column: millis // _MILLIS[unit]}

    return Reader((column,), read)


def size(value_column: str, unit_column: str) -> Reader:
    """A duration that is stored as it is written: a number and the code of its unit."""

    def read(fields: Fields, name: str) -> Mapping[str, Any]:
        found = fields.matching_text(name, _DURATION, "expected a duration such as 6h or 1d", plain=True)
        match = None if found is None else _DURATION.fullmatch(found.value)
        if found is None or match is None:
            return {}
        if match["unit"] not in _UNIT_CODES:
            fields.problem(found.line, f"{name}: expected seconds or more, got {found.value}")
            return {}
        return {value_column: int(match["number"]), unit_column: _UNIT_CODES[match["unit"]]}

    return Reader((value_column, unit_column), read)


def instant(column: str) -> Reader:
    def read(fields: Fields, name: str) -> Mapping[str, Any]:
        found = fields.text(name, plain=True)
        if found is None:
            return {}
        try:
            return {column: parse_instant(found.value)}
        except ValueError:
            fields.problem(found.line, f"{name}: expected a day or a time such as 2024-01-01, got {found.value!r}")
            return {}

    return Reader((column,), read)


def secret_reference(column: str) -> Reader:
    """A reference to a secret; the value itself is never repeated in a problem, because it may be one."""

    def read(fields: Fields, name: str) -> Mapping[str, Any]:
        found = fields.text(name, longest=512, plain=True)
        if found is None:
            return {}
        if SECRET_REFERENCE.fullmatch(found.value) is None:
            fields.problem(found.line, f"{name}: expected env:NAME or file:PATH, never the secret itself")
            return {}
        return {column: found.value}

    return Reader((column,), read)


def texts(column: str) -> Reader:
    def read(fields: Fields, name: str) -> Mapping[str, Any]:
        return {column: [found.value for found in fields.texts(name, longest=255)]} if name in fields.nodes else {}

    return Reader((column,), read)


def statuses(column: str) -> Reader:
    def read(fields: Fields, name: str) -> Mapping[str, Any]:
        found: list[int] = []
        for node in fields.items(name):
            value = node.value if isinstance(node, yaml.ScalarNode) else ""
            if re.fullmatch("[1-5][0-9]{2}", value) is None:
                fields.problem(line_of(node), f"{name}: expected an HTTP status such as 503, got {value!r}")
            else:
                found.append(int(value))
        return {column: found} if name in fields.nodes else {}

    return Reader((column,), read)


def text_map(column: str) -> Reader:
    """Texts by name, such as headers or query parameters; numbers and true/false are taken as they are written."""

    def read(fields: Fields, name: str) -> Mapping[str, Any]:
        node = fields.nodes.get(name)
        return {} if node is None else {column: read_text_map(fields, name, node)}

    return Reader((column,), read)


def output_fields(column: str) -> Reader:
    """Names of the stored record's fields and the JSONPaths of their values, in the order of the file."""

    def read(fields: Fields, name: str) -> Mapping[str, Any]:
        node = fields.nodes.get(name)
        if node is None:
            return {}
        return {column: [{"name": key, "path": path} for key, path in read_text_map(fields, name, node).items()]}

    return Reader((column,), read)


def json_value(column: str) -> Reader:
    """Whatever the file has there, as JSON."""

    def read(fields: Fields, name: str) -> Mapping[str, Any]:
        node = fields.nodes.get(name)
        return {} if node is None else {column: _as_json(node)}

    return Reader((column,), read)


def id_range(lowest: str, highest: str) -> Reader:
    """Two whole numbers, the lowest and the highest id."""

    def read(fields: Fields, name: str) -> Mapping[str, Any]:
        found = [node.value for node in fields.items(name) if isinstance(node, yaml.ScalarNode)]
        if name not in fields.nodes:
            return {}
        if len(found) != 2 or not all(_INT.fullmatch(each) for each in found):
            fields.problem(line_of(fields.nodes[name]), f"{name}: expected the lowest and the highest id as [1, 1000]")
            return {}
        return {lowest: int(found[0]), highest: int(found[1])}

    return Reader((lowest, highest), read)


def read_text_map(fields: Fields, name: str, node: yaml.Node) -> dict[str, str]:
    if not isinstance(node, yaml.MappingNode):
        fields.problem(line_of(node), f"{name}: expected names with values")
        return {}
    found: dict[str, str] = {}
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode) or not isinstance(value, yaml.ScalarNode):
            fields.problem(line_of(key), f"{name}: expected a name and a text, number or true/false")
        elif key.value in found:
            fields.problem(line_of(key), f"{name}: {key.value} is there twice")
        else:
            found[key.value] = value.value
    return found


def parse_instant(value: str) -> datetime:
    """An instant in UTC; a text without a zone is in UTC already. Raises ValueError."""
    found = datetime.fromisoformat(value)
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def _duration_millis(fields: Fields, name: str) -> int | None:
    found = fields.matching_text(name, _DURATION, "expected a duration such as 500ms, 10s, 5m or 1d", plain=True)
    match = None if found is None else _DURATION.fullmatch(found.value)
    return None if match is None else int(match["number"]) * _MILLIS[match["unit"]]


def _as_json(node: yaml.Node) -> Any:
    if isinstance(node, yaml.MappingNode):
        return {str(key.value): _as_json(value) for key, value in node.value}
    if isinstance(node, yaml.SequenceNode):
        return [_as_json(value) for value in node.value]
    is_plain = isinstance(node, yaml.ScalarNode) and node.style is None and not node.value.startswith("$")
    return yaml.safe_load(node.value) if is_plain else node.value
