"""Gateway assertions: signed, for one request, for a short time, once."""

import base64
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from sqlalchemy import Engine, func, select

from platform_defs.access.assertions import Gateway, delete_expired_ids, load_gateway, verify_assertion
from platform_defs.access.authenticator import Authenticator
from platform_defs.access.errors import AssertionRefused
from platform_defs.access.principal import Principal, SourceType
from platform_defs.access.tenants import Tenant, add_tenant
from platform_defs.errors import SettingsError
from platform_defs.settings import Settings
from platform_defs.store.tables.access import used_assertions
from tests.access.gateways import AUDIENCE, ISSUER, SigningKey

PATH = "/api/openlineage"


@dataclass(frozen=True)
class FromNow:
    """A time in a claim, counted from when the test begins: its module may have been read long before."""

    seconds: float


@pytest.fixture
def current(tmp_path: Path) -> SigningKey:
    return SigningKey("2026-11", tmp_path)


@pytest.fixture
def gateway(current: SigningKey) -> Gateway:
    return Gateway({current.kid: current.private.public_key()}, ISSUER, AUDIENCE)


def refused_claim(gateway: Gateway, token: str) -> str:
    with pytest.raises(AssertionRefused, match="expected") as refused:
        verify_assertion(gateway, token, method="POST", path=PATH, now=datetime.now(UTC))
    return refused.value.claim


def test_a_valid_assertion_names_the_source_and_its_tenant(
    engine: Engine, gateway: Gateway, current: SigningKey
) -> None:
    token = current.sign(tenantId="7", tenantCode="acme", tenantName="Acme", sourceType="COMPUTE_ENGINE")
    principal = Authenticator(engine, gateway).authenticate_assertion(token, method="POST", path=PATH)
    acme = Tenant(7, "acme", "Acme")
    scopes = frozenset({"lineage:write"})
    assert principal == Principal("assertion", "spark-prod", scopes, SourceType.COMPUTE, acme, "Acme")


@pytest.mark.parametrize(
    ("changes", "claim"),
    [
        ({"iss": "https://elsewhere.example"}, "iss"),
        ({"aud": "another"}, "aud"),
        ({"aud": ["one", "two"]}, "aud"),
        ({"method": "PUT"}, "method"),
        ({"path": "/api/openlineage/"}, "path"),
        ({"exp": FromNow(-6), "iat": FromNow(-66)}, "exp"),
        ({"exp": FromNow(100_000)}, "exp"),
        ({"iat": FromNow(3600), "exp": FromNow(3660)}, "iat"),
        ({"exp": "soon"}, "exp"),
        ({"exp": True}, "exp"),
        ({"exp": 1e300}, "exp"),
        ({"nbf": FromNow(3600)}, "nbf"),
        ({"jti": ""}, "jti"),
        ({"jti": "x" * 513}, "jti"),
        ({"tenantId": "seven"}, "tenantId"),
        ({"tenantId": -1}, "tenantId"),
        ({"tenantId": 2**63}, "tenantId"),
        ({"tenantId": True}, "tenantId"),
        ({"tenantCode": 5}, "tenantCode"),
        ({"sourceType": "toaster"}, "sourceType"),
        ({"kid": "1999-01"}, "kid"),
        *[({"without": claim}, claim) for claim in ("iss", "aud", "iat", "exp", "jti", "sub", "method", "path")],
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_a_wrong_claim_is_refused_by_name(
    gateway: Gateway, current: SigningKey, changes: dict[str, Any], claim: str
) -> None:
    now = time.time()
    claims = {name: now + value.seconds if isinstance(value, FromNow) else value for name, value in changes.items()}
    assert refused_claim(gateway, current.sign(**claims)) == claim


def test_a_signature_by_another_key_is_refused(gateway: Gateway, current: SigningKey, tmp_path: Path) -> None:
    stranger = SigningKey("stranger", tmp_path)
    assert refused_claim(gateway, stranger.sign(kid=current.kid)) == "signature"


@pytest.mark.parametrize("token", ["", "x", "a.b.c", "é.é.é"])
def test_what_is_no_token_is_refused(gateway: Gateway, token: str) -> None:
    assert refused_claim(gateway, token) == "token"


def test_other_algorithms_are_refused(gateway: Gateway, current: SigningKey) -> None:
    claims = {"iss": ISSUER}
    unsigned = jwt.encode(claims, None, algorithm="none", headers={"kid": current.kid})
    symmetric = jwt.encode(claims, "x" * 32, algorithm="HS256", headers={"kid": current.kid})
    assert refused_claim(gateway, unsigned) == "alg"
    assert refused_claim(gateway, symmetric) == "alg"


def test_five_seconds_of_skew_are_tolerated(gateway: Gateway, current: SigningKey) -> None:
    now = int(time.time())
    for changes in ({"iat": now + 5, "exp": now + 60}, {"iat": now - 60, "exp": now - 4}):
        token = current.sign(**changes)
        verify_assertion(gateway, token, method="POST", path=PATH, now=datetime.fromtimestamp(now, UTC))


def test_a_scope_claim_replaces_the_default_and_unknown_scopes_grant_nothing(
    gateway: Gateway, current: SigningKey
) -> None:
    token = current.sign(scope="arrivals:write everything")
    assertion = verify_assertion(gateway, token, method="POST", path=PATH, now=datetime.now(UTC))
    assert assertion.scopes == {"arrivals:write"}


def test_an_assertion_is_accepted_once(engine: Engine, gateway: Gateway, current: SigningKey) -> None:
    authenticator, token = Authenticator(engine, gateway), current.sign(jti="長" * 512)
    authenticator.authenticate_assertion(token, method="POST", path=PATH)
    with pytest.raises(AssertionRefused, match="jti: expected one that was not used before"):
        authenticator.authenticate_assertion(token, method="POST", path=PATH)


def test_of_many_that_race_with_one_assertion_exactly_one_wins(
    engine: Engine, gateway: Gateway, current: SigningKey
) -> None:
    token = current.sign()

    def attempt(_: int) -> bool:
        try:
            Authenticator(engine, gateway).authenticate_assertion(token, method="POST", path=PATH)
        except AssertionRefused:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(attempt, range(8))) == 1


def test_an_assertion_refused_for_another_reason_is_not_used_up(
    engine: Engine, gateway: Gateway, current: SigningKey
) -> None:
    authenticator, token = Authenticator(engine, gateway), current.sign()
    with pytest.raises(AssertionRefused, match="path"):
        authenticator.authenticate_assertion(token, method="POST", path="/api/elsewhere")
    assert authenticator.authenticate_assertion(token, method="POST", path=PATH).kind == "assertion"


def test_used_ids_are_forgotten_only_after_their_assertion_cannot_be_accepted_any_more(
    engine: Engine, gateway: Gateway, current: SigningKey
) -> None:
    now = datetime.now(UTC)
    Authenticator(engine, gateway).authenticate_assertion(current.sign(), method="POST", path=PATH)
    assert delete_expired_ids(engine, now + timedelta(seconds=65)) == 0
    assert delete_expired_ids(engine, now + timedelta(seconds=150)) == 1
    with engine.connect() as connection:
        assert connection.execute(select(func.count()).select_from(used_assertions)).scalar_one() == 0


def test_the_record_decides_what_a_tenant_is_called(engine: Engine, gateway: Gateway, current: SigningKey) -> None:
    authenticator = Authenticator(engine, gateway)
    with pytest.raises(AssertionRefused, match="tenantId: expected a tenant on record"):
        authenticator.authenticate_assertion(current.sign(tenantId=7), method="POST", path=PATH)
    add_tenant(engine, Tenant(7, "acme", "Acme"))
    principal = authenticator.authenticate_assertion(
        current.sign(tenantId=7, tenantName="ACME"), method="POST", path=PATH
    )
    assert principal.tenant == Tenant(7, "acme", "Acme")
    with pytest.raises(AssertionRefused, match="tenantCode: expected the code that is on record"):
        authenticator.authenticate_assertion(current.sign(tenantId=7, tenantCode="other"), method="POST", path=PATH)


def test_the_settings_name_current_and_previous_key_as_pem_or_base64(tmp_path: Path, current: SigningKey) -> None:
    previous = SigningKey("2026-10", tmp_path)
    raw = previous.private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    for encoded in (base64.b64encode(raw) + b"\n", base64.urlsafe_b64encode(raw).rstrip(b"=")):
        previous.path.write_bytes(encoded)
        settings = Settings(
            gateway_keys=f"{current.setting}, {previous.setting}", gateway_issuer=ISSUER, gateway_audience=AUDIENCE
        )
        gateway = load_gateway(settings)
        assert gateway is not None
        for key in (current, previous):
            verify_assertion(gateway, key.sign(), method="POST", path=PATH, now=datetime.now(UTC))


def test_without_keys_there_is_no_gateway() -> None:
    assert load_gateway(Settings(gateway_keys="")) is None


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"gateway_issuer": ""}, "PLATFORM_GATEWAY_ISSUER"),
        ({"gateway_audience": ""}, "PLATFORM_GATEWAY_AUDIENCE"),
        ({"gateway_keys": "2026-11"}, "expected kid=file:PATH"),
        ({"gateway_keys": "2026-11=file:{folder}/absent.pem"}, "absent.pem cannot be read"),
        ({"gateway_keys": "2026-11=file:{folder}/text.pem"}, "holds no Ed25519 public key"),
        ({"gateway_keys": "2026-11=file:{folder}/curve.pem"}, "holds no Ed25519 public key"),
    ],
)
def test_a_mistake_in_the_gateway_settings_is_one_line_that_names_it(
    tmp_path: Path, current: SigningKey, settings: dict[str, str], expected: str
) -> None:
    (tmp_path / "text.pem").write_text("no key at all")
    curve = generate_private_key(SECP256R1()).public_key()
    (tmp_path / "curve.pem").write_bytes(curve.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    values = {"gateway_keys": current.setting, "gateway_issuer": ISSUER, "gateway_audience": AUDIENCE, **settings}
    values["gateway_keys"] = values["gateway_keys"].replace("{folder}", str(tmp_path))
    with pytest.raises(SettingsError, match=expected) as refused:
        load_gateway(Settings(**values))
    assert "\n" not in str(refused.value)
