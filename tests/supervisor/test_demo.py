"""The demo: its tenant, which somebody else may have, and its key, which is kept in the home and valid for all."""

import stat
from pathlib import Path

import pytest
from sqlalchemy import Engine

from platform_defs.access.keys import verify_key
from platform_defs.access.principal import ALL_SCOPES, SourceType
from platform_defs.access.tenants import DEMO_TENANT, Tenant, add_tenant, name_tenants
from platform_defs.store.engine import transact
from platform_defs.supervisor.demo import ensure_demo_key, why_tenant_is_taken


def test_the_demo_key_has_all_scopes_for_tenant_1_and_only_its_owner_can_read_it(
    engine: Engine, tmp_path: Path
) -> None:
    principal = verify_key(engine, ensure_demo_key(engine, tmp_path))
    assert principal.scopes == ALL_SCOPES
    assert principal.source_type is SourceType.COMPUTE
    assert principal.tenant is not None
    assert (principal.tenant.id, principal.tenant.code) == (1, "demo")
    assert stat.S_IMODE((tmp_path / "demo.key").stat().st_mode) == 0o600


def test_the_same_key_is_kept_from_start_to_start(engine: Engine, tmp_path: Path) -> None:
    assert ensure_demo_key(engine, tmp_path) == ensure_demo_key(engine, tmp_path)


def test_a_key_that_is_lost_or_unknown_is_issued_again(engine: Engine, tmp_path: Path) -> None:
    first = ensure_demo_key(engine, tmp_path)
    (tmp_path / "demo.key").write_text("pk_of_another_database")
    second = ensure_demo_key(engine, tmp_path)
    (tmp_path / "demo.key").unlink()
    third = ensure_demo_key(engine, tmp_path)
    assert len({first, second, third}) == 3
    assert verify_key(engine, third).name == "demo"


@pytest.mark.parametrize(
    ("known", "said"),
    [
        (Tenant(1, "acme", "Acme"), "tenant 1 is on record as 'acme' (Acme)"),
        (Tenant(7, "demo", "Acme"), "tenant 7 is on record as 'demo' (Acme)"),
        (Tenant(1, "demo", "Acme"), "tenant 1 is on record as 'demo' (Acme)"),
        (Tenant(7, "acme", "Acme"), None),
        (DEMO_TENANT, None),
    ],
)
def test_the_demo_goes_without_the_tenant_that_somebody_else_has(
    engine: Engine, known: Tenant, said: str | None
) -> None:
    add_tenant(engine, known)
    needs = "and the demo needs tenant 1 as 'demo' (Demo)"
    assert why_tenant_is_taken(engine) == (None if said is None else f"{said}, {needs}")


def test_the_tenant_of_the_demo_stays_its_own_when_an_event_names_it_otherwise(engine: Engine) -> None:
    add_tenant(engine, DEMO_TENANT)
    said = [Tenant(1, "demo", "Renamed", named_at="2026-11-17T06:00:00Z")]
    assert transact(engine, lambda connection: name_tenants(connection, said))[1].name == "Renamed"
    assert why_tenant_is_taken(engine) is None
    assert not add_tenant(engine, DEMO_TENANT)
