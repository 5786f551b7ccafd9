"""Gateway assertions: short-lived EdDSA tokens that vouch for one request, each accepted once.

A gateway that has authenticated a source signs a JWT for the request it forwards. The token names its key (`kid`),
the request (`method`, `path`) and the source (`sub`, `sourceType`, `tenantId`, `tenantCode`, `tenantName`). An
assertion may post lineage; a `scope` claim (names separated by spaces) replaces that, and names that do not exist here
grant nothing.
"""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from sqlalchemy import Engine
from sqlalchemy.exc import IntegrityError

from platform_defs.access.errors import AssertionRefused
from platform_defs.access.principal import ALL_SCOPES, SourceType, parse_source_type
from platform_defs.access.tenants import MAX_ID
from platform_defs.canonical import canonical_hash
from platform_defs.errors import SettingsError
from platform_defs.settings import Settings
from platform_defs.store.engine import transact
from platform_defs.store.tables.access import used_assertions

SKEW = timedelta(seconds=5)
# Bounded, so that the ids of used assertions can be deleted soon.
LONGEST_LIFE = timedelta(minutes=5)
# Ids are kept a little longer than their assertions: a process whose clock is behind must not accept one again.
KEPT_AFTER_EXPIRY = timedelta(minutes=1)
MAX_ID_LENGTH = 512
DEFAULT_SCOPES = frozenset({"lineage:write"})


@dataclass(frozen=True)
class Gateway:
    """The trusted gateway: its public keys by kid (current and previous), and the issuer and audience to expect."""

    keys: Mapping[str, Ed25519PublicKey]
    issuer: str
    audience: str


@dataclass(frozen=True)
class Assertion:
    """A verified assertion. `tenant_code` and `tenant_name` come from the gateway and may differ from the record."""

    subject: str
    issuer: str
    jti: str
    expires_at: datetime
    scopes: frozenset[str]
    source_type: SourceType | None
    tenant_id: int | None
    tenant_code: str | None
    tenant_name: str | None


def load_gateway(settings: Settings) -> Gateway | None:
    """The gateway that the settings describe; None if the settings name no gateway."""
    if not settings.gateway_keys.strip():
        return None
    for name, value in (("ISSUER", settings.gateway_issuer), ("AUDIENCE", settings.gateway_audience)):
        if not value:
            raise SettingsError(f"PLATFORM_GATEWAY_{name}: expected, because PLATFORM_GATEWAY_KEYS is set")
    keys = {}
    for entry in settings.gateway_keys.split(","):
        kid, _, reference = entry.strip().partition("=")
        kind, _, path = reference.partition(":")
        if not kid or kind != "file" or not path:
            raise SettingsError("PLATFORM_GATEWAY_KEYS: expected kid=file:PATH, several separated by commas")
        keys[kid] = _load_public_key(kid, Path(path))
    return Gateway(keys, settings.gateway_issuer, settings.gateway_audience)


def verify_assertion(gateway: Gateway, token: str, *, method: str, path: str, now: datetime) -> Assertion:
    """The assertion in a token for this very request. Does not check whether the token was used before."""
    claims = _signed_claims(gateway, token)
    for claim, expected in (("iss", gateway.issuer), ("method", method), ("path", path)):
        if claims.get(claim) != expected:
            raise AssertionRefused(claim, f"expected {expected!r}")
    audience = claims.get("aud")
    if gateway.audience not in (audience if isinstance(audience, list) else [audience]):
        raise AssertionRefused("aud", f"expected {gateway.audience!r}")
    expires_at = _check_life(claims, now)
    return Assertion(
        subject=_text(claims, "sub"),
        issuer=gateway.issuer,
        jti=_text(claims, "jti"),
        expires_at=expires_at,
        scopes=_scopes(claims),
        source_type=_source_type(claims),
        tenant_id=_tenant_id(claims),
        tenant_code=_optional_text(claims, "tenantCode"),
        tenant_name=_optional_text(claims, "tenantName"),
    )


def mark_used(engine: Engine, assertion: Assertion) -> None:
    """Marks an assertion as used; the unique key in the database decides between processes that race."""
    row = {
        "assertion_hash": canonical_hash([assertion.issuer, assertion.jti]),
        "expires_at": assertion.expires_at + SKEW,
    }
    try:
        # one attempt: after a lost connection a second insert could take our own row for a replay
        transact(engine, lambda connection: connection.execute(used_assertions.insert().values(row)), attempts=1)
    except IntegrityError:
        raise AssertionRefused("jti", "expected one that was not used before") from None


def delete_expired_ids(engine: Engine, now: datetime) -> int:
    """Deletes the ids of assertions that have expired; returns how many."""
    old = used_assertions.delete().where(used_assertions.c.expires_at < now - KEPT_AFTER_EXPIRY)
    return transact(engine, lambda connection: connection.execute(old).rowcount)


def _load_public_key(kid: str, path: Path) -> Ed25519PublicKey:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SettingsError(f"PLATFORM_GATEWAY_KEYS: {kid}: {path} cannot be read: {error.strerror}") from None
    try:
        if b"-----BEGIN" not in data:
            return Ed25519PublicKey.from_public_bytes(_decode_base64(data))
        key = load_pem_public_key(data)
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise SettingsError(
            f"PLATFORM_GATEWAY_KEYS: {kid}: {path} holds no Ed25519 public key; expected PEM or 32 bytes in base64"
        )
    return key


def _decode_base64(data: bytes) -> bytes:
    text = data.strip().translate(bytes.maketrans(b"-_", b"+/"))
    try:
        return base64.b64decode(text + b"=" * (-len(text) % 4), validate=True)
    except binascii.Error:
        raise ValueError("not base64") from None


def _signed_claims(gateway: Gateway, token: str) -> dict[str, Any]:
    try:
        header = jwt.get_unverified_header(token)
    except jwt.PyJWTError:
        raise AssertionRefused("token", "expected a JWT signed with EdDSA") from None
    if header.get("alg") != "EdDSA":
        raise AssertionRefused("alg", "expected EdDSA")
    kid = header.get("kid")
    key = gateway.keys.get(kid) if isinstance(kid, str) else None
    if key is None:
        raise AssertionRefused("kid", "expected the id of a configured gateway key")
    # every claim is checked here by hand: the library knows neither method and path nor a bound on exp - iat
    unchecked = {f"verify_{claim}": False for claim in ("exp", "iat", "nbf", "aud", "iss", "sub", "jti")}
    try:
        claims: dict[str, Any] = jwt.decode(token, key, algorithms=["EdDSA"], options=unchecked)  # type: ignore[arg-type]
    except jwt.PyJWTError:
        raise AssertionRefused("signature", "expected one made with the key that kid names") from None
    return claims


def _check_life(claims: Mapping[str, Any], now: datetime) -> datetime:
    issued, expires = _instant(claims, "iat"), _instant(claims, "exp")
    if issued > now + SKEW:
        raise AssertionRefused("iat", "expected a time that is not in the future")
    if expires <= now - SKEW:
        raise AssertionRefused("exp", "expected an assertion that has not expired")
    if not timedelta(0) < expires - issued <= LONGEST_LIFE:
        raise AssertionRefused("exp", f"expected at most {LONGEST_LIFE.seconds} seconds after iat")
    if "nbf" in claims and _instant(claims, "nbf") > now + SKEW:
        raise AssertionRefused("nbf", "expected a time that is not in the future")
    return expires


def _instant(claims: Mapping[str, Any], claim: str) -> datetime:
    value = claims.get(claim)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise AssertionRefused(claim, "expected seconds since 1970")
    try:
        return datetime.fromtimestamp(value, UTC)
    except (ValueError, OverflowError, OSError):
        raise AssertionRefused(claim, "expected seconds since 1970") from None


def _text(claims: Mapping[str, Any], claim: str) -> str:
    value = claims.get(claim)
    if not isinstance(value, str) or not 0 < len(value) <= MAX_ID_LENGTH:
        raise AssertionRefused(claim, f"expected text of 1 to {MAX_ID_LENGTH} characters")
    return value


def _optional_text(claims: Mapping[str, Any], claim: str) -> str | None:
    return None if claims.get(claim) in (None, "") else _text(claims, claim)


def _scopes(claims: Mapping[str, Any]) -> frozenset[str]:
    if "scope" not in claims:
        return DEFAULT_SCOPES
    return frozenset(_text(claims, "scope").split()) & ALL_SCOPES


def _source_type(claims: Mapping[str, Any]) -> SourceType | None:
    text = _optional_text(claims, "sourceType")
    if text is None:
        return None
    source_type = parse_source_type(text)
    if source_type is None:
        raise AssertionRefused("sourceType", f"expected one of {', '.join(SourceType)}")
    return source_type


def _tenant_id(claims: Mapping[str, Any]) -> int | None:
    value = claims.get("tenantId")
    if value is None:
        return None
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= len(str(MAX_ID)):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= MAX_ID:
        raise AssertionRefused("tenantId", "expected a positive number, or a string holding one")
    return value
