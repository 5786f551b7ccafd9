"""Collects the facts of one event: one Exists per asset with all its properties, parents before children."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from platform_defs.canonical import canonical_json
from platform_defs.graph.asset_kinds import ASSET_KINDS
from platform_defs.graph.checks import INT64
from platform_defs.lineage.facts import ColumnSet, Exists, Fact, Linked, Ref


@dataclass(frozen=True, slots=True)
class ExtractedFacts:
    """The facts of an event. sql: the SQL node that the event ran, if any."""

    facts: tuple[Fact, ...]
    sql: Ref | None = None


class FactsBuilder:
    """Facts in the order in which they apply; all that is said of one asset becomes one Exists, at the first place."""

    def __init__(self) -> None:
        self._facts: list[Fact | None] = []
        self._props: dict[Ref, dict[str, Any]] = {}
        self._places: dict[Ref, int] = {}
        self._labels: dict[Ref, str] = {}
        self._with_all_entries: set[Ref] = set()
        self._seen: set[tuple[str, Ref, Ref]] = set()
        self._in_sets: set[Ref] = set()

    def exists(
        self,
        ref: Ref,
        props: Mapping[str, Any] | None = None,
        *,
        label: str | None = None,
        all_entries: bool = False,
    ) -> None:
        """The asset exists, and so do all assets above it; each has at least the properties that its name gives."""
        # a ColumnSet says the same of its columns, and costs nothing in the merge if it is unchanged
        if ref in self._in_sets and not props:
            return
        if ref not in self._props:
            if (parent := ref.parent) is not None:
                self.exists(parent)
            self._props[ref] = _props_of_name(ref)
            self._labels[ref] = label or ASSET_KINDS[ref.kind].labels[0]
            self._places[ref] = len(self._facts)
            self._facts.append(None)
        if props:
            self._props[ref].update(props)
        if all_entries:
            self._with_all_entries.add(ref)

    def link(self, link: Linked) -> None:
        """Adds an edge, unless one of the same type between the same ends was added before."""
        key = (link.type, link.source, link.target)
        if key not in self._seen:
            self._seen.add(key)
            self._facts.append(link)

    def add(self, fact: Fact) -> None:
        if isinstance(fact, ColumnSet):
            self._in_sets.update(column.ref for column in fact.columns)
        self._facts.append(fact)

    @property
    def facts(self) -> tuple[Fact, ...]:
        facts = list(self._facts)
        for ref, place in self._places.items():
            facts[place] = Exists(ref, self._labels[ref], self._props[ref], ref in self._with_all_entries)
        return tuple(fact for fact in facts if fact is not None)


def graph_value(value: Any) -> Any:
    """A value that a graph property can hold: objects, arrays and very large integers become text."""
    if value is None or type(value) in (str, bool, float):
        return value
    if type(value) is int:
        return value if value in INT64 else str(value)
    return canonical_json(value)


def _props_of_name(ref: Ref) -> dict[str, Any]:
    """The properties that follow from the asset's qualified name."""
    match ref.kind:
        case "catalog":
            return {"name": ref.name[1], "metalake": ref.name[0]}
        case "schema" | "table" | "column" | "tag":
            return {"name": ref.name[-1]}
        case "sql":
            return {}
    return {"code": ref.name[0]}
