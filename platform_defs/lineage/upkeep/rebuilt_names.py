"""What names mean while a tenant's graph is rebuilt: checked against the symlinks of all stored events."""

from collections.abc import Mapping, Set

from sqlalchemy import Engine

from platform_defs.lineage.facts import Ref
from platform_defs.lineage.sink.rows.symlinks import (
    Meanings,
    NameUse,
    Symlink,
    add_symlinks,
    linked_names,
    mark_exact,
    missing_symlinks,
    read_all,
)


class NamesChanged(Exception):
    """Names mean other tables than was assumed so far; the events must be read again."""


class RebuiltNames:
    """The events are read several times. Each reading calls `begin`, `linked` for each event, and `end`."""

    def __init__(self, engine: Engine, tenant_id: int) -> None:
        self._engine = engine
        self._tenant_id = tenant_id
        self._meanings: Meanings | None = None
        self._missing: list[Symlink] = []
        self._plain: set[Ref] = set()

    def begin(self) -> None:
        """Raises NamesChanged if symlinks were kept since the last reading, of names that the events use."""
        before, self._meanings = self._meanings, read_all(self._engine, self._tenant_id)
        self._missing = []
        if before is not None and _tables(before, self._plain) != _tables(self._meanings, self._plain):
            self._meanings = None
            raise NamesChanged

    def linked(self, use: NameUse) -> Mapping[Ref, Ref]:
        """The other tables that names of the event mean. Notes the event's symlinks if they are not stored."""
        assert self._meanings is not None
        self._missing += missing_symlinks(self._meanings, use.names.said_at(use.version))
        self._plain |= use.names.plain
        return linked_names(self._meanings, use.names.plain, use.version)

    def end(self) -> None:
        """Raises NamesChanged if the stored events have symlinks that were not kept; they are kept from now on."""
        if self._missing:
            add_symlinks(self._engine, self._tenant_id, self._missing)
            self._meanings = None
            raise NamesChanged

    def finish(self) -> None:
        """To be called after the last reading, when no symlink was missing."""
        meanings = self._meanings or {}
        mark_exact(self._engine, self._tenant_id, meanings, self._plain & meanings.keys())


def _tables(meanings: Meanings, names: Set[Ref]) -> dict[Ref, object]:
    return {name: meaning.changes for name, meaning in meanings.items() if name in names}
