"""Semantic assets travel as key/value pairs: a field of the `schema` facet is a pair of `name` and `description`."""

from platform_defs.lineage.events import Dataset


def pairs_of(dataset: Dataset) -> dict[str, str | None]:
    """The pairs of a dataset; a key with null is there, with None."""
    fields = dataset.facet("schema").get("fields")
    pairs: dict[str, str | None] = {}
    for item in fields if isinstance(fields, list) else ():
        if isinstance(item, dict) and type(key := item.get("name")) is str:
            value = item.get("description")
            pairs[key] = None if value is None else str(value)
    return pairs
