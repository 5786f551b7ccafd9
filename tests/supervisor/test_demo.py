"""The demo key: kept in the home, valid for everything, issued again when it is lost."""

import stat
from pathlib import Path

from sqlalchemy import Engine

from platform_defs.access.keys import verify_key
from platform_defs.access.principal import ALL_SCOPES, SourceType
from platform_defs.supervisor.demo import ensure_demo_key


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
