"""Tables of access: tenants, API keys (as hashes only) and the ids of gateway assertions already used."""

from sqlalchemy import BigInteger, Column, Index, Table

from platform_defs.store.metadata import created_at, id_column, metadata, updated_at
from platform_defs.store.types import Fixed, Instant, Json, Str

tenants = Table(
    "tenants",
    metadata,
    Column("tenant_id", BigInteger, primary_key=True, autoincrement=False),
    Column("tenant_code", Str(64), nullable=False, unique=True),
    Column("tenant_name", Str(128), nullable=False),
    # the version of the newest lineage event that said the name; NULL if none did
    Column("name_version", Fixed(32)),
    created_at(),
    updated_at(),
)

api_keys = Table(
    "api_keys",
    metadata,
    id_column(),
    Column("public_id", Fixed(16), nullable=False, unique=True),
    Column("key_hash", Fixed(64), nullable=False),
    Column("name", Str(128), nullable=False, index=True),
    Column("scopes", Json, nullable=False),
    Column("source_type", Str(32)),
    Column("tenant_id", BigInteger),
    Column("revoked_at", Instant),
    created_at(),
)

# unique by a hash over issuer and jti, because an issuer may choose a jti of any length
used_assertions = Table(
    "used_assertions",
    metadata,
    Column("assertion_hash", Fixed(64), primary_key=True),
    Column("expires_at", Instant, nullable=False),
    Index("idx_used_assertions_expires_at", "expires_at"),
)
