"""Idempotency keys: a request that is sent again with its key gives what the first one made."""

from dataclasses import dataclass

from sqlalchemy import Connection, select

from platform_defs.canonical import sha256_hex
from platform_defs.chains.errors import Conflict
from platform_defs.store.tables.chains import job_request_key
from platform_defs.store.upsert import upsert

MAX_KEY = 255
_MAX_SCOPE = 191


@dataclass(frozen=True)
class RequestKey:
    """`scope` is who asks and for what, so that two callers may use the same key; `body_hash` is of the whole body."""

    scope: str
    key: str
    body_hash: str


def claim_key(connection: Connection, request: RequestKey, object_id: str) -> str:
    """The id of what the first request with this key made; `object_id` if this is the first one.

    A second request in the same moment waits here until the first one's transaction has ended.
    """
    table = job_request_key
    scope = request.scope if len(request.scope) <= _MAX_SCOPE else sha256_hex(request.scope)
    row = {"scope": scope, "request_key": request.key, "body_hash": request.body_hash, "object_id": object_id}
    upsert(connection, table, [row], key=["scope", "request_key"], update="nothing")
    query = select(table.c.body_hash, table.c.object_id).where(
        table.c.scope == scope, table.c.request_key == request.key
    )
    found = connection.execute(query).one()
    if found.body_hash != request.body_hash:
        raise Conflict(
            f"Idempotency-Key {request.key!r} was used before with another body; send a new key with a new request",
            code="IDEMPOTENCY_KEY_REUSED",
        )
    return str(found.object_id)
