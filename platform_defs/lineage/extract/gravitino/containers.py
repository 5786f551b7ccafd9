"""Operations on catalogs and schemas; drops of tables are the same as theirs."""

from platform_defs.lineage.events import Event
from platform_defs.lineage.extract.facts_builder import ExtractedFacts, FactsBuilder
from platform_defs.lineage.extract.gravitino.facets import facet_props, says_all_entries, target_datasets
from platform_defs.lineage.extract.gravitino.names import ref_of
from platform_defs.lineage.facts import Dropped

# kind -> key of the facet -> property
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


def upsert_catalog(event: Event) -> ExtractedFacts:
    return _upsert_containers("catalog", event)


def drop_catalog(event: Event) -> ExtractedFacts:
    return drop_assets("catalog", event)


def upsert_schema(event: Event) -> ExtractedFacts:
    return _upsert_containers("schema", event)


def drop_schema(event: Event) -> ExtractedFacts:
    return drop_assets("schema", event)


def drop_assets(kind: str, event: Event) -> ExtractedFacts:
    """Drops the assets that the event names; the merge also drops everything below them."""
    refs = (ref_of(kind, dataset) for dataset in target_datasets(event))
    return ExtractedFacts(tuple(Dropped(ref) for ref in dict.fromkeys(refs) if ref is not None))


def _upsert_containers(kind: str, event: Event) -> ExtractedFacts:
    builder = FactsBuilder()
    for dataset in target_datasets(event):
        ref = ref_of(kind, dataset)
        if ref is not None:
            facet = dataset.facet("gravitino")
            builder.exists(ref, facet_props(facet, _KEYS[kind]), all_entries=says_all_entries(facet))
    return ExtractedFacts(builder.facts)
