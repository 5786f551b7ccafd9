"""Tests share a database per store; one that asks for an empty one must not meet the rows of another."""

from sqlalchemy import func, select

from platform_defs.access.tenants import Tenant, add_tenant
from platform_defs.store.tables.access import tenants
from tests.conftest import SharedDatabases


def test_rows_that_a_test_left_behind_are_gone_for_whoever_asks_for_an_empty_database(
    migrated: SharedDatabases,
) -> None:
    add_tenant(migrated["sqlite"], Tenant(7, "acme", "Acme"))
    with migrated.empty("sqlite").connect() as connection:
        assert connection.scalar(select(func.count()).select_from(tenants)) == 0
