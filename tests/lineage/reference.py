"""A slow reference for the merge: computes the graph from the whole set of events at once and remembers nothing."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
    Statement,
    Unlinked,
    name_props,
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

    def _claims(self) -> Iterator[tuple[str, str, Exists | Linked, str]]:
        """What live statements claim: (speaker, stamp, claim, kind), by the rules of merge/speech/speakers.py."""
        speakers: dict[Ref, list[tuple[str, Statement]]] = {}
        for at, fact in self.facts:
            if isinstance(fact, Statement):
                speakers.setdefault(fact.speaker, []).append((at, fact))
        for speaker, said in speakers.items():
            yield from ((speaker.id, *claim) for claim in self._claims_of(said))

    def _claims_of(self, said: list[tuple[str, Statement]]) -> Iterator[tuple[str, Exists | Linked, str]]:
        done: dict[str, str] = {}
        for run in {one.run for _, one in said if one.names_dataset}:
            done[run] = max((at for at, one in said if one.run == run and one.completes), default="")
        current = max(done.values(), default="")

        def tables(run: str, kind: str) -> set[Ref | None]:
            return {self._table_now(table, at) for at, one in said if one.run == run for table in _tables(one, kind)}

        def newest(replaces: Callable[[str], bool]) -> str:
            return max((at for run, at in done.items() if at and replaces(run)), default="")

        def columns_since(table: Ref) -> str:
            return newest(lambda run: table in tables(run, "written"))

        def lineage_since(table: Ref) -> str:
            return newest(lambda run: table in tables(run, "lineage") or table not in tables(run, "outputs"))

        for at, one in said:
            effective = max(at, done.get(one.run, ""))
            for column in one.read:
                yield at, column if effective >= current else Exists(column.ref, "Column"), "read"
            for column in one.written:
                table = self._table_now(_above(column.ref), at)
                if table is not None and effective >= columns_since(table):
                    yield at, column, "written"
            for link in one.links:
                table = self._table_now(_above(link.source), at) if link.type == "DERIVES_FROM" else None
                since = current if link.type != "DERIVES_FROM" else "~" if table is None else lineage_since(table)
                if effective >= since:
                    yield at, link, "link"

    def _table_now(self, table: Ref, at: str) -> Ref | None:
        """The table's name now; None if it was dropped before another one got its name."""
        while True:
            moves = [
                (stamp, fact)
                for stamp, fact in self.facts
                if isinstance(fact, Renamed) and fact.ref != fact.new and stamp > at and table in (fact.ref, fact.new)
            ]
            if not moves:
                return table
            until, move = moves[0]
            dropped = [stamp for stamp, fact in self.facts if isinstance(fact, Dropped) and fact.ref in _path(table)]
            if move.ref != table and any(at < stamp < until for stamp in dropped):
                return None
            table, at = (move.new if move.ref == table else table), until

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
        for _, at, claim, _ in self._claims():
            if isinstance(claim, Exists):
                yield at, Exists(claim.ref, "Column")

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
        for ref, props in self._claimed_props().items():
            found[ref] = {**props, **found[ref]}
        for ref, type in self._last_types().items():
            if ref in found:
                found[ref].setdefault("dataType", type)
        own = Node(str(self.tenant.id), {"Tenant"}, {"code": self.tenant.code, "name": self.tenant.name})
        nodes: dict[Ref | None, Node] = {None: own}
        for ref, props in found.items():
            if ref.kind in NAMED:
                props["name"] = ref.name[-1]
                props |= name_props(ref)
            nodes[ref] = Node(ref.id, {labels[ref], "Knowledge"}, _shown(props))
        return nodes

    def _claimed_props(self) -> dict[Ref, dict[str, Any]]:
        """Properties that claims give to columns: writers before readers, then by speaker."""
        columns: dict[Ref, list[tuple[bool, str, dict[str, Any]]]] = {}
        for who, at, claim, kind in self._claims():
            if isinstance(claim, Exists) and not self._dead(claim.ref, at):
                props = {name: value for name, value in claim.props.items() if name != "name" and value is not None}
                columns.setdefault(self._now(claim.ref, at), []).append((kind == "written", who, props))
        merged: dict[Ref, dict[str, Any]] = {}
        for ref, given in columns.items():
            merged[ref] = {}
            # of several speakers the first one counts
            speakers = {(writes, who) for writes, who, _ in given}
            for speaker in sorted(speakers, key=lambda one: (one[0], _last(one[1]))):
                said: dict[str, Any] = {}
                for props in (props for *one, props in given if tuple(one) == speaker):
                    _add_texts(said, props)
                merged[ref] |= said
        return merged

    def _last_types(self) -> dict[Ref, str]:
        """The newest type that a job said of a column, whether or not the statement still counts."""
        said: dict[Ref, tuple[str, str]] = {}
        for at, fact in self.facts:
            for column in (*fact.written, *fact.read) if isinstance(fact, Statement) else ():
                type = column.props.get("dataType")
                if type is not None and not self._dead(column.ref, at):
                    ref = self._now(column.ref, at)
                    said[ref] = max(said.get(ref, ("", "")), (at, type))
        return {ref: type for ref, (_, type) in said.items()}

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
        shown = {key: dict(link.props) for key, link in newest.items() if isinstance(link, Linked)}
        claimed: dict[tuple[str, Ref, Ref], dict[str, dict[str, Any]]] = {}
        for who, at, claim, _ in self._claims():
            if isinstance(claim, Linked) and not (
                self._dead(claim.source, at) or self._dead(claim.target, at) or self._replaced(claim, at)
            ):
                key = claim.type, self._now(claim.source, at), self._now(claim.target, at)
                if not any(stamp > at and self._cuts(cut, stamp, key) for stamp, cut in cuts):
                    _add_texts(claimed.setdefault(key, {}).setdefault(who, {}), claim.props)
        for key, by_speaker in claimed.items():
            shown.setdefault(key, by_speaker[min(by_speaker)])
        for (type, source, target), props in shown.items():
            if source in nodes and target in nodes:
                yield Edge(type, source.id, target.id, props)

    def _cuts(self, cut: Unlinked, at: str, key: tuple[str, Ref, Ref]) -> bool:
        return (cut.type, self._now(cut.source, at), self._now(cut.target, at)) == key

    def _replaced(self, link: Linked | Unlinked, at: str) -> bool:
        return any(
            (isinstance(fact, LinkSet) and link.type in fact.types and fact.source == name)
            or (isinstance(fact, ColumnsUnlinked) and link.type in fact.types and fact.table in (name, name.parent))
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


def _above(ref: Ref) -> Ref:
    return ref.parent if ref.kind == "column" and ref.parent is not None else ref


def _tables(statement: Statement, kind: str) -> list[Ref]:
    if kind == "outputs":
        return list(statement.outputs)
    if kind == "written":
        return [_above(column.ref) for column in statement.written]
    return [_above(link.source) for link in statement.links if link.type == "DERIVES_FROM"]


def _add_texts(said: dict[str, Any], props: Mapping[str, Any]) -> None:
    """If one speaker contradicts itself, the text of the value decides, of each property on its own."""
    for name, value in props.items():
        said[name] = max(value, said.get(name, value), key=canonical_json)


def _last(text: str) -> tuple[int, ...]:
    """Sorts texts from the last to the first."""
    return tuple(-ord(letter) for letter in text)


def _has_column(fact: ColumnSet, column: Ref) -> bool:
    return column.name[-1] in [one.ref.name[-1] for one in fact.columns]


def _renamed(ref: Ref, fact: Renamed) -> Ref:
    if fact.ref.kind == ref.kind:
        return Ref(ref.kind, (*ref.name[:-1], fact.new.name[-1])) if ref.kind == "column" else fact.new
    return Ref(ref.kind, (*fact.new.name, *ref.name[len(fact.new.name) :]))
