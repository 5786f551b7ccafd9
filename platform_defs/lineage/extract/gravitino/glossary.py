"""Operations on word roots, modifiers, units, value domains and tags. Each dataset describes one of them."""

import json
from typing import Any

from platform_defs.lineage.events import Event
from platform_defs.lineage.extract.facts_builder import ExtractedFacts, FactsBuilder
from platform_defs.lineage.extract.gravitino.facets import entry_props, target_datasets
from platform_defs.lineage.extract.gravitino.pairs import read_pairs
from platform_defs.lineage.facts import Dropped, Ref

# kind -> key of the pair -> property
_KEYS = {
    "wordroot": {"name": "name", "dataType": "dataType", "comment": "description"},
    "modifier": {"name": "name", "modifierType": "modifierType", "comment": "description"},
    "unit": {"name": "name", "symbol": "symbol", "comment": "description"},
    "valuedomain": {
        "name": "name",
        "domainType": "domainType",
        "domainLevel": "domainLevel",
        "items": "items",
        "dataType": "dataType",
        "comment": "description",
    },
    "tag": {"comment": "description"},
}


def upsert_terms(kind: str, event: Event) -> ExtractedFacts:
    builder = FactsBuilder()
    for dataset in target_datasets(event):
        pairs = read_pairs(dataset)
        if code := pairs.get(_id_key(kind)):
            props: dict[str, Any] = {prop: pairs[key] for key, prop in _KEYS[kind].items() if key in pairs}
            properties = _read_json(pairs.get("properties")) if kind == "tag" else None
            builder.exists(
                Ref(kind, (code,)), props | entry_props(properties), all_entries=isinstance(properties, dict)
            )
    return ExtractedFacts(builder.facts)


def drop_terms(kind: str, event: Event) -> ExtractedFacts:
    codes = (read_pairs(dataset).get(_id_key(kind)) for dataset in target_datasets(event))
    return ExtractedFacts(tuple(Dropped(Ref(kind, (code,))) for code in dict.fromkeys(codes) if code))


def _id_key(kind: str) -> str:
    """The key of the pair that identifies an asset of this kind."""
    return "name" if kind == "tag" else "code"


def _read_json(text: str | None) -> object:
    try:
        return json.loads(text or "null")
    except (ValueError, RecursionError):
        return None
