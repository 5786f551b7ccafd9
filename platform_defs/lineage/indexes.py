"""Indexes of tables: the list of all that a facet gives, and single ones that changes have added or deleted since.

A listener may describe a table with its list of indexes when it is loaded, and send only the changes when it is
altered. The merge knows properties alone: the newest fact about each one counts. So each single index is a property of
its own, which no map of properties replaces, and `hide_outdated` decides which of them still count beside the list.
That follows from the stamps, so it is the same in whatever order the events arrive.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

from platform_defs.canonical import canonical_hash, canonical_json

# the list of all indexes, as the facet gives it
LIST = "indexes"
# Has never a value: its stamp is that of the newest change that deleted an index and came without a list.
_DELETED = "indexDeleted"
_SINGLE = "index_"

S = TypeVar("S", bound=str)


def added_index(change: Mapping[str, Any], name: str) -> dict[str, str]:
    """The property that describes an index which a change has added."""
    index = {"name": name, "type": change.get("indexType"), "columns": change.get("indexColumns")}
    return {_single(name): canonical_json(index)}


def deleted_index(name: str) -> dict[str, None]:
    """What removes a deleted index: alone, and with the list that may still name it."""
    return {_single(name): None, _DELETED: None}


def is_of_changes(property: str) -> bool:
    """Whether only changes give this property. It says nothing new if the list comes with the changes."""
    return property == _DELETED or property.startswith(_SINGLE)


def hide_outdated(props: dict[str, tuple[S, Any]]) -> None:
    """Removes the values of single indexes that are older than the list, and of a list older than a deleted index.

    props: stamp and value of each property of a table. The stamps stay, so that late events change nothing.
    """
    if LIST not in props:
        return
    listed_at = props[LIST][0]
    for name, (at, value) in props.items():
        if value is not None and name.startswith(_SINGLE) and at < listed_at:
            props[name] = (at, None)
    if _DELETED in props and props[_DELETED][0] > listed_at:
        props[LIST] = (listed_at, None)


def _single(name: str) -> str:
    """Names of indexes may hold anything, and Neo4j never forgets the name of a property: so there are not too many."""
    return f"{_SINGLE}{canonical_hash(name)[:5]}"
