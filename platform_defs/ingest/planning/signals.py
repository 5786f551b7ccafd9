"""Signals: records that somebody wants to be fetched again, whatever their age."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection, Engine, select, update

from platform_defs.ingest.identity import id_number
from platform_defs.ingest.spec.compiler import find_update_endpoint, read_rows
from platform_defs.store.engine import transact
from platform_defs.store.tables.ingest import ing_record_quarantine, ing_signal
from platform_defs.store.upsert import upsert

OPEN = "OPEN"
DONE = "DONE"
QUARANTINE = "quarantine"
_KEY = ("provenance_code", "endpoint_name", "provider_id")
_AT_ONCE = 500


def ask_again(
    engine: Engine,
    provenance_code: str,
    endpoint_name: str,
    provider_ids: Sequence[str],
    *,
    reason: str | None,
    requested_by: str,
    now: datetime,
) -> int:
    """Adds signals for a person or another system; returns how many ids were named.

    Raises UnknownEndpoint if the endpoint has no update, which alone looks at signals.
    """
    endpoint = find_update_endpoint(read_rows(engine, now, provenance_code), provenance_code, endpoint_name)
    # in lower case, as they are stored, or else the record in the answer would not be recognised
    ids = [each.lower() for each in provider_ids] if endpoint["id_case_ignored"] else provider_ids
    return add_signals(engine, provenance_code, endpoint_name, ids, reason=reason, requested_by=requested_by, now=now)


def add_signals(
    engine: Engine,
    provenance_code: str,
    endpoint_name: str,
    provider_ids: Sequence[str],
    *,
    reason: str | None,
    requested_by: str,
    now: datetime,
) -> int:
    """Asks for these records; asking again while a signal is open keeps one. Returns how many ids were named."""
    ids = list(dict.fromkeys(provider_ids))

    def write(connection: Connection) -> None:
        _open_signals(connection, provenance_code, endpoint_name, ids, reason, requested_by, now)

    transact(engine, write)
    return len(ids)


def signal_quarantined(engine: Engine, provenance_code: str, endpoint_name: str, now: datetime) -> int:
    """Asks for the records that were set aside with a known id; each quarantined row is asked for once."""

    def write(connection: Connection) -> int:
        table = ing_record_quarantine.c
        query = (
            select(table.id, table.provider_id, table.reason)
            .where(
                table.provenance_code == provenance_code,
                table.endpoint_name == endpoint_name,
                table.status_code == OPEN,
                table.provider_id.is_not(None),
            )
            .order_by(table.id)
            .limit(_AT_ONCE)
            .with_for_update(skip_locked=True)
        )
        rows = connection.execute(query).all()
        ids = list(dict.fromkeys(row.provider_id for row in rows))
        reason = "set aside: it could not be read"
        _open_signals(connection, provenance_code, endpoint_name, ids, reason, QUARANTINE, now)
        taken = update(ing_record_quarantine).where(table.id.in_([row.id for row in rows]))
        connection.execute(taken.values(status_code="SIGNALLED"))
        return len(ids)

    return transact(engine, write)


def close_signals(
    connection: Connection,
    provenance_code: str,
    endpoint_name: str,
    provider_ids: Sequence[str],
    asked_before: datetime,
) -> None:
    """To be called in the transaction that stored these records again; a signal given since then stays open."""
    table = ing_signal.c
    mine = (
        (table.provenance_code == provenance_code)
        & (table.endpoint_name == endpoint_name)
        & table.provider_id.in_(provider_ids)
        & (table.status_code == OPEN)
        & (table.requested_at <= asked_before)
    )
    connection.execute(update(ing_signal).where(mine).values(status_code=DONE))


def _open_signals(
    connection: Connection,
    provenance_code: str,
    endpoint_name: str,
    ids: Sequence[str],
    reason: str | None,
    requested_by: str,
    now: datetime,
) -> None:
    rows = [
        {
            "provenance_code": provenance_code,
            "endpoint_name": endpoint_name,
            "provider_id": provider_id,
            "id_number": id_number(provider_id),
            "reason": reason,
            "requested_by": requested_by,
            "requested_at": now,
            "status_code": OPEN,
        }
        for provider_id in ids
    ]
    changing = ["reason", "requested_by", "requested_at", "status_code"]
    upsert(connection, ing_signal, rows, key=list(_KEY), update=changing)
