"""API keys: shown once, kept as a hash, refused without saying why."""

import time

import pytest
from sqlalchemy import Engine, select

from platform_defs.access.authenticator import KEY_CACHE_OUTAGE_S, KEY_CACHE_S, Authenticator
from platform_defs.access.errors import KeyRefused, KeyRequestError
from platform_defs.access.keys import issue_key, list_keys, revoke_key, verify_key
from platform_defs.access.principal import ALL_SCOPES, Principal, SourceType
from platform_defs.access.tenants import Tenant, add_tenant
from platform_defs.store.tables.access import api_keys
from tests.lost_answers import losing_answer


def test_a_key_stands_for_its_name_scopes_source_type_and_tenant(engine: Engine) -> None:
    acme = Tenant(7, "acme", "Acme")
    add_tenant(engine, acme)
    key = issue_key(engine, "spark", [" lineage:write", "run:read"], source_type=SourceType.COMPUTE, tenant_id=acme.id)
    scopes = frozenset({"lineage:write", "run:read"})
    assert verify_key(engine, key) == Principal("key", "spark", scopes, SourceType.COMPUTE, acme)


def test_the_database_never_holds_the_key(engine: Engine) -> None:
    key = issue_key(engine, "spark", ALL_SCOPES)
    secret = key.rsplit("_", 1)[1]
    with engine.connect() as connection:
        stored = str(connection.execute(select(api_keys)).all())
    assert secret not in stored


@pytest.mark.parametrize("wrong", ["", "nonsense", "pk_", "pk_0123456789abcdef_" + "0" * 48, "pk_ü_" + "0" * 48])
def test_what_is_not_a_key_is_refused(engine: Engine, wrong: str) -> None:
    with pytest.raises(KeyRefused, match="expected a valid API key"):
        verify_key(engine, wrong)


def test_the_public_id_alone_opens_nothing(engine: Engine) -> None:
    key = issue_key(engine, "spark", ["lineage:write"])
    forged = key[:-1] + ("0" if key[-1] != "0" else "1")
    with pytest.raises(KeyRefused):
        verify_key(engine, forged)


def test_unknown_scopes_are_refused_with_the_list_of_known_ones(engine: Engine) -> None:
    with pytest.raises(KeyRequestError, match=r"unknown lineage:delete; known are lineage:write, .*run:control"):
        issue_key(engine, "spark", ["lineage:write", "lineage:delete"])
    with pytest.raises(KeyRequestError, match="at least one"):
        issue_key(engine, "spark", [""])
    with pytest.raises(KeyRequestError, match="tenant: 99 is not on record"):
        issue_key(engine, "spark", ["lineage:write"], tenant_id=99)
    assert list_keys(engine) == []


def test_a_revoked_key_is_refused_and_its_namesake_by_id_stays(engine: Engine) -> None:
    first, second = (issue_key(engine, "spark", ["lineage:write"]) for _ in range(2))
    first_id = first.split("_")[1]
    assert revoke_key(engine, first_id) == [first_id]
    assert revoke_key(engine, first_id) == []
    with pytest.raises(KeyRefused):
        verify_key(engine, first)
    assert verify_key(engine, second).name == "spark"
    assert revoke_key(engine, "spark") == [second.split("_")[1]]
    assert all(key.revoked_at is not None for key in list_keys(engine))
    with pytest.raises(KeyRequestError, match="no key has the id or name 'nobody'"):
        revoke_key(engine, "nobody")


def test_a_remembered_key_needs_no_query_and_is_forgotten_after_seconds(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = issue_key(engine, "spark", ["lineage:write"])
    authenticator = Authenticator(engine, None)
    assert authenticator.cached_principal(key) is None
    principal = authenticator.authenticate_key(key)
    revoke_key(engine, "spark")
    assert authenticator.cached_principal(key) == principal
    forged = key[:-1] + ("0" if key[-1] != "0" else "1")
    with pytest.raises(KeyRefused):
        authenticator.cached_principal(forged)
    later = time.monotonic() + KEY_CACHE_S + 1
    monkeypatch.setattr("platform_defs.access.authenticator.time.monotonic", lambda: later)
    assert authenticator.cached_principal(key) is None
    assert authenticator.cached_principal(key, KEY_CACHE_OUTAGE_S) == principal
    with pytest.raises(KeyRefused):
        authenticator.authenticate_key(key)
    assert authenticator.cached_principal(key, KEY_CACHE_OUTAGE_S) is None


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_a_key_whose_insert_was_not_answered_is_issued_all_the_same(engine: Engine) -> None:
    with losing_answer(engine):
        key = issue_key(engine, "etl", ["arrivals:write"])
    assert verify_key(engine, key).name == "etl"
    assert len(list_keys(engine)) == 1
