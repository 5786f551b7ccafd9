"""Advances a cursor: first the event, in a transaction of its own, then the value, and that only in its direction."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, Row, and_, select

from platform_defs.canonical import canonical_hash
from platform_defs.ingest.codes import CursorType, Direction, NamespaceScope, Operation
from platform_defs.ingest.spec.snapshot import instant_text
from platform_defs.store.engine import read, transact
from platform_defs.store.tables.ingest_cursors import ing_cursor, ing_cursor_event
from platform_defs.store.upsert import upsert

_IDENTITY = ("provenance_code", "operation_code", "cursor_key", "namespace_scope_code", "namespace_key")


@dataclass(frozen=True)
class CursorIdentity:
    """What tells one cursor from all others."""

    provenance_code: str
    operation: Operation
    cursor_key: str
    scope: NamespaceScope
    namespace_key: str

    def columns(self) -> dict[str, str]:
        values = (self.provenance_code, self.operation, self.cursor_key, self.scope, self.namespace_key)
        return dict(zip(_IDENTITY, values, strict=True))


@dataclass(frozen=True)
class Lineage:
    """The ids of the rows that led to an advance. It has nothing to do with the lineage system."""

    schedule_instance_id: int | None = None
    plan_id: int | None = None
    slice_id: int | None = None
    task_id: int | None = None
    run_id: int | None = None
    batch_id: int | None = None
    expr_hash: str | None = None


@dataclass(frozen=True)
class Advance:
    """A cursor's next value: an instant for TIME cursors, a number for ID cursors."""

    identity: CursorIdentity
    type: CursorType
    direction: Direction
    instant: datetime | None = None
    numeric: int | None = None
    observed_max: str | None = None
    window: tuple[datetime, datetime] | None = None
    lineage: Lineage = field(default_factory=Lineage)
    remarks: Mapping[str, Any] = field(default_factory=dict)

    @property
    def value(self) -> str:
        return instant_text(self.instant) if self.instant is not None else str(self.numeric)


def read_cursor(engine: Engine, identity: CursorIdentity) -> Row[Any] | None:
    query = select(ing_cursor).where(_identity_condition(identity))
    return read(engine, lambda connection: connection.execute(query).one_or_none())


def advance_cursor(engine: Engine, advance: Advance) -> bool:
    """Moves the cursor in its direction; returns whether it moved. The same advance twice writes one event.

    The event is committed before the value is changed. If the process dies in between, the value stays behind its
    events until the next advance.
    """
    before = read_cursor(engine, advance.identity)
    if before is not None and not _is_further(advance, before):
        return False
    transact(engine, lambda connection: _write_event(connection, advance, before))
    transact(engine, lambda connection: _move_value(connection, advance))
    after = read_cursor(engine, advance.identity)
    return after is not None and after.cursor_value == advance.value


def _is_further(advance: Advance, before: Row[Any]) -> bool:
    by_number = advance.type is CursorType.ID
    old: Any = before.normalized_numeric if by_number else before.normalized_instant
    new: Any = advance.numeric if by_number else advance.instant
    if old is None or new is None:
        return new is not None
    return bool(new > old if advance.direction is Direction.FORWARD else new < old)


def _write_event(connection: Connection, advance: Advance, before: Row[Any] | None) -> None:
    lineage = advance.lineage
    row = {
        **advance.identity.columns(),
        "cursor_type_code": advance.type,
        "direction_code": advance.direction,
        "prev_value": None if before is None else before.cursor_value,
        "new_value": advance.value,
        "prev_instant": None if before is None else before.normalized_instant,
        "new_instant": advance.instant,
        "prev_numeric": None if before is None else before.normalized_numeric,
        "new_numeric": advance.numeric,
        "observed_max_value": advance.observed_max,
        "window_from": None if advance.window is None else advance.window[0],
        "window_to": None if advance.window is None else advance.window[1],
        "idempotent_key": canonical_hash(
            [*advance.identity.columns().values(), advance.direction, advance.value, lineage.plan_id]
        ),
        "schedule_instance_id": lineage.schedule_instance_id,
        "plan_id": lineage.plan_id,
        "slice_id": lineage.slice_id,
        "task_id": lineage.task_id,
        "run_id": lineage.run_id,
        "batch_id": lineage.batch_id,
        "expr_hash": lineage.expr_hash,
        "record_remarks": dict(advance.remarks),
    }
    upsert(connection, ing_cursor_event, [row], key=["idempotent_key"], update="nothing")


def _move_value(connection: Connection, advance: Advance) -> None:
    lineage = advance.lineage
    row = {
        **advance.identity.columns(),
        "cursor_type_code": advance.type,
        "cursor_value": advance.value,
        "observed_max_value": advance.observed_max,
        "normalized_instant": advance.instant,
        "normalized_numeric": advance.numeric,
        "schedule_instance_id": lineage.schedule_instance_id,
        "plan_id": lineage.plan_id,
        "slice_id": lineage.slice_id,
        "task_id": lineage.task_id,
        "last_run_id": lineage.run_id,
        "last_batch_id": lineage.batch_id,
        "expr_hash": lineage.expr_hash,
    }
    table = ing_cursor.c
    changing = [name for name in row if name not in _IDENTITY]

    def values(incoming: Any) -> dict[str, Any]:
        return {name: incoming[name] for name in changing} | {"version": table.version + 1}

    def is_further(incoming: Any) -> ColumnElement[bool]:
        by_number = advance.type is CursorType.ID
        old = table.normalized_numeric if by_number else table.normalized_instant
        new = incoming.normalized_numeric if by_number else incoming.normalized_instant
        found: ColumnElement[bool] = new > old if advance.direction is Direction.FORWARD else new < old
        return found

    upsert(connection, ing_cursor, [row], key=list(_IDENTITY), update=values, when=is_further)


def _identity_condition(identity: CursorIdentity) -> ColumnElement[bool]:
    return and_(*(ing_cursor.c[name] == value for name, value in identity.columns().items()))
