"""Reads the key/value pairs in which Gravitino sends metrics, glossary terms and tags.

Each field of the `schema` facet is one pair: its `name` is the key, its `description` the value.
"""

from platform_defs.lineage.events import Dataset


def read_pairs(dataset: Dataset) -> dict[str, str | None]:
    """The pairs of a dataset; a key whose value is null has the value None."""
    fields = dataset.facet("schema").get("fields")
    pairs: dict[str, str | None] = {}
    for item in fields if isinstance(fields, list) else ():
        if isinstance(item, dict) and type(key := item.get("name")) is str:
            value = item.get("description")
            pairs[key] = None if value is None else str(value)
    return pairs
