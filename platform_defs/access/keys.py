"""API keys: `pk_<public id>_<secret>`, shown once when issued and kept only as a hash.

The secret is 192 random bits, so a plain SHA-256 is as good as a slow hash and costs the hot path nothing.
"""

import hmac
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Engine, or_, select
from sqlalchemy.sql import Select

from platform_defs.access.errors import KeyRefused, KeyRequestError
from platform_defs.access.principal import SCOPES, Principal, SourceType, unknown_scopes
from platform_defs.access.tenants import Tenant, find_tenant, tenant_of_row
from platform_defs.canonical import sha256_hex
from platform_defs.store.engine import read, transact
from platform_defs.store.metadata import now
from platform_defs.store.repeating import once
from platform_defs.store.tables.access import api_keys, tenants

MAX_NAME = 128
_FORMAT = re.compile(r"pk_([0-9a-f]{16})_[0-9a-f]{48}")
_REFUSED = "expected a valid API key as `Authorization: Bearer pk_…`; this one is unknown or revoked"


@dataclass(frozen=True)
class StoredKey:
    """A key as the database has it: with its hash, without its secret."""

    public_id: str
    key_hash: str
    name: str
    scopes: frozenset[str]
    source_type: SourceType | None
    tenant: Tenant | None
    created_at: datetime
    revoked_at: datetime | None

    def principal(self) -> Principal:
        return Principal("key", self.name, self.scopes, self.source_type, self.tenant)


def issue_key(
    engine: Engine,
    name: str,
    scopes: Iterable[str],
    *,
    source_type: SourceType | None = None,
    tenant_id: int | None = None,
) -> str:
    """Issues a new key; the returned text is its only copy."""
    wanted = sorted({scope.strip() for scope in scopes} - {""})
    if not name.strip() or len(name) > MAX_NAME:
        raise KeyRequestError(f"name: expected 1 to {MAX_NAME} characters")
    if unknown := unknown_scopes(wanted):
        raise KeyRequestError(f"scopes: unknown {', '.join(unknown)}; known are {', '.join(SCOPES)}")
    if not wanted:
        raise KeyRequestError(f"scopes: expected at least one of {', '.join(SCOPES)}")
    if tenant_id is not None and find_tenant(engine, tenant_id) is None:
        raise KeyRequestError(f"tenant: {tenant_id} is not on record; add it with `platform tenants add`")
    public_id = secrets.token_hex(8)
    key = f"pk_{public_id}_{secrets.token_hex(24)}"
    row = {
        "public_id": public_id,
        "key_hash": sha256_hex(key),
        "name": name,
        "scopes": wanted,
        "source_type": None if source_type is None else source_type.value,
        "tenant_id": tenant_id,
    }

    def work(connection: Connection) -> None:
        connection.execute(api_keys.insert().values(row))

    def is_issued(connection: Connection, _: None) -> bool:
        return connection.execute(select(api_keys.c.id).where(api_keys.c.public_id == public_id)).first() is not None

    transact(engine, once(work, is_issued))
    return key


def refused_uses(scopes: Iterable[str], *, source_type: SourceType | None, tenant_id: int | None) -> list[str]:
    """What such a key will be refused although it has the scope, one line each with what to do."""
    if "lineage:write" not in {scope.strip() for scope in scopes} or tenant_id is not None:
        return []
    if source_type is SourceType.COMPUTE:
        return [
            "no event of this key will be accepted: those of a compute engine belong to its key's tenant (--tenant)"
        ]
    if source_type is None:
        return ["this key can post Gravitino's events alone: those of compute engines need a key with --tenant"]
    return []


def list_keys(engine: Engine) -> list[StoredKey]:
    rows = read(engine, lambda connection: connection.execute(_select_keys().order_by(api_keys.c.id)).all())
    return [_key_from_row(row) for row in rows]


def revoke_key(engine: Engine, name_or_id: str) -> list[str]:
    """Revokes a key by its public id, or every key of a name; returns the public ids that were valid until now."""
    match = or_(api_keys.c.public_id == name_or_id, api_keys.c.name == name_or_id)
    moment = now()

    def work(connection: Connection) -> list[str] | None:
        # the rows are locked by the update before anything is read, so two revocations never both report a key
        connection.execute(api_keys.update().where(match, api_keys.c.revoked_at.is_(None)).values(revoked_at=moment))
        rows = connection.execute(select(api_keys.c.public_id, api_keys.c.revoked_at).where(match)).all()
        return [row.public_id for row in rows if row.revoked_at == moment] if rows else None

    revoked = transact(engine, work)
    if revoked is None:
        raise KeyRequestError(f"no key has the id or name {name_or_id!r}; `platform keys list` shows them")
    return revoked


def parse_public_id(key: str) -> str:
    """The public id inside a key; a text that cannot be a key is refused without asking the database."""
    match = _FORMAT.fullmatch(key)
    if match is None:
        raise KeyRefused(_REFUSED)
    return match[1]


def find_key(engine: Engine, public_id: str) -> StoredKey | None:
    query = _select_keys().where(api_keys.c.public_id == public_id)
    # only two attempts: a client waits, and will ask again before a longer retry would end
    row = read(engine, lambda connection: connection.execute(query).one_or_none(), attempts=2)
    return None if row is None else _key_from_row(row)


def accept_key(key: str, stored: StoredKey | None) -> Principal:
    """The principal of a key. All refusals read the same, so that nobody learns whether a key exists."""
    known_hash = stored.key_hash if stored is not None else "0" * 64
    matches = hmac.compare_digest(sha256_hex(key), known_hash)
    if stored is None or not matches or stored.revoked_at is not None:
        raise KeyRefused(_REFUSED)
    return stored.principal()


def verify_key(engine: Engine, key: str) -> Principal:
    """The principal of a key, read from the database."""
    return accept_key(key, find_key(engine, parse_public_id(key)))


def _select_keys() -> Select[Any]:
    columns = (api_keys, tenants.c.tenant_code, tenants.c.tenant_name, tenants.c.name_version)
    return select(*columns).outerjoin(tenants, tenants.c.tenant_id == api_keys.c.tenant_id)


def _key_from_row(row: Any) -> StoredKey:
    tenant = None if row.tenant_code is None else tenant_of_row(row)
    return StoredKey(
        public_id=row.public_id,
        key_hash=row.key_hash,
        name=row.name,
        scopes=frozenset(row.scopes),
        source_type=None if row.source_type is None else SourceType(row.source_type),
        tenant=tenant,
        created_at=row.created_at,
        revoked_at=row.revoked_at,
    )
