"""Shared by all Gravitino operations: the datasets that an operation is about, and their `gravitino` facets."""

from collections.abc import Mapping
from typing import Any

from platform_defs.lineage.events import Dataset, Event
from platform_defs.lineage.extract.columns import is_deleted, pick_props


def target_datasets(event: Event) -> tuple[Dataset, ...]:
    """The datasets that an operation is about: its outputs, or the inputs of an operation that only loads."""
    return event.outputs or event.inputs or tuple(event.datasets)


def facet_props(facet: Mapping[str, Any], keys: Mapping[str, str]) -> dict[str, Any]:
    """The properties that the facet gives to an asset; a deleted facet removes all that it could have given."""
    if is_deleted(facet):
        return dict.fromkeys(keys.values())
    return {**pick_props(facet, keys), **entry_props(facet.get("properties"))}


def says_all_entries(facet: Mapping[str, Any]) -> bool:
    """Whether the facet lists all entries of the map `properties`; a deleted facet says that there are none."""
    return is_deleted(facet) or isinstance(facet.get("properties"), dict)


def entry_props(properties: object) -> dict[str, Any]:
    """One property `properties.KEY` per entry of the map `properties`, because each entry has its own version."""
    if not isinstance(properties, dict):
        return {}
    return {f"properties.{key}": value if value is None else text_of(value) for key, value in properties.items()}


def text_of(value: object) -> str:
    """The value of an entry as text: Gravitino sends texts, other listeners may send numbers and booleans."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
