"""Refused events: kept with the reason and the source, so that an operator can see them and try them again."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, Engine, Row, select, update

from platform_defs.access.principal import Principal
from platform_defs.canonical import sha256_hex
from platform_defs.store.deletion import delete_old_rows
from platform_defs.store.engine import read, transact
from platform_defs.store.tables.lineage import lineage_dead_letter
from platform_defs.store.upsert import MAX_BYTES

# a column takes no more in one statement, and what is longer than this is no event
MAX_PAYLOAD = MAX_BYTES // 4
_letters = lineage_dead_letter.c


class Status(StrEnum):
    OPEN = "OPEN"
    RETRIED = "RETRIED"


@dataclass(frozen=True, slots=True)
class Refusal:
    payload: str
    reason: str


@dataclass(frozen=True, slots=True)
class DeadLetter:
    id: int
    tenant_id: int | None  # of the credential: a refused event has none of its own
    source: str | None
    source_type: str | None
    reason: str
    payload: str
    status: Status
    retry_count: int
    created_at: datetime


def keep(engine: Engine, principal: Principal, refusals: Sequence[Refusal], *, attempts: int = 2) -> int:
    """How many letters are new: what is open already, from the same source, is not kept a second time."""
    source = {
        "tenant_id": principal.tenant.id if principal.tenant else None,
        "source": principal.name[:255],
        "source_type": None if principal.source_type is None else str(principal.source_type),
    }
    by_hash = {sha256_hex(refusal.payload): refusal for refusal in refusals}
    known = select(_letters.payload_hash).where(
        _letters.payload_hash.in_(list(by_hash)),
        _letters.status == Status.OPEN,
        *(_letters[name].is_not_distinct_from(value) for name, value in source.items()),
    )

    def work(connection: Connection) -> int:
        new = by_hash.keys() - set(connection.scalars(known))
        rows = [
            source | {"reason": refusal.reason, "payload": _storable(refusal.payload), "payload_hash": mark}
            for mark, refusal in by_hash.items()
            if mark in new
        ]
        if rows:
            connection.execute(lineage_dead_letter.insert(), rows)
        return len(rows)

    return transact(engine, work, attempts=attempts)


def listed(engine: Engine, *, status: Status | None = Status.OPEN, limit: int = 100) -> list[DeadLetter]:
    """The newest first."""
    query = select(lineage_dead_letter).order_by(_letters.id.desc()).limit(limit)
    if status is not None:
        query = query.where(_letters.status == status)
    return [_letter(row) for row in read(engine, lambda connection: connection.execute(query).all())]


def find(engine: Engine, ids: Sequence[int]) -> list[DeadLetter]:
    query = select(lineage_dead_letter).where(_letters.id.in_(ids)).order_by(_letters.id)
    return [_letter(row) for row in read(engine, lambda connection: connection.execute(query).all())]


def close(engine: Engine, letter_id: int) -> None:
    """The event was accepted on a later try."""
    _change(engine, letter_id, {"status": Status.RETRIED, "retry_count": _letters.retry_count + 1})


def refuse_again(engine: Engine, letter_id: int, reason: str) -> None:
    _change(engine, letter_id, {"reason": reason, "retry_count": _letters.retry_count + 1})


def delete_older(engine: Engine, before: datetime) -> int:
    """Deletes letters kept before this time; returns how many."""
    old = _letters.created_at < before
    return delete_old_rows(engine, lineage_dead_letter, old, order_by=_letters.created_at, keep_newest=False)


def _change(engine: Engine, letter_id: int, values: dict[str, Any]) -> None:
    change = update(lineage_dead_letter).where(_letters.id == letter_id).values(values)
    transact(engine, lambda connection: connection.execute(change))


def _storable(payload: str) -> str:
    """As received, but for what no column holds: lone surrogates, and more than one statement may carry."""
    return payload.encode("utf-8", "backslashreplace").decode()[:MAX_PAYLOAD]


def _letter(row: Row[Any]) -> DeadLetter:
    return DeadLetter(
        id=row.id,
        tenant_id=row.tenant_id,
        source=row.source,
        source_type=row.source_type,
        reason=row.reason,
        payload=row.payload,
        status=Status(row.status),
        retry_count=row.retry_count,
        created_at=row.created_at,
    )
