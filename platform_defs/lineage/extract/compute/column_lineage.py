"""Reads the `columnLineage` facet: the inputs of each output column, and inputs of the output dataset as a whole."""

from collections.abc import Iterator, Mapping
from typing import Any

from platform_defs.canonical import canonical_json
from platform_defs.lineage.events import facet_of
from platform_defs.lineage.extract.compute.names import LogicalTables
from platform_defs.lineage.facts import Ref

# (output column, or the output table as a whole, input column) -> the transformations between them
ColumnSources = dict[tuple[Ref, Ref], list[Mapping[str, Any]]]


def read_column_lineage(table: Ref, facet: Mapping[str, Any], tables: LogicalTables) -> ColumnSources:
    """All pairs that the facet connects.

    Inputs of the dataset as a whole decided which rows there are (filters, joins): they are inputs of the table itself.
    """
    sources: ColumnSources = {}
    fields = facet.get("fields")
    outputs = {name: content for name, content in fields.items() if name} if isinstance(fields, dict) else {}
    for name in outputs:
        # older producers state one transformation for the whole output column, newer ones one for each input
        content = facet_of(outputs, name)
        for source, item in _input_fields(content.get("inputFields"), tables):
            _add(sources, _column(table, name), source, _transformations(item) or _old_transformation(content))
    for source, item in _input_fields(facet.get("dataset"), tables):
        _add(sources, table, source, _transformations(item))
    return sources


def edge_props(transformations: list[Mapping[str, Any]]) -> dict[str, Any]:
    """The properties of a DERIVES_FROM edge: those of one transformation, DIRECT ones first, and a list of all."""
    if not transformations:
        return {}
    first = transformations[0]
    if len(transformations) > 1:
        first = min(transformations, key=lambda item: (item.get("type") != "DIRECT", canonical_json(item)))
    props: dict[str, Any] = {
        prop: first[key]
        for key, prop in (
            ("type", "transformationType"),
            ("subtype", "transformationSubtype"),
            ("description", "transformationDescription"),
            ("masking", "masking"),
        )
        if key in first
    }
    if len(transformations) > 1:
        props["transformations"] = canonical_json(sorted(transformations, key=canonical_json))
    return props


def _add(sources: ColumnSources, output: Ref, source: Ref, transformations: list[dict[str, Any]]) -> None:
    known = sources.setdefault((output, source), [])
    known.extend(item for item in transformations if item not in known)


def _input_fields(value: object, tables: LogicalTables) -> Iterator[tuple[Ref, Mapping[str, Any]]]:
    for item in value if isinstance(value, list) else ():
        if not isinstance(item, dict):
            continue
        namespace, name, field = item.get("namespace"), item.get("name"), item.get("field")
        if all(isinstance(part, str) and part.strip() for part in (namespace, name, field)):
            yield _column(tables.by_name(str(namespace), str(name)), str(field)), item


def _transformations(item: Mapping[str, Any]) -> list[dict[str, Any]]:
    value = item.get("transformations")
    return (
        [_clean_transformation(entry) for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []
    )


def _old_transformation(content: Mapping[str, Any]) -> list[dict[str, Any]]:
    old = {"type": content.get("transformationType"), "description": content.get("transformationDescription")}
    transformation = _clean_transformation(old)
    return [transformation] if transformation else []


def _clean_transformation(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The known keys of a transformation, without empty values and values of a wrong type."""
    kept: dict[str, Any] = {}
    for key in ("type", "subtype", "description"):
        if isinstance(value := entry.get(key), str) and value:
            kept[key] = value
    if isinstance(masking := entry.get("masking"), bool):
        kept["masking"] = masking
    return kept


def _column(table: Ref, name: str) -> Ref:
    return Ref("column", (*table.name, name))
