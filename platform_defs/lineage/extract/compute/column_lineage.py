"""Column lineage as the `columnLineage` facet says it: per output column, and for the output dataset as a whole."""

from collections.abc import Iterator, Mapping
from typing import Any

from platform_defs.canonical import canonical_json
from platform_defs.lineage.events import facet_of
from platform_defs.lineage.extract.compute.names import Names
from platform_defs.lineage.facts import Ref

# (output column, input column) -> what happened on the way
Sources = dict[tuple[Ref, Ref], list[Mapping[str, Any]]]


def facet_sources(table: Ref, facet: Mapping[str, Any], columns: list[str], names: Names) -> Sources:
    """All pairs of columns that the facet ties; `columns` are the output's, which the whole-dataset inputs apply to."""
    sources: Sources = {}
    fields = facet.get("fields")
    outputs = {name: content for name, content in fields.items() if name} if isinstance(fields, dict) else {}
    for name in outputs:
        # an old form says the transformation once for the field; the newer one says it for each input
        content = facet_of(outputs, name)
        for source, item in _input_fields(content.get("inputFields"), names):
            _add(sources, _column(table, name), source, _transformations(item) or _old_transformation(content))
    # inputs that shaped the rows, such as filters and joins, concern every column
    for source, item in _input_fields(facet.get("dataset"), names):
        for name in outputs or columns:
            _add(sources, _column(table, name), source, _transformations(item))
    return sources


def edge_props(transformations: list[Mapping[str, Any]]) -> dict[str, Any]:
    """The properties of a DERIVES_FROM edge: a direct transformation speaks for it, all of them stand beside it."""
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


def _add(sources: Sources, output: Ref, source: Ref, transformations: list[dict[str, Any]]) -> None:
    known = sources.setdefault((output, source), [])
    known.extend(item for item in transformations if item not in known)


def _input_fields(value: object, names: Names) -> Iterator[tuple[Ref, Mapping[str, Any]]]:
    for item in value if isinstance(value, list) else ():
        if not isinstance(item, dict):
            continue
        namespace, name, field = item.get("namespace"), item.get("name"), item.get("field")
        if all(isinstance(part, str) and part.strip() for part in (namespace, name, field)):
            yield _column(names.named(str(namespace), str(name)), str(field)), item


def _transformations(item: Mapping[str, Any]) -> list[dict[str, Any]]:
    value = item.get("transformations")
    return [_said(entry) for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _old_transformation(content: Mapping[str, Any]) -> list[dict[str, Any]]:
    old = {"type": content.get("transformationType"), "description": content.get("transformationDescription")}
    said = _said(old)
    return [said] if said else []


def _said(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Only what is there, in the types that an edge can hold."""
    kept: dict[str, Any] = {}
    for key in ("type", "subtype", "description"):
        if isinstance(value := entry.get(key), str) and value:
            kept[key] = value
    if isinstance(masking := entry.get("masking"), bool):
        kept["masking"] = masking
    return kept


def _column(table: Ref, name: str) -> Ref:
    return Ref("column", (*table.name, name))
