"""Operations on catalogs and schemas."""

from collections.abc import Mapping
from typing import Any

from platform_defs.lineage.events import Dataset, Event
from platform_defs.lineage.extract.columns import is_deleted, picked
from platform_defs.lineage.extract.facts_builder import Assets, Found
from platform_defs.lineage.extract.gravitino.names import ref_of
from platform_defs.lineage.facts import Dropped

_KEYS = {
    "catalog": {
        "type": "catalogType",
        "catalogType": "catalogType",
        "provider": "provider",
        "description": "description",
        "comment": "description",
    },
    "schema": {"comment": "description", "description": "description"},
}


def upsert_catalog(event: Event) -> Found:
    return _upsert("catalog", event)


def drop_catalog(event: Event) -> Found:
    return drop("catalog", event)


def upsert_schema(event: Event) -> Found:
    return _upsert("schema", event)


def drop_schema(event: Event) -> Found:
    return drop("schema", event)


def drop(kind: str, event: Event) -> Found:
    """All that hangs below goes with it; the merge knows what that is."""
    refs = (ref_of(kind, dataset) for dataset in targets(event))
    return Found(tuple(Dropped(ref) for ref in dict.fromkeys(refs) if ref is not None))


def targets(event: Event) -> tuple[Dataset, ...]:
    """The datasets that an operation is about: what it wrote, or what a load read."""
    return event.outputs or event.inputs or tuple(event.datasets)


def facet_props(facet: Mapping[str, Any], keys: Mapping[str, str]) -> dict[str, Any]:
    """What the gravitino facet says of an asset; a deleted facet takes back everything it could have said."""
    if is_deleted(facet):
        return dict.fromkeys(keys.values())
    return {**picked(facet, keys), **entries(facet.get("properties"))}


def has_all_entries(facet: Mapping[str, Any]) -> bool:
    """Whether the map `properties` is told whole; an absent one says nothing, a deleted facet leaves none."""
    return is_deleted(facet) or isinstance(facet.get("properties"), dict)


def entries(properties: object) -> dict[str, Any]:
    """One property per entry of the map `properties`, as each has its own version."""
    if not isinstance(properties, dict):
        return {}
    return {f"properties.{key}": value if value is None else text_of(value) for key, value in properties.items()}


def text_of(value: object) -> str:
    """Gravitino's maps hold strings; a number or a boolean of another listener reads the same."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _upsert(kind: str, event: Event) -> Found:
    assets = Assets()
    for dataset in targets(event):
        ref = ref_of(kind, dataset)
        if ref is not None:
            facet = dataset.facet("gravitino")
            assets.exists(ref, facet_props(facet, _KEYS[kind]), all_entries=has_all_entries(facet))
    return Found(assets.facts)
