"""Reads a dataset's columns from its `schema` facet, with the details that the `gravitino` facet adds to them."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from platform_defs.lineage.events import Dataset
from platform_defs.lineage.extract.facts_builder import graph_value
from platform_defs.lineage.facts import Exists, Ref

_SCHEMA_KEYS = {"type": "dataType", "description": "description"}
_GRAVITINO_KEYS = {"nullable": "nullable", "autoIncrement": "autoIncrement", "defaultValue": "defaultValue"}


def is_deleted(facet: Mapping[str, Any]) -> bool:
    return facet.get("_deleted") is True


def schema_columns(table: Ref, dataset: Dataset) -> tuple[Exists, ...] | None:
    """The columns, each once and in order; None if the dataset does not say which columns it has."""
    facet = dataset.facet("schema")
    if is_deleted(facet):
        return ()
    fields = facet.get("fields")
    if not isinstance(fields, list):
        return None
    details = dict(_items_with_name(dataset.facet("gravitino").get("columns")))
    columns: dict[Ref, Exists] = {}
    for name, item in _fields(fields):
        props = {"name": name, **pick_props(item, _SCHEMA_KEYS), **pick_props(details.get(name, {}), _GRAVITINO_KEYS)}
        add_column(columns, Exists(Ref("column", (*table.name, name)), "Column", props))
    return tuple(columns.values())


def add_column(columns: dict[Ref, Exists], column: Exists) -> None:
    """Adds what the event says of a column. If it names the column again, the later counts, except for what is blank.

    Engines do so: a table is read and written, or is among the outputs by its path and by its name.
    """
    known = columns.get(column.ref)
    if known is not None:
        said = {name: value for name, value in column.props.items() if name not in known.props or not is_blank(value)}
        column = replace(column, props={**known.props, **said})
    columns[column.ref] = column


def is_blank(value: object) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def column_names(dataset: Dataset) -> list[str]:
    """The names of the columns that the dataset says it has."""
    facet = dataset.facet("schema")
    return [] if is_deleted(facet) else [name for name, _ in _fields(facet.get("fields"))]


def nested_column_names(dataset: Dataset) -> dict[str, list[str]]:
    """The columns of the dataset's rows, in order, each with the names of the columns inside of it."""
    facet = dataset.facet("schema")
    items = () if is_deleted(facet) else _items_with_name(facet.get("fields"))
    return {name: [f"{name}.{inner}" for inner, _ in _fields(item.get("fields"))] for name, item in items}


def pick_props(source: Mapping[str, Any], keys: Mapping[str, str]) -> dict[str, Any]:
    """The properties that the source has, under the graph's names; null becomes None, which removes a property."""
    return {
        prop: graph_value(source[key])
        for key, prop in keys.items()
        # an engine that does not know a type sends null or "", which must not erase a type that somebody knows
        if key in source and not (prop == "dataType" and is_blank(source[key]))
    }


def _items_with_name(items: object) -> Iterable[tuple[str, Mapping[str, Any]]]:
    for item in items if isinstance(items, list) else ():
        if isinstance(item, dict) and type(name := item.get("name")) is str and name:
            yield name, item


def _fields(items: object) -> Iterable[tuple[str, Mapping[str, Any]]]:
    """The fields of a schema by name; a field inside of a field is a column that is named by its dotted path."""
    for name, item in _items_with_name(items):
        yield name, item
        for inner, inner_item in _fields(item.get("fields")):
            yield f"{name}.{inner}", inner_item
