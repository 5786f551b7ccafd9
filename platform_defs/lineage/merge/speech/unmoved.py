"""Which statements count while no name has moved: as speakers.live_parts says, but without looking up any name.

That is the usual case, and it is asked several times for every event.
"""

from typing import TYPE_CHECKING, NamedTuple

from platform_defs.lineage.facts import Ref
from platform_defs.lineage.merge.speech.statement_bodies import Tables, tables_of
from platform_defs.lineage.merge.state import NEVER, Stamp

if TYPE_CHECKING:
    from platform_defs.lineage.merge.speech.speakers import SpeakerState


class LiveTables(NamedTuple):
    """What counts of one statement: its links, and the columns and the lineage of these tables."""

    links: bool
    written: frozenset[Ref]
    lineage: frozenset[Ref]
    reads: bool


ONLY_READS = LiveTables(False, frozenset(), frozenset(), True)


def unmoved_shape(speaker: "SpeakerState", *, readers: bool) -> dict[str, LiveTables]:
    """Equal for the same speaker before and after a change exactly if the same parts of statements are live."""
    asked = tuple(speaker.runs.values()), speaker.floor, tuple(speaker.lineage_floors.items()), speaker.folded.changes
    if speaker.known_shape is None or speaker.known_shape[0] != asked:
        speaker.known_shape = asked, _shape(speaker)
    shape = speaker.known_shape[1]
    if readers:
        return shape
    counting = {digest: live._replace(reads=False) for digest, live in shape.items()}
    return {digest: live for digest, live in counting.items() if any(live)}


def unmoved_floors(speaker: "SpeakerState") -> tuple[dict[Ref, Stamp], dict[Ref, Stamp]]:
    """For each table, the stamps since which the columns, and the lineage, that the speaker has said of it count."""
    tables = {digest: tables_of(speaker.bodies[digest]) for run in speaker.runs.values() for digest in run.said}
    done = _completions(speaker)
    return _column_floors(tables, done), _lineage_floors(speaker, tables, done)


def _completions(speaker: "SpeakerState") -> dict[frozenset[str], Stamp]:
    """For each set of statements, when the newest run completed that made just these statements."""
    done: dict[frozenset[str], Stamp] = {}
    for run in speaker.runs.values():
        if done_at := run.done_at:
            said = frozenset(run.said)
            done[said] = max(done.get(said, NEVER), done_at)
    return done


def _shape(speaker: "SpeakerState") -> dict[str, LiveTables]:
    newest: dict[str, Stamp] = {}
    for run in speaker.runs.values():
        done_at = run.done_at
        for digest, stamps in run.said.items():
            newest[digest] = max(newest.get(digest, NEVER), stamps[-1], done_at)
    done = _completions(speaker)
    current = max(speaker.floor, speaker.folded.newest_done, *done.values())
    tables = {digest: tables_of(speaker.bodies[digest]) for digest in newest}
    columns = _column_floors(tables, done)
    lineage = _lineage_floors(speaker, tables, done)
    shape: dict[str, LiveTables] = {}
    for digest, at in newest.items():
        named = tables[digest]
        live = LiveTables(
            at >= current,
            frozenset(table for table in named.written if at >= columns.get(table, NEVER)),
            frozenset(table for table in named.lineage if at >= lineage[table]),
            bool(named.read),
        )
        if any(live):
            shape[digest] = live
    return shape


def _column_floors(tables: dict[str, Tables], done: dict[frozenset[str], Stamp]) -> dict[Ref, Stamp]:
    floors: dict[Ref, Stamp] = {}
    for said, done_at in done.items():
        for digest in said:
            for table in tables[digest].written:
                floors[table] = max(floors.get(table, NEVER), done_at)
    return floors


def _lineage_floors(
    speaker: "SpeakerState", tables: dict[str, Tables], done: dict[frozenset[str], Stamp]
) -> dict[Ref, Stamp]:
    with_lineage = frozenset[Ref]().union(*(named.lineage for named in tables.values()))
    floors = {
        table: max(speaker.lineage_floors.get(table.id, NEVER), speaker.folded.unmoved_lineage_floor(table))
        for table in with_lineage
    }
    for said, done_at in done.items():
        outputs = frozenset[Ref]().union(*(tables[digest].outputs for digest in said))
        replaced = frozenset[Ref]().union(*(tables[digest].lineage for digest in said))
        for table in with_lineage:
            if table in replaced or table not in outputs:
                floors[table] = max(floors[table], done_at)
    return floors
