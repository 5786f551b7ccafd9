"""A slow reference for the merge: computes the graph from the whole set of events at once and remembers nothing."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from platform_defs.access.tenants import Tenant
from platform_defs.canonical import canonical_json
from platform_defs.graph.model import Edge, Node
from platform_defs.graph.text import graph_lines
from platform_defs.lineage.facts import (
    ColumnSet,
    ColumnsUnlinked,
    Dropped,
    Exists,
    Fact,
    Linked,
    LinkSet,
    Ref,
    Renamed,
    Unlinked,
)
from platform_defs.lineage.sink.apply import EventFacts

LABELS = {"catalog": "Catalog", "schema": "Schema", "table": "Table", "column": "Column", "sql": "SQL", "tag": "Tag"}
NAMED = ("catalog", "schema", "table", "column", "tag")
BELOW = {"schema": "HAS_SCHEMA", "table": "HAS_TABLE", "column": "HAS_COLUMN"}
OWNS = {"catalog": "OWNS_CATALOG", "sql": "OWNS_SQL", "tag": "OWNS_TAG", "metric": "OWNS_METRIC"}


class Reference:
    def __init__(self, tenant: Tenant, events: Iterable[EventFacts]) -> None:
        self.tenant = tenant
        unique = {event.version: event for event in events}
        self.facts: list[tuple[str, Fact]] = [
            (f"{version}{place:05}", fact)
            for version in sorted(unique)
            for place, fact in enumerate(unique[version].facts)
        ]
        self.links = [
            (at, link)
            for at, fact in self.facts
            for link in (fact.links if isinstance(fact, LinkSet) else [fact] if isinstance(fact, Linked) else [])
        ]

    def lines(self) -> list[str]:
        return list(graph_lines(self))  # type: ignore[arg-type]

    def stream(self) -> Iterator[Node | Edge]:
        nodes = self._nodes()
        yield from sorted(nodes.values(), key=lambda node: node.id)
        edges = [*self._derived(nodes), *self._linked(nodes)]
        yield from sorted(edges, key=lambda edge: (edge.from_id, edge.type, edge.to_id))

    def _names(self, ref: Ref, at: str) -> list[tuple[str, str, Ref]]:
        """The names that the asset called `ref` at that time has had since: (from, until, name)."""
        spans = []
        while True:
            renames = [
                (stamp, _renamed(ref, fact))
                for stamp, fact in self.facts
                if isinstance(fact, Renamed) and fact.ref != fact.new and stamp > at and fact.ref in _path(ref)
            ]
            if not renames:
                return [*spans, (at, "~", ref)]
            until, new = min(renames, key=lambda found: found[0])
            spans.append((at, until, ref))
            at, ref = until, new

    def _now(self, ref: Ref, at: str) -> Ref:
        return self._names(ref, at)[-1][2]

    def _moves(self, ref: Ref, at: str) -> list[str]:
        return [until for _, until, _ in self._names(ref, at)[:-1]][::-1]

    def _dead(self, ref: Ref, at: str) -> bool:
        for start, end, name in self._names(ref, at):
            for stamp, fact in self.facts:
                if not start < stamp < end:
                    continue
                if isinstance(fact, Dropped) and fact.ref in _path(name):
                    return True
                if isinstance(fact, ColumnSet) and fact.table == name.parent and not _has_column(fact, name):
                    return True
        schemas = [
            (since, link.source) for since, link in self.links if link.type == "HAS_METRIC" and link.target == ref
        ]
        return any(
            isinstance(fact, Dropped) and stamp > max(since, at) and fact.ref in _path(schema)
            for since, schema in schemas
            for stamp, fact in self.facts
        )

    def _said(self) -> Iterator[tuple[str, Exists]]:
        """All facts that say that an asset exists, one by one."""
        for at, fact in self.facts:
            if isinstance(fact, Exists):
                yield at, fact
                yield from ((at, Exists(above, "")) for above in _path(fact.ref)[1:])
            elif isinstance(fact, ColumnSet):
                yield from ((at, Exists(above, "")) for above in _path(fact.table))
                yield from ((at, column) for column in fact.columns)
            elif isinstance(fact, Renamed) and fact.ref != fact.new:
                yield from ((at, Exists(above, "")) for above in _path(fact.new)[1:])

    def _nodes(self) -> dict[Ref | None, Node]:
        found: dict[Ref, dict[str, Any]] = {}
        labels: dict[Ref, str] = {}
        # Two columns of one set have the same stamp. If a rename makes them one, the renamed column gives way.
        by_moves = sorted(self._said(), key=lambda one: self._moves(one[1].ref, one[0]), reverse=True)
        for at, said in sorted(by_moves, key=lambda one: one[0]):
            if self._dead(said.ref, at):
                continue
            ref = self._now(said.ref, at)
            props = found.setdefault(ref, {})
            left_out = {"name"} if ref.kind in NAMED else set()
            if self._entries_replaced(said.ref, at):
                left_out |= {name for name in said.props if name.startswith("properties.")}
            props |= {name: value for name, value in said.props.items() if name not in left_out}
            labels[ref] = LABELS.get(ref.kind) or said.label
        own = Node(str(self.tenant.id), {"Tenant"}, {"code": self.tenant.code, "name": self.tenant.name})
        nodes: dict[Ref | None, Node] = {None: own}
        for ref, props in found.items():
            if ref.kind in NAMED:
                props["name"] = ref.name[-1]
            nodes[ref] = Node(ref.id, {labels[ref], "Knowledge"}, _shown(props))
        return nodes

    def _derived(self, nodes: dict[Ref | None, Node]) -> Iterator[Edge]:
        for ref in nodes:
            if ref is not None and ref.parent is not None:
                assert ref.parent in nodes
                yield Edge(BELOW[ref.kind], ref.parent.id, ref.id)
            elif ref is not None:
                yield Edge(OWNS[ref.kind], str(self.tenant.id), ref.id)

    def _linked(self, nodes: dict[Ref | None, Node]) -> Iterator[Edge]:
        newest: dict[tuple[str, Ref, Ref], Linked | Unlinked] = {}
        cuts = [(at, fact) for at, fact in self.facts if isinstance(fact, Unlinked)]
        said: Sequence[tuple[str, Linked | Unlinked]] = sorted([*self.links, *cuts], key=lambda one: one[0])
        for at, link in said:
            if not (self._dead(link.source, at) or self._dead(link.target, at) or self._replaced(link, at)):
                newest[link.type, self._now(link.source, at), self._now(link.target, at)] = link
        for (type, source, target), link in newest.items():
            if isinstance(link, Linked) and source in nodes and target in nodes:
                yield Edge(type, source.id, target.id, dict(link.props))

    def _replaced(self, link: Linked | Unlinked, at: str) -> bool:
        return any(
            (isinstance(fact, LinkSet) and link.type in fact.types and fact.source == name)
            or (isinstance(fact, ColumnsUnlinked) and link.type in fact.types and fact.table == name.parent)
            for name, fact in self._later(link.source, at)
        )

    def _entries_replaced(self, ref: Ref, at: str) -> bool:
        return any(
            isinstance(fact, Exists) and fact.all_entries and fact.ref == name for name, fact in self._later(ref, at)
        )

    def _later(self, ref: Ref, at: str) -> Iterator[tuple[Ref, Fact]]:
        """All later facts, each with the name that the asset called `ref` had by then."""
        for start, end, name in self._names(ref, at):
            yield from ((name, fact) for stamp, fact in self.facts if start < stamp < end)


def _shown(props: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in props.items() if value is not None}
    entries = {name.partition(".")[2]: kept.pop(name) for name in list(kept) if name.startswith("properties.")}
    return kept | ({"properties": canonical_json(entries)} if entries else {})


def _path(ref: Ref) -> list[Ref]:
    return [ref] if ref.parent is None else [ref, *_path(ref.parent)]


def _has_column(fact: ColumnSet, column: Ref) -> bool:
    return column.name[-1] in [one.ref.name[-1] for one in fact.columns]


def _renamed(ref: Ref, fact: Renamed) -> Ref:
    if fact.ref.kind == ref.kind:
        return Ref(ref.kind, (*ref.name[:-1], fact.new.name[-1])) if ref.kind == "column" else fact.new
    return Ref(ref.kind, (*fact.new.name, *ref.name[len(fact.new.name) :]))
