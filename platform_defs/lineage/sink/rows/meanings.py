"""What one name of a dataset means: the tables that it was linked to, and from which versions on.

Neither the row nor the number of rebuilds grows for ever. The oldest changes are forgotten: what the name meant before
is the first table that is left. After MAX_LATE late symlinks, older ones than the newest do not count any more, and a
newer one counts from then on without a rebuild.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from platform_defs.lineage.facts import Ref
from platform_defs.lineage.version import Version

# A path may be linked to another table each day, and events are kept for 90 days. Older changes are forgotten.
MAX_CHANGES = 100
# So many symlinks of a name may come late, because each may need a rebuild: two engines may never agree what a path is.
MAX_LATE = 50


class Symlink(NamedTuple):
    """An event of this version says that the name means the table."""

    name: Ref
    version: Version
    table: Ref


@dataclass(frozen=True, slots=True)
class Meaning:
    """The tables that one name was linked to, in the order of versions. used: events rely on this row.

    late: how many symlinks came later than events that are newer than they.
    """

    changes: tuple[tuple[Version, Ref], ...] = ()
    used: bool = False
    exact: bool = True
    late: int = 0

    def at(self, version: Version) -> Ref | None:
        if not self.changes:
            return None
        place = bisect_right(self.changes, version, key=lambda change: change[0])
        return self.changes[max(place - 1, 0)][1]

    def with_symlinks(self, said: Iterable[tuple[Version, Ref]]) -> "Meaning":
        """Adds symlinks, and leaves out those that repeat the one before."""
        kept: list[tuple[Version, Ref]] = []
        for version, table in sorted({*self.changes, *said}, key=lambda change: (change[0], change[1].name)):
            if not kept or kept[-1][1] != table:
                kept.append((version, table))
        return replace(self, changes=tuple(kept[-MAX_CHANGES:]))

    @property
    def may_come_late(self) -> bool:
        return self.late < MAX_LATE

    def keeps(self, version: Version) -> bool:
        """Whether a symlink of that version counts: the newest one does always, so that the name never stands still."""
        if not self.changes or version > self.changes[-1][0]:
            return True
        return self.may_come_late and (len(self.changes) < MAX_CHANGES or version > self.changes[0][0])

    def since(self, before: "Meaning", newest: Version) -> "Meaning | None":
        """This meaning, with the changes of `before` that were forgotten since.

        None if what has changed since then may count for events up to the `newest`.
        """
        last = before.changes[-1][0] if before.changes else ""
        added = tuple(change for change in self.changes if change[0] > last)
        changes = before.changes + added
        only_newer = bool(before.changes) and all(version > newest for version, _ in added)
        if self.changes == before.changes or (only_newer and changes[-len(self.changes) :] == self.changes):
            return replace(self, changes=changes)
        return None


Meanings = Mapping[Ref, Meaning]


def linked_names(meanings: Meanings, names: Iterable[Ref], version: Version) -> dict[Ref, Ref]:
    """Those of the names that mean another table than their own."""
    found = {name: meanings[name].at(version) for name in names if name in meanings}
    return {name: table for name, table in found.items() if table is not None and table != name}


def missing_symlinks(meanings: Meanings, said: Iterable[Symlink]) -> list[Symlink]:
    """The symlinks that differ from the stored meanings, without those that do not count."""
    return [
        link
        for link in said
        if _at(meanings, link) != link.table and (link.name not in meanings or meanings[link.name].keeps(link.version))
    ]


def _at(meanings: Meanings, link: Symlink) -> Ref | None:
    known = meanings.get(link.name)
    return None if known is None else known.at(link.version)
