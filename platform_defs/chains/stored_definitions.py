"""What chains and jobs have in common as stored definitions: unique names, versions, enabled or not, and pages."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Column, ColumnElement, Connection, Engine, Row, Table, and_, func, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from platform_defs.chains import audit
from platform_defs.chains.errors import Conflict, NameTaken, Unknown
from platform_defs.chains.request_keys import RequestKey, claim_key
from platform_defs.store.engine import read, transact
from platform_defs.work.definition_versions import bump

VERSION_COUNTER = "chains"
Saved = Literal["new", "updated", "unchanged"]
MAX_NAME = 128


@dataclass(frozen=True)
class Page:
    """One page of a list, without the large column; `total` counts the rows of all pages."""

    rows: Sequence[Row[Any]]
    page: int
    size: int
    total: int


@dataclass(frozen=True)
class StoredDefinitions:
    """One table of definitions. `noun` is what messages, error codes and the audit call a row of it.

    `body` are the columns that a page leaves out. With `always_reload` every change raises the counter of definitions,
    which also serialises the changes; else only a change of what is enabled does.
    """

    noun: str
    table: Table
    body: tuple[str, ...]
    always_reload: bool

    @property
    def id_column(self) -> Column[str]:
        column: Column[str] = self.table.c[f"{self.noun}_id"]
        return column

    # -- reading ----------------------------------------------------------------------------------------------------

    def find(self, connection: Connection, object_id: str, *, for_update: bool = False) -> Row[Any]:
        query = select(self.table).where(self.id_column == object_id)
        found = connection.execute(query.with_for_update() if for_update else query).one_or_none()
        if found is None:
            message = f"{self.noun} not found: {object_id}{self._hint_for_name(connection, object_id)}"
            raise Unknown(message, code=f"{self.noun.upper()}_NOT_FOUND")
        return found

    def _hint_for_name(self, connection: Connection, name: str) -> str:
        """Which id was meant, if somebody gave a name where an id is wanted."""
        ids = connection.execute(select(self.id_column).where(self.table.c.name == name).limit(1)).scalars().all()
        return f"; expected an id, and the {self.noun} of this name has the id {ids[0]}" if ids else ""

    def get(self, engine: Engine, object_id: str) -> Row[Any]:
        return read(engine, lambda connection: self.find(connection, object_id))

    def page(self, engine: Engine, *, page: int, size: int, keyword: str | None, enabled: bool | None) -> Page:
        """The newest first. The keyword is looked for in names and descriptions, in small or capital letters."""
        table = self.table
        wanted: list[ColumnElement[bool]] = []
        if keyword:
            texts = (table.c.name, table.c.description)
            wanted.append(
                or_(
                    *(text.contains(keyword, autoescape=True) for text in texts),
                    *(func.lower(text).contains(keyword.lower(), autoescape=True) for text in texts),
                )
            )
        if enabled is not None:
            wanted.append(table.c.enabled == enabled)
        columns = [column for column in table.columns if column.name not in self.body]
        rows = (
            select(*columns)
            .where(and_(True, *wanted))
            .order_by(table.c.created_at.desc(), self.id_column)
            .limit(size)
            .offset((page - 1) * size)
        )
        count = select(func.count()).select_from(table).where(and_(True, *wanted))

        def look(connection: Connection) -> Page:
            return Page(connection.execute(rows).all(), page, size, connection.execute(count).scalar_one())

        return read(engine, look)

    # -- writing ----------------------------------------------------------------------------------------------------

    def create(
        self, engine: Engine, object_id: str, values: Mapping[str, Any], *, actor: str, request_key: RequestKey | None
    ) -> Row[Any]:
        """Writes a new definition, or returns the one that an earlier request with this key has made."""

        def work(connection: Connection) -> Row[Any]:
            chosen = object_id if request_key is None else claim_key(connection, request_key, object_id)
            present = connection.execute(select(self.table).where(self.id_column == chosen)).one_or_none()
            # present: the same key again, or our own transaction whose answer was lost
            return self.write_new(connection, chosen, values, actor=actor) if present is None else present

        return self._write(engine, work, values["name"])

    def write_new(self, connection: Connection, object_id: str, values: Mapping[str, Any], *, actor: str) -> Row[Any]:
        """Writes a new definition in the caller's transaction; raises NameTaken."""
        self._raise_counter(connection, enabled=values["enabled"])
        self._refuse_taken_name(connection, values["name"], object_id)
        connection.execute(insert(self.table).values({self.id_column.name: object_id, **values}))
        row = self.find(connection, object_id)
        self._audit(connection, actor, "create", None, row)
        return row

    def update(
        self, engine: Engine, object_id: str, values: Mapping[str, Any], *, version: int, actor: str
    ) -> Row[Any]:
        """Changes the row if it still has this version, and raises the version."""
        tries = 0

        def work(connection: Connection) -> Row[Any]:
            nonlocal tries
            tries += 1
            before = self.find(connection, object_id, for_update=True)
            if before.version != version:
                if tries > 1 and before.version == version + 1 and _has(before, values):
                    return before  # our own transaction, whose answer was lost
                raise self._conflict()
            return self.write_change(connection, before, values, actor=actor)

        return self._write(engine, work, values["name"])

    def write_change(
        self, connection: Connection, before: Row[Any], values: Mapping[str, Any], *, actor: str
    ) -> Row[Any]:
        """Changes a row that the caller has locked."""
        object_id = before._mapping[self.id_column]
        self._raise_counter(connection, enabled=before.enabled or values.get("enabled", False))
        self._refuse_taken_name(connection, values["name"], object_id)
        changed = update(self.table).where(self.id_column == object_id, self.table.c.version == before.version)
        if connection.execute(changed.values({**values, "version": before.version + 1})).rowcount != 1:
            raise self._conflict()
        row = self.find(connection, object_id)
        self._audit(connection, actor, "update", before, row)
        return row

    def save_by_name(
        self, connection: Connection, new_id: str, values: Mapping[str, Any], *, actor: str
    ) -> tuple[Row[Any], Saved]:
        """Creates the row, or changes the one with this name; one that is as given already stays as it is."""
        query = select(self.table).where(self.table.c.name == values["name"]).with_for_update()
        before = connection.execute(query).one_or_none()
        if before is None:
            return self.write_new(connection, new_id, values, actor=actor), "new"
        if _has(before, values):
            return before, "unchanged"
        return self.write_change(connection, before, values, actor=actor), "updated"

    def set_enabled(self, engine: Engine, object_id: str, enabled: bool, *, actor: str) -> Row[Any]:
        """The row afterwards. Its version stays; setting what is set already changes nothing."""

        def work(connection: Connection) -> Row[Any]:
            before = self.find(connection, object_id, for_update=True)
            if before.enabled == enabled:
                return before
            bump(connection, VERSION_COUNTER)
            connection.execute(update(self.table).where(self.id_column == object_id).values(enabled=enabled))
            row = self.find(connection, object_id)
            self._audit(connection, actor, "enable" if enabled else "disable", before, row)
            return row

        return transact(engine, work)

    def _write(self, engine: Engine, work: Any, name: str) -> Row[Any]:
        try:
            row: Row[Any] = transact(engine, work)
        except IntegrityError:
            raise self._name_taken(name) from None
        return row

    def _raise_counter(self, connection: Connection, *, enabled: bool) -> None:
        if enabled or self.always_reload:
            bump(connection, VERSION_COUNTER)

    def _refuse_taken_name(self, connection: Connection, name: str, object_id: str) -> None:
        taken = select(self.id_column).where(self.table.c.name == name, self.id_column != object_id)
        if connection.execute(taken).first() is not None:
            raise self._name_taken(name)

    def _conflict(self) -> Conflict:
        return Conflict(f"{self.noun} version conflict or not found", code="VERSION_CONFLICT")

    def _name_taken(self, name: str) -> NameTaken:
        return NameTaken(f"{self.noun} name already exists: {name}", code=f"{self.noun.upper()}_NAME_TAKEN")

    def _audit(self, connection: Connection, actor: str, action: str, before: Row[Any] | None, after: Row[Any]) -> None:
        audit.record(
            connection,
            actor=actor,
            action=f"{self.noun}.{action}",
            object_id=after._mapping[self.id_column],
            before=None if before is None else _audited(before),
            after=_audited(after),
        )


def _audited(row: Row[Any]) -> dict[str, Any]:
    left_out = ("created_at", "updated_at")
    return {name: value for name, value in row._mapping.items() if name not in left_out}


def _has(row: Row[Any], values: Mapping[str, Any]) -> bool:
    return all(row._mapping[name] == value for name, value in values.items())
