"""Operations on word roots, modifiers, units, value domains and tags: one asset per key/value dataset."""

import json
from typing import Any

from platform_defs.lineage.events import Event
from platform_defs.lineage.extract.facts_builder import Assets, Found
from platform_defs.lineage.extract.gravitino.containers import entries, targets
from platform_defs.lineage.extract.gravitino.pairs import pairs_of
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


def upsert(kind: str, event: Event) -> Found:
    assets = Assets()
    for dataset in targets(event):
        pairs = pairs_of(dataset)
        if code := pairs.get(_identity(kind)):
            props: dict[str, Any] = {prop: pairs[key] for key, prop in _KEYS[kind].items() if key in pairs}
            properties = _json(pairs.get("properties")) if kind == "tag" else None
            assets.exists(Ref(kind, (code,)), props | entries(properties), all_entries=isinstance(properties, dict))
    return Found(assets.facts)


def drop(kind: str, event: Event) -> Found:
    codes = (pairs_of(dataset).get(_identity(kind)) for dataset in targets(event))
    return Found(tuple(Dropped(Ref(kind, (code,))) for code in dict.fromkeys(codes) if code))


def _identity(kind: str) -> str:
    return "name" if kind == "tag" else "code"


def _json(text: str | None) -> object:
    try:
        return json.loads(text or "null")
    except (ValueError, RecursionError):
        return None
