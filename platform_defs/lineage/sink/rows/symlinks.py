"""What the names of datasets mean, in `lineage_symlink`; kept longer than the events whose `symlinks` facets said so.

A name means the table of its newest symlink up to an event's version, else of the first one after it. Symlinks are not
followed further: the table's own name may be linked to another table, which changes nothing here.

Most symlinks repeat what the name means already and are not kept: only those at which the meaning changes are. This
suffices unless a symlink with another table arrives late; then some that were not kept may count after it, and the row
is no longer *exact*. A rebuild, which reads all stored events, makes it exact again (`add_symlinks`). It is requested
as soon as an event depends on such a row: one that uses the name and does not say itself what the name is linked to.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from sqlalchemy import Connection, Engine, select

from platform_defs.lineage.facts import Fact, Ref
from platform_defs.lineage.sink.rows.meanings import (
    Meaning,
    Meanings,
    Symlink,
    linked_names,
    missing_symlinks,
)
from platform_defs.lineage.upkeep import rebuild_requests
from platform_defs.lineage.version import Version
from platform_defs.store.chunks import chunks
from platform_defs.store.engine import read, transact
from platform_defs.store.tables.lineage import lineage_events, lineage_symlink
from platform_defs.store.upsert import upsert

log = logging.getLogger(__name__)

NAMES_PER_STATEMENT = 500

_rows = lineage_symlink.c


@dataclass(frozen=True, slots=True)
class EventNames:
    """How an event names tables: see Extraction. facts_with: its facts, if some plain names mean these other tables."""

    symlinks: Mapping[Ref, Ref]
    plain: frozenset[Ref]
    facts_with: Callable[[Mapping[Ref, Ref]], tuple[Fact, ...]]

    def said_at(self, version: Version) -> list[Symlink]:
        return [Symlink(name, version, table) for name, table in self.symlinks.items()]


class NameUse(NamedTuple):
    """An event with the names of tables that it uses."""

    tenant_id: int
    version: Version
    names: EventNames


@dataclass(frozen=True, slots=True)
class ResolvedNames:
    """linked: for each event, the tables that its plain names mean. rebuild: tenants whose graph must be rebuilt.

    new: names that were never linked before. If the graph has a table of such a name, what was said of it is now said
    of the table that the name is linked to.
    """

    linked: list[Mapping[Ref, Ref]]
    rebuild: frozenset[int] = frozenset()
    new: Mapping[int, frozenset[Ref]] = field(default_factory=dict)


def resolve_names(connection: Connection, uses: Sequence[NameUse], changes: Mapping[int, int]) -> ResolvedNames:
    """Keeps the symlinks that these events say, and finds what their other names mean: one read per tenant.

    changes: how often the symlinks of each tenant have changed. Names of tenants without symlinks are not looked up.
    """
    rebuild: set[int] = set()
    new: dict[int, frozenset[Ref]] = {}
    linked: list[Mapping[Ref, Ref]] = [{} for _ in uses]
    for tenant_id in sorted({use.tenant_id for use in uses}):
        mine = [(place, use) for place, use in enumerate(uses) if use.tenant_id == tenant_id]
        said = [link for _, use in mine for link in use.names.said_at(use.version)]
        if not said and not changes.get(tenant_id):
            continue
        names = {link.name for link in said}.union(*(use.names.plain for _, use in mine))
        meanings = dict(read_meanings(connection, tenant_id, names))
        unknown = missing_symlinks(meanings, said)
        if unknown:
            before = frozenset(meanings)
            concerned = {link.name for link in unknown}
            if _add_contradicting(connection, tenant_id, [link for link in said if link.name in concerned], meanings):
                rebuild.add(tenant_id)
            new[tenant_id] = frozenset(link.name for link in unknown if link.table != link.name) - before
        used = {name for _, use in mine for name in use.names.plain if name in meanings}
        if any(not meanings[name].exact for name in used):
            rebuild.add(tenant_id)
        note_use(connection, tenant_id, {name: meanings[name] for name in used})
        for place, use in mine:
            linked[place] = linked_names(meanings, use.names.plain, use.version)
    return ResolvedNames(linked, frozenset(rebuild), new)


@dataclass(frozen=True, slots=True)
class NameWatch:
    """Notices that another process stored symlinks while a group was being written, which then used old meanings.

    That process, in turn, looks whether the graph has tables under the names that it links. Each of the two looks after
    it has written, so at least one of them sees what the other wrote.
    """

    uses: Sequence[NameUse] = ()
    linked: Sequence[Mapping[Ref, Ref]] = ()
    # how often the symlinks of each tenant had changed when the names were resolved
    changes: Mapping[int, int] = field(default_factory=dict)

    @property
    def tenants(self) -> set[int]:
        return set(self.changes)

    def find_changed(self, connection: Connection, changes: Mapping[int, int]) -> set[int]:
        """Tenants some of whose names do not mean any more what the group assumed."""
        found: set[int] = set()
        for tenant_id, before in self.changes.items():
            if changes.get(tenant_id, 0) == before:
                continue
            mine = [pair for pair in zip(self.uses, self.linked, strict=True) if pair[0].tenant_id == tenant_id]
            names = {name for use, _ in mine for name in (*use.names.plain, *use.names.symlinks)}
            meanings = read_meanings(connection, tenant_id, names)
            if any(
                linked_names(meanings, use.names.plain, use.version) != linked
                or missing_symlinks(meanings, use.names.said_at(use.version))
                for use, linked in mine
            ):
                found.add(tenant_id)
        return found


def read_meanings(connection: Connection, tenant_id: int, names: Iterable[Ref] | None = None) -> Meanings:
    """The rows of these names, or of all names of the tenant."""
    return {name: meaning for some in _conditions(names) for name, meaning in _select(connection, tenant_id, some)}


def note_use(connection: Connection, tenant_id: int, meanings: Meanings) -> None:
    """Notes that events rely on these rows: they use the names without saying what these are linked to."""
    _write(connection, tenant_id, {name: one for name, one in meanings.items() if not one.used}, used=True)


def read_all(engine: Engine, tenant_id: int) -> Meanings:
    return read(engine, lambda connection: read_meanings(connection, tenant_id))


def add_symlinks(engine: Engine, tenant_id: int, said: Mapping[Ref, Sequence[tuple[Version, Ref]]]) -> None:
    """Adds symlinks of stored events, for names of which a rebuild has found some to be missing."""

    def work(connection: Connection) -> None:
        meanings = _lock(connection, tenant_id, said)
        _write(connection, tenant_id, {name: one.with_symlinks(said[name]) for name, one in meanings.items()})
        rebuild_requests.count_symlink_change(connection, tenant_id)

    transact(engine, work)


def mark_exact(engine: Engine, tenant_id: int, read_before: Meanings, used: Collection[Ref]) -> None:
    """After a rebuild that found no symlink missing; rows to which one came late in the meantime are not exact again.

    used: names that stored events use without saying what they are linked to.
    """
    differ = {
        name: meaning
        for name, meaning in read_before.items()
        if not meaning.exact or (name in used and not meaning.used)
    }

    def work(connection: Connection) -> None:
        now = _lock(connection, tenant_id, differ)
        changed = {
            name: replace(
                meaning,
                exact=meaning.exact or meaning.late == differ[name].late,
                used=meaning.used or name in used,
            )
            for name, meaning in now.items()
        }
        _write(connection, tenant_id, changed)

    if differ:
        transact(engine, work)


def _add_contradicting(
    connection: Connection, tenant_id: int, said: Sequence[Symlink], meanings: dict[Ref, Meaning]
) -> bool:
    """Adds the symlinks to the rows, and to `meanings`; True if an event that is stored already relied on a row."""
    locked = _lock(connection, tenant_id, {link.name for link in said})
    meanings |= locked
    late = False
    for link in sorted(said, key=lambda link: link.version):
        known = meanings[link.name]
        if known.at(link.version) == link.table or not known.keeps(link.version):
            continue
        if known.changes and known.may_come_late and _has_newer_event(connection, tenant_id, link.version):
            late |= known.used
            known = replace(known, exact=False, late=known.late + 1)
            if not known.may_come_late:
                log.warning("tenant %d: %s was linked to other tables late too often", tenant_id, link.name.name)
        elif not known.changes and link.table == link.name:
            # events may have used the name before it had a row: they rely on what this symlink confirms
            known = replace(known, used=True)
        meanings[link.name] = known.with_symlinks([(link.version, link.table)])
    changed = {name: meanings[name] for name in locked if meanings[name] != locked[name]}
    if changed:
        _write(connection, tenant_id, changed)
        rebuild_requests.count_symlink_change(connection, tenant_id)
    return late


def _has_newer_event(connection: Connection, tenant_id: int, version: Version) -> bool:
    events = lineage_events.c
    query = select(events.id).where(events.tenant_id == tenant_id, events.version > version).limit(1)
    return connection.execute(query).first() is not None


def _lock(connection: Connection, tenant_id: int, names: Iterable[Ref]) -> dict[Ref, Meaning]:
    """Reads rows so that no other process changes them meanwhile; creates those that do not exist."""
    wanted = sorted(names, key=lambda name: name.id)
    upsert(
        connection,
        lineage_symlink,
        [_row(tenant_id, name, Meaning()) for name in wanted],
        key=("tenant_id", "name_id"),
        update="nothing",
    )
    found = {
        name: meaning
        for some in _conditions(wanted)
        for name, meaning in _select(connection, tenant_id, some, lock=True)
    }
    return found


def _write(connection: Connection, tenant_id: int, changed: Mapping[Ref, Meaning], *, used: bool = False) -> None:
    """used: only notes that events rely on these rows."""
    rows = [
        _row(tenant_id, name, replace(meaning, used=used or meaning.used))
        for name, meaning in sorted(changed.items(), key=lambda item: item[0].id)
    ]
    columns = ["used"] if used else ["links", "used", "exact"]
    upsert(connection, lineage_symlink, rows, key=("tenant_id", "name_id"), update=columns)


def _row(tenant_id: int, name: Ref, meaning: Meaning) -> dict[str, object]:
    tables = [[version, *table.name] for version, table in meaning.changes]
    links = {"name": name.name, "tables": tables, "late": meaning.late}
    row = {"tenant_id": tenant_id, "name_id": name.id, "links": links}
    return row | {"used": int(meaning.used), "exact": int(meaning.exact)}


def _conditions(names: Iterable[Ref] | None) -> Iterator[list[str] | None]:
    if names is None:
        yield None
        return
    yield from chunks(sorted(name.id for name in names), NAMES_PER_STATEMENT)


def _select(
    connection: Connection, tenant_id: int, ids: Sequence[str] | None, *, lock: bool = False
) -> Iterator[tuple[Ref, Meaning]]:
    query = select(_rows.links, _rows.used, _rows.exact).where(_rows.tenant_id == tenant_id)
    if ids is not None:
        query = query.where(_rows.name_id.in_(ids))
    if lock:
        query = query.order_by(_rows.name_id).with_for_update()
    for row in connection.execute(query):
        changes = tuple((Version(version), Ref("table", tuple(name))) for version, *name in row.links["tables"])
        # rows of an older release do not say how many came late
        meaning = Meaning(changes, bool(row.used), bool(row.exact), row.links.get("late", 0))
        yield Ref("table", tuple(row.links["name"])), meaning
