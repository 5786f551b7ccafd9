"""Rows that were written by hand may hold JSON of another shape: each such value is a finding, and then left out."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy import Table

from platform_defs.ingest.codes import Operation
from platform_defs.ingest.registry.rows import RegistryRows, Row
from platform_defs.ingest.registry.sections import ALL
from platform_defs.ingest.registry.values import UNIT_SECONDS
from platform_defs.ingest.spec.merging import Findings
from platform_defs.store.tables import registry as tables

LONGEST_WINDOW_S = 100 * 366 * 86_400

_Shape = tuple[str, Callable[[Any], bool]]


def _is_text_map(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(inner, str | int | float | bool) for inner in value.values())


def _is_list_of(kind: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(type(inner) is kind for inner in value)


def _is_output(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(inner, dict) and isinstance(inner.get("name"), str) and isinstance(inner.get("path"), str)
        for inner in value
    )


_TEXT_MAP: _Shape = ("an object of texts", _is_text_map)
_TEXTS: _Shape = ("a list of texts", _is_list_of(str))
_STATUSES: _Shape = ("a list of HTTP statuses", _is_list_of(int))
_SHAPES: Mapping[Table, Mapping[str, _Shape]] = {
    tables.reg_prov_endpoint_def: {
        "default_query_params": _TEXT_MAP,
        "updated_at_formats_json": _TEXTS,
        "error_paths_json": _TEXTS,
        "required_paths_json": _TEXTS,
        "output_fields_json": ("a list of objects with name and path", _is_output),
    },
    tables.reg_prov_http_cfg: {"default_headers_json": _TEXT_MAP, "default_query_json": _TEXT_MAP},
    tables.reg_prov_retry_cfg: {"retry_http_status_json": _STATUSES, "giveup_http_status_json": _STATUSES},
    tables.reg_prov_expr_capability: {"allowed_functions_json": _TEXTS},
}
_SIZES = {"window_size_value": "window_size_unit_code", "min_window_size_value": "min_window_size_unit_code"}


def readable_rows(rows: RegistryRows, endpoint: Row, operation: Operation, findings: Findings) -> RegistryRows:
    """The rows without values that nothing could be made of; those of other endpoints and operations as they are."""
    names = (endpoint["endpoint_name"], endpoint["linked_endpoint_name"], None)

    def clean(table: Table, row: Row) -> Row:
        concerns = (
            row["provenance_code"] == endpoint["provenance_code"]
            and row["endpoint_name"] in names
            and row["operation_type"] in (operation, ALL)
        )
        wrong = _wrong_columns(table, row) if concerns else {}
        for column, expected in wrong.items():
            findings.add(table, column, f"expected {expected}", row["endpoint_name"])
        return {**row, **dict.fromkeys(wrong)} if wrong else row

    checked = (*_SHAPES, tables.reg_prov_window_offset_cfg)
    cleaned = {table.name: [clean(table, row) for row in rows.tables.get(table.name, ())] for table in checked}
    return replace(rows, tables={**rows.tables, **cleaned})


def _wrong_columns(table: Table, row: Row) -> dict[str, str]:
    wrong = {
        column: expected
        for column, (expected, has_shape) in _SHAPES.get(table, {}).items()
        if row[column] is not None and not has_shape(row[column])
    }
    if table is tables.reg_prov_window_offset_cfg:
        for column, unit in _SIZES.items():
            if row[column] is not None and row[column] * UNIT_SECONDS.get(row[unit], 1) > LONGEST_WINDOW_S:
                wrong[column] = "a window of less than a hundred years"
    return wrong
