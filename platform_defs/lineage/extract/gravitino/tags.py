"""The operation associate_tags: links an asset to tags, and to a value domain by a tag named `vd:<CODE>`."""

from typing import Any

from platform_defs.graph.asset_kinds import CONTAINERS
from platform_defs.lineage.events import Dataset, Event
from platform_defs.lineage.extract.columns import is_deleted
from platform_defs.lineage.extract.facts_builder import ExtractedFacts
from platform_defs.lineage.extract.gravitino.facets import target_datasets
from platform_defs.lineage.extract.gravitino.names import ref_of
from platform_defs.lineage.facts import Fact, Linked, LinkSet, Ref, Unlinked

VALUE_DOMAIN_PREFIX = "vd:"

_EDGES = frozenset({"HAS_TAG", "HAS_VALUE_DOMAIN"})


def associate_tags(event: Event) -> ExtractedFacts:
    facts: list[Fact] = []
    for dataset in target_datasets(event):
        facts.extend(_facts(dataset))
    return ExtractedFacts(tuple(facts))


def _facts(dataset: Dataset) -> list[Fact]:
    """The links of a dataset to its tags: all of them if the event lists all, else those that it adds and removes."""
    facet = dataset.facet("gravitinoTag")
    kind = str(facet.get("objectType", "")).lower()
    tagged = ref_of(kind, dataset) if kind in CONTAINERS else None
    if tagged is None:
        return []
    if is_deleted(facet):
        return [LinkSet(tagged, _EDGES, ())]
    added, removed = _names(facet.get("tagsToAdd")), _names(facet.get("tagsToRemove"))
    whole = facet.get("associatedTags")
    # The resulting set of tags says more than the change. It is ignored if it contradicts the change.
    if isinstance(whole, list) and set(added) <= set(_names(whole)) and not set(removed) & set(_names(whole)):
        return [LinkSet(tagged, _EDGES, tuple(_link(tagged, name) for name in _names(whole)))]
    links = [_link(tagged, name) for name in removed]
    unlinked = [Unlinked(link.type, link.source, link.target) for link in links]
    return [*unlinked, *(_link(tagged, name) for name in added)]


def _link(tagged: Ref, name: str) -> Linked:
    if name.startswith(VALUE_DOMAIN_PREFIX) and len(name) > len(VALUE_DOMAIN_PREFIX):
        return Linked("HAS_VALUE_DOMAIN", tagged, Ref("valuedomain", (name.removeprefix(VALUE_DOMAIN_PREFIX),)))
    return Linked("HAS_TAG", tagged, Ref("tag", (name,)))


def _names(value: Any) -> list[str]:
    names = value if isinstance(value, list) else ()
    return list(dict.fromkeys(name for name in names if isinstance(name, str) and name))
