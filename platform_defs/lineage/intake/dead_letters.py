"""Dead letters: refused events, kept with reason and source so that an operator can see them and retry them."""

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

# The longest text that certainly fits into one INSERT statement; longer payloads are cut.
MAX_PAYLOAD = MAX_BYTES // 4
_letters = lineage_dead_letter.c


class LetterStatus(StrEnum):
    OPEN = "OPEN"
    RETRIED = "RETRIED"


@dataclass(frozen=True, slots=True)
class Refusal:
    """An event as it was received, and why it was refused."""

    payload: str
    reason: str


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """tenant_id: the tenant of the credential, because the tenant of a refused event is not decided."""

    id: int
    tenant_id: int | None
    source: str | None
    source_type: str | None
    reason: str
    payload: str
    status: LetterStatus
    retry_count: int
    created_at: datetime


def store_refusals(engine: Engine, principal: Principal, refusals: Sequence[Refusal], *, attempts: int = 2) -> int:
    """Stores refused events and returns how many were new: an identical open letter of the same source stays alone."""
    source = {
        "tenant_id": principal.tenant.id if principal.tenant else None,
        "source": principal.name[:255],
        "source_type": None if principal.source_type is None else str(principal.source_type),
    }
    by_hash = {sha256_hex(refusal.payload): refusal for refusal in refusals}
    already_open = select(_letters.payload_hash).where(
        _letters.payload_hash.in_(list(by_hash)),
        _letters.status == LetterStatus.OPEN,
        *(_letters[name].is_not_distinct_from(value) for name, value in source.items()),
    )

    def work(connection: Connection) -> int:
        new = by_hash.keys() - set(connection.scalars(already_open))
        rows = [
            source | {"reason": refusal.reason, "payload": _storable_payload(refusal.payload), "payload_hash": hash}
            for hash, refusal in by_hash.items()
            if hash in new
        ]
        if rows:
            connection.execute(lineage_dead_letter.insert(), rows)
        return len(rows)

    return transact(engine, work, attempts=attempts)


def list_letters(
    engine: Engine, *, status: LetterStatus | None = LetterStatus.OPEN, limit: int = 100
) -> list[DeadLetter]:
    """Dead letters with this status (None: any status), the newest first."""
    query = select(lineage_dead_letter).order_by(_letters.id.desc()).limit(limit)
    if status is not None:
        query = query.where(_letters.status == status)
    return [_read_letter(row) for row in read(engine, lambda connection: connection.execute(query).all())]


def find_letters(engine: Engine, ids: Sequence[int]) -> list[DeadLetter]:
    query = select(lineage_dead_letter).where(_letters.id.in_(ids)).order_by(_letters.id)
    return [_read_letter(row) for row in read(engine, lambda connection: connection.execute(query).all())]


def close_letter(engine: Engine, letter_id: int) -> None:
    """Records that the event was accepted on a later try."""
    _update_letter(engine, letter_id, {"status": LetterStatus.RETRIED, "retry_count": _letters.retry_count + 1})


def record_refusal(engine: Engine, letter_id: int, reason: str) -> None:
    """Records that a retry was refused, and for which reason; the letter stays open."""
    _update_letter(engine, letter_id, {"reason": reason, "retry_count": _letters.retry_count + 1})


def delete_older(engine: Engine, before: datetime) -> int:
    """Deletes letters kept before this time; returns how many."""
    old = _letters.created_at < before
    return delete_old_rows(engine, lineage_dead_letter, old, order_by=_letters.created_at, keep_newest=False)


def _update_letter(engine: Engine, letter_id: int, values: dict[str, Any]) -> None:
    change = update(lineage_dead_letter).where(_letters.id == letter_id).values(values)
    transact(engine, lambda connection: connection.execute(change))


def _storable_payload(payload: str) -> str:
    """The payload as received, except that lone surrogates are escaped and a text that is too long is cut."""
    return payload.encode("utf-8", "backslashreplace").decode()[:MAX_PAYLOAD]


def _read_letter(row: Row[Any]) -> DeadLetter:
    return DeadLetter(
        id=row.id,
        tenant_id=row.tenant_id,
        source=row.source,
        source_type=row.source_type,
        reason=row.reason,
        payload=row.payload,
        status=LetterStatus(row.status),
        retry_count=row.retry_count,
        created_at=row.created_at,
    )
