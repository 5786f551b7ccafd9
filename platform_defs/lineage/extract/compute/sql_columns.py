"""The columns of a table or query in SQL text, with the columns of tables that they derive from."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

IDENTITY, TRANSFORMATION, AGGREGATION = "IDENTITY", "TRANSFORMATION", "AGGREGATION"
_RANK = {IDENTITY: 0, TRANSFORMATION: 1, AGGREGATION: 2}

# a table's name as the SQL text spells it, with one to three parts
TableName = tuple[str, ...]
# the known columns of tables: pairs of a table's full name and its columns
Schemas = tuple[tuple[TableName, tuple[str, ...]], ...]


def same_table(written: TableName, full: TableName) -> bool:
    """Whether a name in SQL text, which may lack the database or schema, can mean the table with that full name."""
    pairs = zip(reversed(written), reversed(full), strict=False)
    return bool(written) and all(mine.lower() == theirs.lower() for mine, theirs in pairs)


@dataclass(frozen=True, slots=True)
class Source:
    """A column that an output column is computed from. subtype: IDENTITY, TRANSFORMATION or AGGREGATION.

    fields: which field inside of the column it is, in lower case, the outermost first; none for all of it.
    """

    table: TableName
    column: str
    subtype: str
    fields: tuple[str, ...] = ()


def at_least(source: Source, subtype: str) -> Source:
    return source if _RANK[source.subtype] >= _RANK[subtype] else replace(source, subtype=subtype)


def field_of(sources: list[Source], fields: tuple[str, ...]) -> list[Source]:
    """What a field inside of a column is computed from: of a column that was copied, the same field of the origin."""
    if not fields:
        return sources
    return [
        replace(source, fields=(*source.fields, *fields)) if source.subtype == IDENTITY else source
        for source in sources
    ]


def merge_sources(sources: Iterable[Source]) -> list[Source]:
    """Each source column once, with the strongest of its subtypes, in order of appearance."""
    found: dict[tuple[TableName, str, tuple[str, ...]], Source] = {}
    for source in sources:
        key = (source.table, source.column, source.fields)
        found[key] = at_least(found[key], source.subtype) if key in found else source
    return list(found.values())


class Holds(Enum):
    """Whether a table or query has a column of some name."""

    YES = "yes"
    MAYBE = "maybe"
    NO = "no"


# whether the column is there, and its sources; there are none if nobody can tell which they are
Found = tuple[Holds, list[Source]]


@dataclass(frozen=True, slots=True)
class Rest:
    """Columns that are not listed: all of a table's except `without`. Without a table, nobody knows whose they are."""

    table: TableName | None = None
    without: frozenset[str] = frozenset()


@dataclass(slots=True)
class Columns:
    """The columns of a table or query: those that are listed, in order, and the rest.

    by_name: the listed ones by lower-case name, the first one of each name. rest: where columns that are not listed may
    come from; an event may list only some of a table's columns. counted: as many columns are listed as there are, if
    events list all columns of their tables. shifted: what is added next stands after a star, so that its position is
    certain only if that is true. fixed: how many columns stand before the first star.
    """

    listed: list[tuple[str, list[Source]]] = field(default_factory=list)
    by_name: dict[str, list[Source]] = field(default_factory=dict)
    rest: list[Rest] = field(default_factory=list)
    counted: bool = True
    shifted: bool = False
    fixed: int = 0

    def add(self, name: str, sources: list[Source]) -> None:
        self.listed.append((name, sources))
        self.by_name.setdefault(name, sources)
        if not self.shifted:
            self.fixed += 1

    def add_unknown(self) -> None:
        """Nobody knows how many columns follow, and which."""
        self.rest.append(Rest())
        self.counted, self.shifted = False, True

    def find(self, name: str, spelling: Mapping[str, str]) -> Found:
        """Looks for a lower-case name. spelling: names as the text spells them, by their lower-case form."""
        if name in self.by_name:
            return Holds.YES, self.by_name[name]
        possible = [rest.table for rest in self.rest if name not in rest.without]
        if not possible:
            return Holds.NO, []
        if len(possible) > 1 or possible[0] is None:
            return Holds.MAYBE, []
        return Holds.MAYBE, [Source(possible[0], spelling.get(name, name), IDENTITY)]

    def find_path(self, path: tuple[str, ...], spelling: Mapping[str, str]) -> Found:
        """Looks for a lower-case name and the fields inside of it; events may also list a field as a column a.b."""
        for length in range(len(path), 1, -1):
            if (dotted := ".".join(path[:length])) in self.by_name:
                return Holds.YES, field_of(self.by_name[dotted], path[length:])
        holds, sources = self.find(path[0], spelling)
        return holds, field_of(sources, path[1:])

    def at(self, position: int, beside: "Columns") -> list[Source]:
        """The sources of the column that a set operation puts at the position of the other query's column.

        Behind a star the position is certain only if all columns of the tables are known; then the names tell whether
        the two stars stand for the same columns.
        """
        if position >= len(self.listed):
            return []
        name, sources = self.listed[position]
        if position < min(self.fixed, beside.fixed):
            return sources
        return sources if self.counted and beside.counted and name == beside.listed[position][0] else []

    def renamed(self, names: Sequence[str]) -> "Columns":
        """The same columns under the names of an alias with a list of columns, as in `q (a, b)`.

        The list may be shorter than the query is wide: then the other columns keep their names.
        """
        whole = self.counted and len(self.listed) == len(names)
        found = Columns()
        for position, name in enumerate(names):
            is_sure = whole or position < self.fixed
            found.add(name.lower(), self.listed[position][1] if is_sure else [])
        if not self.counted or (self.rest and not whole):
            found.add_unknown()
        elif not whole:
            for name, sources in self.listed[len(names) :]:
                found.add(name, sources)
        return found


def unknown() -> Columns:
    """Columns that may have any names and come from anywhere."""
    found = Columns()
    found.add_unknown()
    return found


def without_sources(names: Sequence[str]) -> Columns:
    """What a function or a list of rows gives: columns that derive from no table's; if it has no names, any columns."""
    found = Columns()
    for name in names:
        found.add(name.lower(), [])
    return found if names else unknown()
