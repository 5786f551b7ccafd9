"""What names mean while a tenant's graph is rebuilt: checked against the symlinks of all stored events."""

from collections.abc import Mapping

from sqlalchemy import Engine

from platform_defs.lineage.facts import Ref
from platform_defs.lineage.sink.rows.meanings import Meaning, Meanings, linked_names, missing_symlinks
from platform_defs.lineage.sink.rows.symlinks import NameUse, add_symlinks, mark_exact, read_all
from platform_defs.lineage.version import Version


class NamesChanged(Exception):
    """Names mean other tables than was assumed so far; the events must be read again."""


class RebuiltNames:
    """The events are read several times. Each reading calls `begin`, `linked` for each event, and `end`."""

    def __init__(self, engine: Engine, tenant_id: int) -> None:
        self._engine = engine
        self._tenant_id = tenant_id
        self._meanings: Meanings | None = None
        # what the events say in the order of their versions, without repetitions; and of which names some was not kept
        self._said: dict[Ref, list[tuple[Version, Ref]]] = {}
        self._missing: set[Ref] = set()
        # the names that events use without saying what they are linked to, each with the newest of these events
        self._plain: dict[Ref, Version] = {}

    def begin(self) -> None:
        """Raises NamesChanged if symlinks were kept since the last reading that may count for the events it has read.

        Those that are newer may come as often as they like: then the rebuild would never end.
        """
        before, meanings = self._meanings, dict(read_all(self._engine, self._tenant_id))
        self._said, self._missing = {}, set()
        if before is not None:
            for name in self._plain.keys() & meanings.keys():
                meaning = meanings[name].since(before.get(name, Meaning()), self._plain[name])
                if meaning is None:
                    self._meanings = None
                    raise NamesChanged
                meanings[name] = meaning
        self._meanings = meanings

    def linked(self, use: NameUse) -> Mapping[Ref, Ref]:
        """The other tables that names of the event mean. Notes the event's symlinks if they are not stored."""
        assert self._meanings is not None
        said = use.names.said_at(use.version)
        missing = missing_symlinks(self._meanings, said)
        self._missing |= {link.name for link in missing}
        for link in said:
            mine = self._said.setdefault(link.name, [])
            if link in missing or not mine or mine[-1][1] != link.table:
                mine.append((link.version, link.table))
        self._plain |= {name: max(use.version, self._plain.get(name, use.version)) for name in use.names.plain}
        return linked_names(self._meanings, use.names.plain, use.version)

    def end(self) -> None:
        """Raises NamesChanged if the stored events have symlinks that were not kept; they are kept from now on."""
        if self._missing:
            # all that is said of these names: a symlink that was left out as a repetition may count now
            add_symlinks(self._engine, self._tenant_id, {name: self._said[name] for name in self._missing})
            self._meanings = None
            raise NamesChanged

    def finish(self) -> None:
        """To be called after the last reading, when no symlink was missing."""
        meanings = self._meanings or {}
        mark_exact(self._engine, self._tenant_id, meanings, self._plain.keys() & meanings.keys())
