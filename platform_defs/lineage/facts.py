"""What an event says about the asset graph: facts, in names only. The merge (merge/) makes one graph of all of them.

A fact has the version of its event. Extraction (gravitino/, compute/) writes facts and knows no graph; the merge reads
facts and knows no OpenLineage. All names are qualified, so a node's id is a pure function of what the event says.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeAlias

from platform_defs.canonical import canonical_hash


@lru_cache(maxsize=1 << 16)
def _id(kind: str, name: tuple[str, ...]) -> str:
    """Kept: the merge asks for the same few thousand ids again and again."""
    return f"{kind}:{canonical_hash(list(name))[:40]}"


_ABOVE = {"schema": "catalog", "table": "schema", "column": "table"}


@dataclass(frozen=True, slots=True)
class Ref:
    """An asset by its qualified name.

    kind is the id's prefix: catalog (metalake, catalog), schema (+ schema), table (+ table), column (+ column), sql (a
    key of its text or of its job), metric, wordroot, modifier, unit, valuedomain (the code), tag (the name).
    """

    kind: str
    name: tuple[str, ...]
    # computed once: the merge reads them hundreds of times per event
    id: str = field(init=False, compare=False, repr=False)
    parent: "Ref | None" = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "id", _id(self.kind, self.name))
        object.__setattr__(self, "parent", _parent(self.kind, self.name))

    def __hash__(self) -> int:
        return hash(self.id)


@lru_cache(maxsize=1 << 16)
def _parent(kind: str, name: tuple[str, ...]) -> Ref | None:
    above = _ABOVE.get(kind)
    return None if above is None else Ref(above, name[:-1])


@dataclass(frozen=True, slots=True)
class Exists:
    """The asset exists, under this graph label, with these properties; a property that is None is removed.

    A property `properties.KEY` is one entry of the map `properties`, versioned by itself. all_entries: these are all
    that the map has; others, which were said before, are gone. (Columns have no such map.)
    """

    ref: Ref
    label: str
    props: Mapping[str, Any] = field(default_factory=dict)
    all_entries: bool = False


@dataclass(frozen=True, slots=True)
class Dropped:
    """The asset and all below it are gone: nothing that was said of them before this version counts any more."""

    ref: Ref


@dataclass(frozen=True, slots=True)
class Renamed:
    """What was said of `ref` before this version is said of `new` (same kind: table or column) with all below it."""

    ref: Ref
    new: Ref


@dataclass(frozen=True, slots=True)
class ColumnSet:
    """The table has exactly these columns (each a column Ref with its properties), in order."""

    table: Ref
    columns: tuple[Exists, ...]


@dataclass(frozen=True, slots=True)
class Linked:
    type: str
    source: Ref
    target: Ref
    props: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Unlinked:
    type: str
    source: Ref
    target: Ref


@dataclass(frozen=True, slots=True)
class LinkSet:
    """The outgoing links of these types are exactly these; others of these types from `source` are gone."""

    source: Ref
    types: frozenset[str]
    links: tuple[Linked, ...]


@dataclass(frozen=True, slots=True)
class ColumnsUnlinked:
    """The outgoing links of these types of all columns of the table are gone, whichever columns it has."""

    table: Ref
    types: frozenset[str]


Fact: TypeAlias = Exists | Dropped | Renamed | ColumnSet | Linked | Unlinked | LinkSet | ColumnsUnlinked
