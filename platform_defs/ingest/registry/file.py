"""Reads a Registry file into rows of the reg_* and sys_dict_* tables, with the line of each value."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import yaml
from sqlalchemy import Table

from platform_defs.ingest.codes import Operation
from platform_defs.ingest.registry.sections import (
    ALL,
    CONFIGURATIONS,
    ENDPOINT,
    LISTS,
    SOURCE_FIELDS,
    Section,
    data_columns,
    default_value,
    field_name,
    key_columns,
)
from platform_defs.ingest.registry.values import LONGEST_NAME, NAME, NAME_RULE, Reader
from platform_defs.ingest.spec.merging import Finding
from platform_defs.store.tables.registry import reg_expr_field_dict, reg_provenance
from platform_defs.yaml_lines import Fields, NotYaml, Problem, line_of, read_document

_SCOPED = (*CONFIGURATIONS, *LISTS)
# columns that may not be null and that most files need not mention
_IMPLIED = {"window_mode_code": "CALENDAR", "location_code": "QUERY", "timezone_default": "UTC"}


@dataclass(frozen=True)
class FileRow:
    """A row as the file has it; `lines` has the line of each column, `line` that of the row."""

    table: Table
    values: Mapping[str, Any]
    line: int
    lines: Mapping[str, int] = field(default_factory=dict)

    @property
    def key(self) -> tuple[Any, ...]:
        return tuple(self.values.get(name) for name in key_columns(self.table))


@dataclass(frozen=True)
class DictionaryItem:
    type_code: str
    item_code: str
    item_name: str


@dataclass(frozen=True)
class DictionaryAlias:
    """The code that a source has for an item of a dictionary."""

    type_code: str
    item_code: str
    source_system: str
    external_code: str


@dataclass
class RegistryFile:
    """Everything in a file that can be understood, and all that cannot."""

    name: str
    sources: list[FileRow] = field(default_factory=list)
    rows: list[FileRow] = field(default_factory=list)
    field_keys: list[FileRow] = field(default_factory=list)
    dictionary_types: dict[str, str] = field(default_factory=dict)
    dictionary_items: list[DictionaryItem] = field(default_factory=list)
    dictionary_aliases: list[DictionaryAlias] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    @property
    def codes(self) -> list[str]:
        return [source.values["provenance_code"] for source in self.sources]

    def line_of(self, code: str, endpoint: str, operation: str, finding: Finding) -> int:
        """The line that decides a column for an endpoint and an operation; else that of the endpoint or the source."""
        deciding = [
            row
            for row in self.rows
            if row.values["provenance_code"] == code
            and row.table.name == finding.table
            and row.values.get("endpoint_name") in (endpoint, None)
            and row.values["operation_type"] in (operation, ALL)
            and finding.column in row.lines
            and finding.key in (None, *row.key)
        ]
        # the strongest row decides: the endpoint's before the source's, the operation's before that for all
        strength = [(row.values.get("endpoint_name") is None, row.values["operation_type"] == ALL) for row in deciding]
        if deciding:
            return deciding[strength.index(min(strength))].lines[finding.column]
        for row in self.rows:
            is_endpoint = row.table is ENDPOINT.table and row.values["provenance_code"] == code
            if is_endpoint and row.values.get("endpoint_name") == endpoint:
                return row.line
        return next((row.line for row in self.sources if row.values["provenance_code"] == code), 1)

    def problem_of(self, code: str, endpoint: str, operation: str, finding: Finding) -> Problem:
        """A finding as somebody understands it who wrote the file: at its line, by the name of its field."""
        name = field_name(finding.table, finding.column)
        place = f"{name} ({finding.endpoint})" if finding.endpoint else name
        return Problem(self.line_of(code, endpoint, operation, finding), f"{code}: {place}: {finding.text}")

    def with_changes(
        self,
        *,
        code: str | None,
        base_url: str | None,
        start: datetime | None,
        safety_lag: timedelta | None = None,
    ) -> "RegistryFile":
        """The file's source under another code, at another address, or with windows that begin or are due otherwise."""
        changed: dict[str, Any] = {} if code is None else {"provenance_code": code}
        file = replace(
            self,
            sources=[replace(row, values={**row.values, **changed}) for row in self.sources],
            rows=[replace(row, values={**row.values, **changed}) for row in self.rows],
        )
        if code is not None and len(self.sources) != 1:
            file.problems.append(
                Problem(1, f"another code needs a file with one source, this one has {len(self.sources)}")
            )
        if code is not None and (NAME.fullmatch(code) is None or len(code) > LONGEST_NAME):
            file.problems.append(Problem(1, f"another code: {code!r}: {NAME_RULE}, at most {LONGEST_NAME} characters"))
        if base_url is not None:
            for source in file.codes:
                file.rows = with_base_url(file.rows, source, base_url)
        windows: dict[str, Any] = {} if start is None else {"start_at": start}
        if safety_lag is not None:
            windows["watermark_lag_seconds"] = int(safety_lag.total_seconds())
        file.rows = [
            replace(row, values={**row.values, **windows})
            if row.table is CONFIGURATIONS["window"].table and row.values.get("start_at") is not None
            else row
            for row in file.rows
        ]
        return file


def read_file(content: bytes, name: str) -> RegistryFile:
    file = RegistryFile(name)
    try:
        document = read_document(content)
    except NotYaml as error:
        file.problems.append(error.problem)
        return file
    if document is None:
        file.problems.append(Problem(1, "expected sources, found nothing"))
        return file
    top = Fields.of(document, "the file", file.problems, (), ("sources", "dictionaries", "fields"))
    for node in top.items("dictionaries"):
        _read_dictionary(node, file)
    for node in top.items("fields"):
        _read_field_key(node, file)
    for node in top.items("sources"):
        _read_source(node, file)
    if not (file.problems or file.sources or file.dictionary_items or file.field_keys):
        file.problems.append(Problem(top.line, "expected sources, found none"))
    _refuse_duplicates(file)
    file.rows = [_complete(row, file) for row in file.rows]
    return file


def with_base_url(rows: Sequence[FileRow], code: str, base_url: str) -> list[FileRow]:
    """The rows with every address of the source replaced; plain http is permitted where the address has it."""
    http, base_url = CONFIGURATIONS["http"].table, base_url.rstrip("/")
    changed: list[FileRow] = []
    has_source_row = False
    allowed = {"plain_http_allowed": True} if base_url.lower().startswith("http://") else {}
    for row in rows:
        if row.table is http and row.values["provenance_code"] == code:
            is_source_row = row.values.get("endpoint_name") is None and row.values["operation_type"] == ALL
            has_source_row |= is_source_row
            address = {"base_url_override": base_url} if is_source_row or row.values.get("base_url_override") else {}
            row = replace(row, values={**row.values, **address, **allowed})
        changed.append(row)
    if not has_source_row:
        own = {"provenance_code": code, "endpoint_name": None, "operation_type": ALL, "base_url_override": base_url}
        changed.append(FileRow(http, _completed(http, {**own, **allowed}, ()), 1))
    return changed


def _read_source(node: yaml.Node, file: RegistryFile) -> None:
    optional = [name for name in SOURCE_FIELDS if name not in ("code", "name")]
    fields = Fields.of(
        node, "source", file.problems, ("code", "name"), (*optional, *_SCOPED, "operations", "endpoints")
    )
    values, lines = _read_values(fields, SOURCE_FIELDS)
    if not fields.nodes:
        return
    # a source without a code of its own is read all the same: all of its problems are told at once
    code = values.get("provenance_code", f"?{fields.line}")
    if code in file.codes:
        fields.problem(fields.line, f"code: {code} is there twice")
    complete = {"timezone_default": "UTC", "is_active": True, "base_url_default": None, "docs_url": None, **values}
    complete["provenance_code"] = code
    file.sources.append(FileRow(reg_provenance, {"provenance_name": code, **complete}, fields.line, lines))
    _read_scope(fields, file, code, None)
    for endpoint in fields.items("endpoints"):
        _read_endpoint(endpoint, file, code)


def _read_endpoint(node: yaml.Node, file: RegistryFile, code: str) -> None:
    fields = Fields.of(node, "endpoint", file.problems, ENDPOINT.required, (*ENDPOINT.optional, *_SCOPED, "operations"))
    values, lines = _read_values(fields, ENDPOINT.fields)
    if not fields.nodes:
        return
    name = values.get("endpoint_name", f"?{fields.line}")
    scope = {"provenance_code": code, "operation_type": ALL, "endpoint_name": name}
    file.rows.append(FileRow(ENDPOINT.table, {**scope, **values}, fields.line, lines))
    _read_scope(fields, file, code, name)


def _read_scope(fields: Fields, file: RegistryFile, code: str, endpoint: str | None) -> None:
    """The sections of a source or an endpoint, for all operations and for single ones."""
    _read_sections(fields, file, {"provenance_code": code, "endpoint_name": endpoint, "operation_type": ALL})
    node = fields.nodes.get("operations")
    if node is None:
        return
    operations = Fields.of(node, "operations", file.problems, (), tuple(Operation))
    for operation, inner in operations.nodes.items():
        if operation in tuple(Operation):
            own = Fields.of(inner, operation, file.problems, (), _SCOPED)
            _read_sections(own, file, {"provenance_code": code, "endpoint_name": endpoint, "operation_type": operation})


def _read_sections(fields: Fields, file: RegistryFile, scope: Mapping[str, Any]) -> None:
    for name, section in CONFIGURATIONS.items():
        if name in fields.nodes:
            _read_row(fields.nodes[name], file, name, section, scope)
    for name, section in LISTS.items():
        for node in fields.items(name):
            _read_row(node, file, name, section, scope)


def _read_row(node: yaml.Node, file: RegistryFile, name: str, section: Section, scope: Mapping[str, Any]) -> None:
    before = len(file.problems)
    fields = Fields.of(node, name, file.problems, section.required, section.optional)
    values, lines = _read_values(fields, section.fields)
    if len(file.problems) == before or all(key in values for key in section.key):
        file.rows.append(FileRow(section.table, {**scope, **values}, fields.line, lines))


def _read_values(fields: Fields, readers: Mapping[str, Reader]) -> tuple[dict[str, Any], dict[str, int]]:
    values: dict[str, Any] = {}
    lines: dict[str, int] = {}
    for name, reader in readers.items():
        if name in fields.nodes:
            found = reader.read(fields, name)
            values |= found
            lines |= dict.fromkeys(found, line_of(fields.nodes[name]))
    return values, lines


def _refuse_duplicates(file: RegistryFile) -> None:
    first: dict[tuple[str, tuple[Any, ...]], int] = {}
    for row in file.rows:
        known = first.setdefault((row.table.name, row.key), row.line)
        if known != row.line:
            name = ".".join(str(part) for part in row.key if part not in (None, ALL))
            file.problems.append(Problem(row.line, f"{name} is there twice, first in line {known}"))


def _complete(row: FileRow, file: RegistryFile) -> FileRow:
    """The row with a value for each column.

    A column that may not be null cannot say "as in the broader row": a row of an endpoint or of an operation that does
    not mention it takes the broader row's value when the file is read.
    """
    broader = list(_broader_rows(row, file.rows))
    values = _completed(row.table, row.values, [each.values for each in broader])
    for column in data_columns(row.table):
        # an endpoint's own fields are asked for when it is read
        if values[column.name] is None and not column.nullable and row.table is not ENDPOINT.table:
            file.problems.append(Problem(row.line, f"{field_name(row.table.name, column.name)} is missing"))
    return replace(row, values=values)


def _completed(table: Table, values: Mapping[str, Any], broader: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    complete: dict[str, Any] = {}
    for column in data_columns(table):
        name = column.name
        if name in values:
            complete[name] = values[name]
        elif column.nullable:
            complete[name] = None
        else:
            inherited = next((each[name] for each in broader if each.get(name) is not None), None)
            complete[name] = inherited if inherited is not None else _IMPLIED.get(name, default_value(column))
    return complete


def _broader_rows(row: FileRow, rows: Sequence[FileRow]) -> Iterator[FileRow]:
    """Rows of the same table and key with a broader scope, from the nearest to the broadest."""
    endpoint, operation = row.values.get("endpoint_name"), row.values["operation_type"]
    scopes = [(endpoint, ALL), (None, operation), (None, ALL)]
    for scope in scopes:
        if row.table is ENDPOINT.table or scope == (endpoint, operation):
            continue
        yield from (
            each
            for each in rows
            if each.table is row.table
            and each.values["provenance_code"] == row.values["provenance_code"]
            and (each.values.get("endpoint_name"), each.values["operation_type"]) == scope
            and each.key[3:] == row.key[3:]
        )


def _read_dictionary(node: yaml.Node, file: RegistryFile) -> None:
    fields = Fields.of(node, "dictionary", file.problems, ("type", "items"), ("name",))
    kind, name = fields.text("type", longest=64), fields.text("name", longest=128)
    if kind is None:
        return
    file.dictionary_types[kind.value] = kind.value if name is None else name.value
    for inner in fields.items("items"):
        item = Fields.of(inner, "dictionary item", file.problems, ("code",), ("name", "aliases"))
        code, label = item.text("code", longest=64, plain=True), item.text("name", longest=128)
        if code is not None:
            label_text = code.value if label is None else label.value
            file.dictionary_items.append(DictionaryItem(kind.value, code.value, label_text))
            for alias_node in item.items("aliases"):
                alias = Fields.of(alias_node, "alias", file.problems, ("source", "code"))
                source, external = alias.text("source", longest=64), alias.text("code", longest=128, plain=True)
                if source is not None and external is not None:
                    file.dictionary_aliases.append(
                        DictionaryAlias(kind.value, code.value, source.value, external.value)
                    )


def _read_field_key(node: yaml.Node, file: RegistryFile) -> None:
    fields = Fields.of(node, "field", file.problems, ("key", "type"), ("name", "description", "path", "cardinality"))
    found = {
        "field_key": fields.text("key", longest=64),
        "data_type_code": fields.text("type", longest=32),
        "display_name": fields.text("name", longest=128),
        "description": fields.text("description", longest=512),
        "default_path": fields.text("path", longest=255),
        "cardinality_code": fields.text("cardinality", longest=32),
    }
    values = {column: None if text is None else text.value for column, text in found.items()}
    if values["field_key"] is not None and values["data_type_code"] is not None:
        file.field_keys.append(FileRow(reg_expr_field_dict, values, fields.line))
