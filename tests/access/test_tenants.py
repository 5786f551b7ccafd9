"""Tenants: put on record once, never contradicted."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Engine

from platform_defs.access.errors import TenantError
from platform_defs.access.tenants import DEMO_TENANT, Tenant, add_tenant, find_tenant, list_tenants


def test_adding_the_same_tenant_again_changes_nothing(engine: Engine) -> None:
    assert add_tenant(engine, Tenant(7, "acme", "Acme 有限公司"))
    assert not add_tenant(engine, Tenant(7, "acme", "Acme 有限公司"))
    assert list_tenants(engine) == [Tenant(7, "acme", "Acme 有限公司")]
    assert find_tenant(engine, 7) == Tenant(7, "acme", "Acme 有限公司")
    assert find_tenant(engine, 8) is None


@pytest.mark.parametrize(
    ("tenant", "field"),
    [
        (Tenant(7, "other", "Acme"), "tenantCode"),
        (Tenant(7, "acme", "Other"), "tenantName"),
        (Tenant(8, "acme", "Acme"), "tenantCode"),
        (Tenant(0, "zero", "Zero"), "tenantId"),
        (Tenant(2**63, "wide", "Wide"), "tenantId"),
        (Tenant(9, "", "Nine"), "tenantCode"),
        (Tenant(9, "x" * 65, "Nine"), "tenantCode"),
        (Tenant(9, "nine", "x" * 129), "tenantName"),
    ],
)
def test_a_contradiction_is_refused_and_names_the_field(engine: Engine, tenant: Tenant, field: str) -> None:
    add_tenant(engine, Tenant(7, "acme", "Acme"))
    with pytest.raises(TenantError, match=field) as refused:
        add_tenant(engine, tenant)
    assert refused.value.field == field
    assert "\n" not in str(refused.value)
    assert list_tenants(engine) == [Tenant(7, "acme", "Acme")]


def test_codes_that_differ_in_case_are_two_tenants(engine: Engine) -> None:
    assert add_tenant(engine, Tenant(1, "acme", "A"))
    assert add_tenant(engine, Tenant(2, "ACME", "A"))


def test_many_threads_adding_one_tenant_leave_one_row_and_no_error(engine: Engine) -> None:
    with ThreadPoolExecutor(6) as pool:
        new = list(pool.map(lambda _: add_tenant(engine, DEMO_TENANT), range(6)))
    assert sum(new) == 1
    assert list_tenants(engine) == [DEMO_TENANT]
