"""Loads Registry files: compares them with the rows in effect, and stores what differs as new effective rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, Engine, Table, func, insert, select, update

from platform_defs.ingest.errors import IngestError, RegistryFileError, UnknownEndpoint
from platform_defs.ingest.registry.dictionaries import seed_dictionaries, store_aliases, store_dictionaries
from platform_defs.ingest.registry.file import FileRow, RegistryFile, with_base_url
from platform_defs.ingest.registry.rows import Row, read_registry, rows_in_effect
from platform_defs.ingest.registry.sections import ALL, CONFIGURATIONS, EFFECTIVE_TABLES, data_columns, key_columns
from platform_defs.ingest.spec.compiler import findings_of_source
from platform_defs.ingest.spec.security_checks import address_problems
from platform_defs.ingest.spec.snapshot import instant_text
from platform_defs.store.engine import read, transact
from platform_defs.store.tables.registry import reg_expr_field_dict, reg_provenance
from platform_defs.store.tables.work import definition_versions
from platform_defs.store.upsert import upsert
from platform_defs.work.definition_versions import bump
from platform_defs.yaml_lines import Problem

# the counter of the rows from which ingest's Dagster definitions are built
VERSION_COUNTER = "ingest"
_TICK = timedelta(microseconds=1)


class ChangeKind(StrEnum):
    ADDED = "added"
    CHANGED = "changed"
    REMOVED = "removed"


@dataclass(frozen=True)
class Change:
    """What loading a file does, or would do, to one row: columns with their value before and after."""

    kind: ChangeKind
    table: Table
    key: tuple[Any, ...]
    columns: Mapping[str, tuple[Any, Any]]
    stored_id: int | None = None
    values: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        scope = ".".join(str(part) for part in self.key if part not in (None, ALL))
        differences = ", ".join(f"{name}: {_difference(*values)}" for name, values in self.columns.items())
        detail = f" {differences}" if self.kind is ChangeKind.CHANGED else ""
        return f"{self.kind} {self.table.name} {scope}{detail}"


def _difference(before: Any, after: Any) -> str:
    """For a person: of long lists only what is new or gone, times as they are written in files."""
    if isinstance(before, list) and isinstance(after, list):
        gone, new = [each for each in before if each not in after], [each for each in after if each not in before]
        parts = [f"{word} {values!r}" for word, values in (("without", gone), ("with", new)) if values]
        return " and ".join(parts) or "in another order"
    return f"{_shown(before)} -> {_shown(after)}"


def _shown(value: Any) -> str:
    return instant_text(value) if isinstance(value, datetime) else repr(value)


def load(engine: Engine, file: RegistryFile, *, now: datetime) -> list[Change]:
    """Stores what the file says of its sources, all or nothing; raises RegistryFileError with every problem.

    Rows of its sources that the file does not name cease to be in effect; other sources stay as they are. Nothing is
    written, and no definitions are reloaded, where the file says what is stored already.
    """
    _raise_problems(file, file.problems)

    def work(connection: Connection) -> list[Change]:
        _lock(connection)
        seed_dictionaries(connection)
        store_dictionaries(connection, file.dictionary_types, file.dictionary_items)
        store_aliases(connection, file.dictionary_aliases)
        _store_field_keys(connection, file)
        changes = _changes_of_file(connection, file, now)
        moment = _apply(connection, changes, now)
        rows = read_registry(connection, moment, file.codes)
        problems = [
            file.problem_of(code, endpoint, operation, finding)
            for code in file.codes
            for endpoint, operation, finding in findings_of_source(rows, code, moment)
        ]
        _raise_problems(file, problems)
        return changes

    return transact(engine, work)


def diff(engine: Engine, file: RegistryFile, *, now: datetime) -> list[Change]:
    """What `load` would change."""
    _raise_problems(file, file.problems)
    return read(engine, lambda connection: _changes_of_file(connection, file, now))


def set_base_url(engine: Engine, code: str, base_url: str, *, now: datetime) -> list[Change]:
    """From now on the source is asked at this address, to which its endpoints' paths are appended."""
    if problems := address_problems(base_url, plain_http_allowed=True):
        raise IngestError(f"base URL: {'; '.join(problems)}")
    http = CONFIGURATIONS["http"].table

    def work(connection: Connection) -> list[Change]:
        _lock(connection)
        known = select(reg_provenance.c.id).where(reg_provenance.c.provenance_code == code)
        if connection.execute(known).first() is None:
            raise UnknownEndpoint(f"no source has the code {code!r}; `platform registry list` shows all")
        stored = rows_in_effect(connection, http, _latest_moment(connection, http, [code], now), [code])
        names = [column.name for column in data_columns(http)]
        present = [FileRow(http, {name: row[name] for name in names}, 1) for row in stored]
        changes = _compare(http, stored, with_base_url(present, code, base_url))
        _apply(connection, changes, now)
        return changes

    return transact(engine, work)


def _lock(connection: Connection) -> None:
    """Makes two loads wait for each other: the second one must compare with what the first one stored."""
    row = {"name": VERSION_COUNTER, "version": 0}
    upsert(connection, definition_versions, [row], key=["name"], update="nothing")
    counter = select(definition_versions.c.version).where(definition_versions.c.name == VERSION_COUNTER)
    connection.execute(counter.with_for_update()).scalar_one()


def _changes_of_file(connection: Connection, file: RegistryFile, now: datetime) -> list[Change]:
    changes = _source_changes(connection, file)
    for table in EFFECTIVE_TABLES:
        stored = rows_in_effect(connection, table, _latest_moment(connection, table, file.codes, now), file.codes)
        changes += _compare(table, stored, [row for row in file.rows if row.table is table])
    return changes


def _source_changes(connection: Connection, file: RegistryFile) -> list[Change]:
    query = select(reg_provenance).where(reg_provenance.c.provenance_code.in_(file.codes))
    stored = {row["provenance_code"]: dict(row) for row in connection.execute(query).mappings()}
    changes = []
    for source in file.sources:
        code = source.values["provenance_code"]
        found = stored.get(code)
        columns = _differences(found, source.values)
        if columns:
            kind = ChangeKind.ADDED if found is None else ChangeKind.CHANGED
            changes.append(Change(kind, reg_provenance, (code,), columns, values=source.values))
    return changes


def _compare(table: Table, stored: Sequence[Row], wanted: Sequence[FileRow]) -> list[Change]:
    names = key_columns(table)
    by_key = {tuple(row[name] for name in names): row for row in stored}
    changes = []
    for row in wanted:
        found = by_key.pop(row.key, None)
        columns = _differences(found, row.values)
        if columns:
            kind = ChangeKind.ADDED if found is None else ChangeKind.CHANGED
            stored_id = None if found is None else found["id"]
            changes.append(Change(kind, table, row.key, columns, stored_id, row.values))
    changes += [Change(ChangeKind.REMOVED, table, key, {}, row["id"]) for key, row in by_key.items()]
    return changes


def _differences(stored: Row | None, wanted: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    before: Mapping[str, Any] = {} if stored is None else stored
    return {name: (before.get(name), value) for name, value in wanted.items() if before.get(name) != value}


def _latest_moment(connection: Connection, table: Table, codes: Sequence[str], now: datetime) -> datetime:
    """Now, or the youngest row's time where another machine's clock is ahead: its row is the one to compare with."""
    newest = select(func.max(table.c.effective_from)).where(table.c.provenance_code.in_(codes))
    found: datetime | None = connection.execute(newest).scalar_one()
    return now if found is None else max(now, found)


def _apply(connection: Connection, changes: Sequence[Change], now: datetime) -> datetime:
    """Writes the changes, two statements a table; returns the moment from which on they hold."""
    if not changes:
        return now
    codes = sorted({change.key[0] for change in changes})
    effective = [change for change in changes if change.table is not reg_provenance]
    moment = _after_rows_of(connection, {change.table for change in effective}, codes, now)
    for table in EFFECTIVE_TABLES:
        of_table = [change for change in effective if change.table is table]
        ended = [change.stored_id for change in of_table if change.stored_id is not None]
        if ended:
            connection.execute(update(table).where(table.c.id.in_(ended)).values(effective_to=moment))
        started = [{**change.values, "effective_from": moment} for change in of_table if change.values]
        if started:
            connection.execute(insert(table), started)
    sources = [change.values for change in changes if change.table is reg_provenance]
    if sources:
        names = [column.name for column in reg_provenance.columns if column.name in {n for s in sources for n in s}]
        upsert(
            connection,
            reg_provenance,
            [{name: source.get(name) for name in names} for source in sources],
            key=["provenance_code"],
        )
    bump(connection, VERSION_COUNTER)
    return moment


def _after_rows_of(connection: Connection, tables: set[Table], codes: Sequence[str], moment: datetime) -> datetime:
    """A moment later than that of every row that is there: two rows of one key cannot begin together."""
    for table in tables:
        newest = select(func.max(table.c.effective_from)).where(table.c.provenance_code.in_(codes))
        found: datetime | None = connection.execute(newest).scalar_one()
        if found is not None and found >= moment:
            moment = found + _TICK
    return moment


def _store_field_keys(connection: Connection, file: RegistryFile) -> None:
    upsert(connection, reg_expr_field_dict, [row.values for row in file.field_keys], key=["field_key"])


def _raise_problems(file: RegistryFile, problems: Sequence[Problem]) -> None:
    if problems:
        raise RegistryFileError([f"{file.name}:{each.line}: {each.text}" for each in sorted(set(problems))])
