"""What a speaker has said: the statements of a job's runs, or of the dataset events of one producer about one table.

All events of a run count together. The *current run* is the one with the newest COMPLETE among the runs that name a
dataset. Which statements are *live*, that is, which count:

- INPUT_OF and OUTPUT_TO: everything that the current run said, and what other runs said after its COMPLETE.
- Columns of an output: the same, by the newest completed run that names columns of this output.
- DERIVES_FROM of an output: the same, by the newest completed run that names its column lineage or does not name the
  output at all.
- Columns of an input: always; readers only add.

Each node and edge remembers which speakers claim it (NodeState.claims, EdgeState.claims), and stands while one does. A
statement that was made before costs nothing: if the same statements stay live, no claim changes. So the stamp in a
claim may be older than the newest statement; `review_claims` corrects it before anything is dropped.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from platform_defs.lineage.facts import Ref, Statement
from platform_defs.lineage.merge.names import current_name, dropped_at
from platform_defs.lineage.merge.speech.runs import Bodies, FoldedRuns, Run, Trace, named_tables, tables_now
from platform_defs.lineage.merge.speech.statement_bodies import (
    DERIVES_FROM,
    ClaimKey,
    Tables,
    decode,
    digest_of,
    encode,
    table_ref,
    tables_of,
)
from platform_defs.lineage.merge.speech.unmoved import ONLY_READS, LiveTables, unmoved_floors, unmoved_shape
from platform_defs.lineage.merge.state import NEVER, Claim, Stamp, State, column_of


class Part(NamedTuple):
    """A part of a statement that counts or does not count as a whole.

    kind: "io" (the links of an SQL), or of one table "written", "read" (that its columns exist), "reading" (what the
    columns of an input are like) or "lineage". where: see `_where`.
    """

    digest: str
    kind: str
    table: Ref | None
    where: tuple[str, ...]


Claims = dict[ClaimKey, Claim]
# What of a speaker's statements counts: by digest, or, once names have moved, part by part.
Shape = Mapping[str, LiveTables] | Set[Part]


@dataclass(slots=True)
class SpeakerState:
    """What is remembered of a speaker.

    bodies: statements by digest (statement_bodies.py). runs: by their ids, which of these statements each made, and
    when. floor: when the newest run completed that is not remembered. lineage_floors: the same for the lineage of
    single tables, by the ids that these had when their lineage was said. folded, past, past_until,
    forgotten_at and lacks_counting: see past_runs.py; the folded runs are not stored. known_shape: the last answer of
    unmoved.py, and what it was asked about.
    """

    bodies: Bodies = field(default_factory=dict)
    runs: dict[str, Run] = field(default_factory=dict)
    floor: Stamp = NEVER
    lineage_floors: dict[str, Stamp] = field(default_factory=dict)
    folded: FoldedRuns = field(default_factory=FoldedRuns)
    past: dict[str, Trace] = field(default_factory=dict)
    past_until: Stamp = NEVER
    forgotten_at: Stamp = NEVER
    lacks_counting: bool = False
    known_shape: tuple[object, dict[str, LiveTables]] | None = field(default=None, compare=False, repr=False)

    def copy(self) -> "SpeakerState":
        return replace(self, bodies=dict(self.bodies), runs=dict(self.runs), lineage_floors=dict(self.lineage_floors))

    def leave_out_unused_bodies(self) -> None:
        used = {digest for run in self.runs.values() for digest in run.said}
        self.bodies = {digest: body for digest, body in self.bodies.items() if digest in used}

    def add(self, state: State, statement: Statement, at: Stamp) -> None:
        """Adds a statement to what its run has said. Adding it twice changes nothing."""
        run = self.runs.get(statement.run, Run())
        said = run.said
        if statement.names_dataset:
            digest = digest_of(statement)
            body = self.bodies.setdefault(digest, encode(statement))
            said = {**said, digest: newest_stamps(state, body, [*said.get(digest, ()), at])}
        self.runs[statement.run] = Run(
            completed=max(run.completed, at) if statement.completes else run.completed,
            names_dataset=run.names_dataset or statement.names_dataset,
            said=said,
        )

    @property
    def current_since(self) -> Stamp:
        """When the current run completed: what is said since counts, and what was said before may not."""
        return max(self.floor, self.folded.newest_done, *(run.done_at for run in self.runs.values()))

    def done_at(self, run: str) -> Stamp:
        """As Run.done_at; NEVER for a run that is not remembered."""
        return self.runs[run].done_at if run in self.runs else NEVER

    def said(self) -> Iterator[tuple[str, Stamp]]:
        """The digests of all remembered statements, with the times at which they were made."""
        return (one for run in self.runs.values() for one in run.statements())

    def is_outdated(self, state: State, statement: Statement, at: Stamp) -> bool:
        """Whether something of its tables was dropped between this statement and the same one that is remembered.

        Then the two do not claim the same. Who drops something asks only those speakers that a node or edge remembers
        one by one, and does not know of statements that arrive late.
        """
        digest = digest_of(statement)
        if digest not in self.bodies:
            return False
        drops = {dropped_at(state, table) for table in tables_of(self.bodies[digest]).all} - {NEVER}
        if not drops:
            return False
        stamps = [said for known, said in self.said() if known == digest]
        before = max((said for said in stamps if said < at), default=at)
        after = min((said for said in stamps if said > at), default=at)
        return any(before < drop < after for drop in drops)

    def tables(self) -> dict[Ref, Stamp]:
        """All tables of the statements, with the first times at which they were named."""
        named: dict[Ref, Stamp] = {}
        for digest, first in self._first_said().items():
            for table in tables_of(self.bodies[digest]).all:
                named[table] = min(named.get(table, first), first)
        return named

    def _first_said(self) -> dict[str, Stamp]:
        first: dict[str, Stamp] = {}
        for run in self.runs.values():
            for digest, stamps in run.said.items():
                first[digest] = min(first.get(digest, stamps[0]), stamps[0])
        return first

    def refs(self) -> Iterator[tuple[ClaimKey, Stamp]]:
        """All nodes and edges that any remembered statement claims, by the names that they had first."""
        for digest, first in self._first_said().items():
            yield from ((key, first) for key, _ in decode(self.bodies[digest]))


def live_parts(state: State, speaker: SpeakerState) -> dict[Part, Stamp]:
    """The parts of statements that count, each with the newest stamp at which it was said."""
    current = speaker.current_since
    columns, lineage = _floors(state, speaker) if state.names_moved else unmoved_floors(speaker)
    live: dict[Part, Stamp] = {}
    for run in speaker.runs.values():
        for digest, at in run.statements():
            body, effective = speaker.bodies[digest], max(at, run.done_at)
            named = _named(state, body, at)
            read, where = named.read, _where(state, body, at)
            parts = [Part(digest, "read", table, where) for table in read]
            if effective >= current:
                parts += [Part(digest, "io", None, where), *(Part(digest, "reading", table, where) for table in read)]
            parts += [
                Part(digest, "written", one, where) for one in named.written if effective >= columns.get(one, NEVER)
            ]
            parts += [
                Part(digest, "lineage", one, where) for one in named.lineage if effective >= lineage.get(one, NEVER)
            ]
            for part in parts:
                live[part] = max(live.get(part, NEVER), at)
    return live


def expand(
    state: State, speaker: SpeakerState, live: Mapping[Part, Stamp], *, loaded_only: bool = False
) -> Iterator[tuple[ClaimKey, ClaimKey, Claim]]:
    """The claims that the live parts make, by the names that assets had then and have now.

    Several parts may claim the same.
    """
    statements: dict[tuple[str, tuple[str, ...]], dict[tuple[str, Ref | None], Stamp]] = defaultdict(dict)
    for part, at in live.items():
        statements[part.digest, part.where][part.kind, part.table] = at
    for (digest, _), parts in statements.items():
        for key, props in decode(speaker.bodies[digest]):
            kind = _kind(key)
            for (live_kind, live_table), at in parts.items():
                if live_kind != kind:
                    continue
                named = _key_now(state, key, at, loaded_only=loaded_only)
                if named is None or _subject(named) != live_table:
                    continue
                if kind == "read" and ("reading", live_table) not in parts:
                    props = {}
                yield key, named, Claim(at, props)


def live_shape(state: State, speaker: SpeakerState, *, readers: bool = True) -> Shape:
    """Equal for the same speaker before and after a change exactly if the same parts are live.

    Without readers what was read is left out: a claim on a column that was read is never taken back.
    """
    if not state.names_moved:
        shape = unmoved_shape(speaker, readers=readers)
        # What a run has read stays claimed when the run is put aside. Where everything is loaded it does no harm to
        # claim it again, and there many runs are put aside.
        return dict.fromkeys(speaker.folded.reading, ONLY_READS) | shape if readers and state.is_partial else shape
    parts = live_parts(state, speaker)
    return parts.keys() if readers else {part for part in parts if part.kind not in ("read", "reading")}


def newest_stamps(state: State, body: Mapping[str, Any], stamps: Iterable[Stamp]) -> list[Stamp]:
    """The stamps without those after which the same was said again of the same assets."""
    if not state.names_moved:
        return [max(stamps)]
    kept = {_where(state, body, at): at for at in sorted(set(stamps))}
    return sorted(kept.values())


def _named(state: State, body: Mapping[str, Any], at: Stamp) -> Tables:
    """The tables of a statement by the names that they have now."""
    if not state.names_moved:
        return tables_of(body)
    kinds = ("outputs", "written", "read", "lineage", "inputs")
    outputs, written, read, lineage, inputs = (frozenset(tables_now(state, body[kind], at)) for kind in kinds)
    return Tables(outputs, written, read, lineage, outputs | read | lineage | inputs)


def _where(state: State, body: Mapping[str, Any], at: Stamp) -> tuple[str, ...]:
    """Tells repetitions of a statement apart between which its tables or their columns were renamed.

    They use the same names for different assets. The result is empty while nothing was renamed.
    """
    if not state.names_moved:
        return ()
    found: list[str] = []
    moved = False
    renamed_at = NEVER
    for name in (*body["outputs"], *body["read"], *body["lineage"], *body["inputs"]):
        table = table_ref(name)
        now = current_name(state, table, at)
        node = None if now is None else state.find(now)
        renamed_at = renamed_at if node is None else max(renamed_at, node.column_renamed_at)
        moved |= now != table
        found.append("" if now is None else now.id)
    # only the newest rename of a column is known: whether another one came between two statements is not
    columns = [at] if renamed_at > at else []
    return (*(found if moved else ()), *columns)


def _floors(state: State, speaker: SpeakerState) -> tuple[dict[Ref, Stamp], dict[Ref, Stamp]]:
    """For each table, the stamps since which columns and lineage count, by the rules at the top of this module."""
    columns: dict[Ref, Stamp] = {}
    lineage: dict[Ref, Stamp] = {}
    said = [(run, digest, at) for run in speaker.runs.values() for digest, at in run.statements()]
    for _, digest, at in said:
        for name in map(table_ref, speaker.bodies[digest]["lineage"]):
            if (table := current_name(state, name, at)) is not None:
                floors = lineage.get(table, NEVER), speaker.lineage_floors.get(name.id, NEVER)
                lineage[table] = max(*floors, speaker.folded.lineage_floor(state, table))
    for run in speaker.runs.values():
        if not run.done_at:
            continue
        named = named_tables(state, speaker.bodies, run)
        for table in named["written"]:
            columns[table] = max(columns.get(table, NEVER), run.done_at)
        for table in lineage:
            if table in named["lineage"] or table not in named["outputs"]:
                lineage[table] = max(lineage[table], run.done_at)
    return columns, lineage


def _kind(key: ClaimKey) -> str:
    if key.target is None:
        return key.type
    return "lineage" if key.type == DERIVES_FROM else "io"


def _subject(key: ClaimKey) -> Ref | None:
    """The table whose columns or column lineage it is; None for the links of an SQL."""
    if _kind(key) == "io":
        return None
    return key.source.parent if key.source.kind == "column" else key.source


def _key_now(state: State, key: ClaimKey, at: Stamp, *, loaded_only: bool) -> ClaimKey | None:
    if loaded_only and not _are_loaded(state, key, at):
        return None
    if not state.names_moved:
        return key
    source = current_name(state, key.source, at)
    target = None if key.target is None else current_name(state, key.target, at)
    if source is None or (key.target is not None and target is None):
        return None
    return ClaimKey(key.type, source, target)


def _are_loaded(state: State, key: ClaimKey, at: Stamp) -> bool:
    return all(is_loaded(state, ref, at) for ref in (key.source, key.target) if ref is not None)


def is_loaded(state: State, ref: Ref, at: Stamp) -> bool:
    if ref.kind != "column" or ref.parent is None:
        return state.is_loaded(ref)
    table = current_name(state, ref.parent, at)
    return table is not None and state.is_loaded(column_of(table, ref.name[-1]))
