"""Which tenant an event belongs to: the five rules of the seed, and hostile or careless events."""

from typing import Any

import pytest

from platform_defs.access.principal import ALL_SCOPES, OPEN_PRINCIPAL, Principal, SourceType
from platform_defs.access.tenants import DEMO_TENANT, Tenant
from platform_defs.lineage.errors import (
    EventRefused,
    TenantContradicted,
    TenantForbidden,
    TenantMissing,
    TenantUnknown,
)
from platform_defs.lineage.events import parse_event
from platform_defs.lineage.intake.tenant_rules import ResolvedTenant, resolve_tenant
from tests.lineage.wire import at_catalog, dataset, facet, gravitino, run_event

ACME, OTHER = Tenant(7, "acme", "Acme"), Tenant(8, "other", "Other")


class OnRecord:
    def __init__(self, *tenants: Tenant) -> None:
        self._tenants = tenants

    def by_id(self, tenant_id: int) -> Tenant | None:
        return next((tenant for tenant in self._tenants if tenant.id == tenant_id), None)

    def by_code(self, code: str) -> Tenant | None:
        return next((tenant for tenant in self._tenants if tenant.code == code), None)


def key(source_type: SourceType | None = None, tenant: Tenant | None = None) -> Principal:
    return Principal("key", "test", ALL_SCOPES, source_type, tenant)


GRAVITINO, COMPUTE = key(SourceType.GRAVITINO), key(SourceType.COMPUTE, ACME)


def created(**content: Any) -> dict[str, Any]:
    return gravitino("create_table", at_catalog("s.t", gravitino=facet(**content)))


def resolved(principal: Principal, raw: dict[str, Any], *known: Tenant) -> ResolvedTenant:
    return resolve_tenant(principal, parse_event(raw), OnRecord(*known))


def refused(principal: Principal, raw: dict[str, Any], *known: Tenant) -> EventRefused:
    with pytest.raises(EventRefused) as info:
        resolved(principal, raw, *known)
    return info.value


# the five rules of seed 3.3


def test_rule_1_a_gravitino_event_without_a_tenant_is_refused_even_if_the_credential_has_one() -> None:
    raw = gravitino("create_table", dataset("gravitino://lake/hive", "s.t"))
    raw["job"]["namespace"] = "gravitino://lake"
    for principal in (GRAVITINO, key(SourceType.GRAVITINO, ACME)):
        error = refused(principal, raw, ACME)
        assert isinstance(error, TenantMissing)
        assert (error.field, error.code, error.status) == ("tenantId", 400, "bad_request")
        assert "expected Gravitino's tenant in a gravitino facet" in str(error)


def test_rule_2_a_gravitino_event_of_another_tenant_than_the_credential_is_forbidden() -> None:
    error = refused(key(SourceType.GRAVITINO, OTHER), created(), ACME, OTHER)
    assert isinstance(error, TenantForbidden)
    assert (error.field, error.code, error.status) == ("tenantId", 403, "forbidden")
    assert "the event says tenant 7, the credential belongs to another tenant" in str(error)
    assert resolved(key(SourceType.GRAVITINO, ACME), created(), ACME).tenant == ACME


def test_rule_3_a_compute_event_without_a_facet_belongs_to_the_authenticated_tenant() -> None:
    assert resolved(COMPUTE, run_event(), ACME) == ResolvedTenant(ACME, False, SourceType.COMPUTE)


def test_rule_4_a_compute_event_with_a_facet_of_another_tenant_is_forbidden() -> None:
    raw = run_event(inputs=[dataset("n", "t", gravitino=facet(8))])
    error = refused(COMPUTE, raw, ACME, OTHER)
    assert isinstance(error, TenantForbidden)
    assert "the facet says tenant 8, the credential belongs to another tenant" in str(error)
    same = run_event(inputs=[dataset("n", "t", gravitino=facet("7"))])
    assert resolved(COMPUTE, same, ACME).tenant == ACME


def test_rule_5_an_event_without_any_signal_is_refused() -> None:
    error = refused(key(SourceType.COMPUTE), run_event(), ACME)
    assert isinstance(error, TenantMissing)
    assert "neither the credential nor a facet names a tenant" in str(error)


def test_the_five_rules_have_five_messages() -> None:
    bare = gravitino("create_table", dataset("gravitino://lake/hive", "s.t"))
    bare["job"]["namespace"] = "gravitino://lake"
    claimed = run_event(inputs=[dataset("n", "t", gravitino=facet(8))])
    messages = {
        str(refused(GRAVITINO, bare, ACME)),
        str(refused(key(SourceType.GRAVITINO, OTHER), created(), ACME)),
        str(refused(key(SourceType.COMPUTE), claimed, ACME)),
        str(refused(COMPUTE, claimed, ACME)),
        str(refused(key(SourceType.COMPUTE), run_event(), ACME)),
    }
    assert len(messages) == 5


# which rules apply


@pytest.mark.parametrize(
    "raw",
    [
        run_event(producer="https://github.com/apache/Gravitino"),
        run_event(job={"namespace": "n", "name": "gravitino.create_table"}),
        run_event(inputs=[dataset("n", "t", gravitino={})]),
        run_event(outputs=[dataset("n", "t", gravitino=None)]),
        {"eventTime": "2024-05-01", "dataset": dataset("n", "t", gravitino={})},
    ],
)
def test_a_credential_without_source_type_leaves_it_to_the_event(raw: dict[str, Any]) -> None:
    assert isinstance(refused(key(tenant=ACME), raw, ACME), TenantMissing)
    assert resolved(key(tenant=ACME), run_event(), ACME).source_type is SourceType.COMPUTE


def test_a_compute_key_decides_even_if_the_event_looks_like_gravitinos() -> None:
    assert resolved(COMPUTE, created(), ACME) == ResolvedTenant(ACME, False, SourceType.COMPUTE, "Acme")


def test_a_compute_credential_without_tenant_cannot_take_one_from_a_facet() -> None:
    assert isinstance(refused(key(SourceType.COMPUTE), created(), ACME), TenantForbidden)


def test_an_open_door_means_the_demo_tenant() -> None:
    assert resolved(OPEN_PRINCIPAL, run_event(), DEMO_TENANT).tenant == DEMO_TENANT
    raw = gravitino("create_table", dataset("gravitino://lake/hive", "s.t"))
    raw["job"]["namespace"] = "gravitino://lake"
    assert resolved(OPEN_PRINCIPAL, raw, DEMO_TENANT) == ResolvedTenant(DEMO_TENANT, False, SourceType.GRAVITINO)
    assert isinstance(refused(OPEN_PRINCIPAL, created(), DEMO_TENANT, ACME), TenantForbidden)


# the tenant's names


def test_a_tenant_is_recorded_when_a_facet_first_says_id_code_and_name() -> None:
    assert resolved(GRAVITINO, created()) == ResolvedTenant(ACME, True, SourceType.GRAVITINO, "Acme")
    assert resolved(GRAVITINO, created(tenant="7")) == ResolvedTenant(ACME, True, SourceType.GRAVITINO, "Acme")
    assert resolved(GRAVITINO, created(), ACME) == ResolvedTenant(ACME, False, SourceType.GRAVITINO, "Acme")


def test_a_tenant_of_an_assertion_that_is_not_on_record_is_recorded_too() -> None:
    assert resolved(COMPUTE, run_event()) == ResolvedTenant(ACME, True, SourceType.COMPUTE)
    error = refused(COMPUTE, run_event(), Tenant(9, "acme", "Nine"))
    assert (type(error), error.field) == (TenantContradicted, "tenantCode")


@pytest.mark.parametrize(("missing", "field"), [("tenantCode", "tenantCode"), ("tenantName", "tenantName")])
def test_an_unknown_tenant_without_code_or_name_is_refused(missing: str, field: str) -> None:
    error = refused(GRAVITINO, created(**{missing: None}))
    assert isinstance(error, TenantUnknown)
    assert error.field == field
    assert resolved(GRAVITINO, created(**{missing: None}), ACME).tenant == ACME


def test_a_code_that_belongs_to_another_tenant_is_refused() -> None:
    error = refused(GRAVITINO, created(), Tenant(9, "acme", "Nine"))
    assert (type(error), error.field, error.code) == (TenantContradicted, "tenantCode", 400)


def test_a_known_tenant_under_another_code_is_refused_and_its_name_on_record_stays() -> None:
    error = refused(GRAVITINO, created(tenantCode="evil"), ACME)
    assert (type(error), error.field) == (TenantContradicted, "tenantCode")
    assert resolved(GRAVITINO, created(tenantName="Acme Inc."), ACME).tenant == ACME


@pytest.mark.parametrize("value", ["seven", "7.0", -7, 0, 7.5, True, [7], 2**63, "9" * 4000, "７"])
def test_a_tenant_id_that_is_no_number_is_refused(value: object) -> None:
    raw = created(tenant=value)
    raw["job"]["namespace"] = "gravitino://lake"
    raw["outputs"][0]["namespace"] = "gravitino://lake/hive"
    error = refused(GRAVITINO, raw, ACME)
    assert (error.field, error.code) == ("tenantId", 400)


@pytest.mark.parametrize(("field", "value"), [("tenantCode", "c" * 65), ("tenantName", "n" * 129), ("tenantCode", 5)])
def test_names_that_the_columns_cannot_hold_are_refused(field: str, value: object) -> None:
    error = refused(GRAVITINO, created(**{field: value}))
    assert (error.field, error.code) == (field, 400)


# the namespaces


def test_the_namespaces_name_the_tenant_where_no_facet_does_if_it_is_on_record() -> None:
    raw = gravitino("drop_table", at_catalog("s.t"))
    assert resolved(GRAVITINO, raw, ACME).tenant == ACME
    error = refused(GRAVITINO, raw)
    assert (type(error), error.field) == (TenantUnknown, "namespace")


@pytest.mark.parametrize("digits", ["0", "9" * 19, "9" * 23, "0" * 24 + "7", "9" * 5000], ids=lambda d: str(len(d)))
def test_a_tenant_in_a_namespace_that_no_id_can_be_is_refused_by_the_namespace(digits: str) -> None:
    for principal in (GRAVITINO, COMPUTE, OPEN_PRINCIPAL):
        error = refused(principal, gravitino("drop_table", dataset(f"gravitino://tenant/{digits}/lake/hive", "s.t")))
        assert (type(error), error.field) == (TenantContradicted, "namespace")


def test_facet_and_namespaces_must_agree() -> None:
    raw = gravitino("create_table", at_catalog("s.t", tenant=8, gravitino=facet(7)), tenant=8)
    for principal in (GRAVITINO, COMPUTE, key(SourceType.GRAVITINO, ACME)):
        error = refused(principal, raw, ACME, OTHER)
        assert isinstance(error, TenantContradicted)
        assert "the facet says tenant 7, the namespaces say tenant 8" in str(error)


def test_facets_and_namespaces_must_agree_among_themselves() -> None:
    facets = gravitino("create_table", at_catalog("s.t", gravitino=facet(7)), at_catalog("s.u", gravitino=facet(8)))
    assert refused(GRAVITINO, facets, ACME, OTHER).field == "tenantId"
    namespaces = gravitino("drop_table", at_catalog("s.t"), at_catalog("s.u", tenant=8))
    assert refused(GRAVITINO, namespaces, ACME, OTHER).field == "namespace"


def test_a_compute_event_cannot_name_another_tenants_tables() -> None:
    error = refused(COMPUTE, run_event(inputs=[at_catalog("s.t", tenant=8)]), ACME, OTHER)
    assert (type(error), error.field) == (TenantForbidden, "namespace")


def test_a_metalake_may_be_called_tenant() -> None:
    raw = run_event(inputs=[dataset("gravitino://tenant/sales", "s.t")])
    assert resolved(COMPUTE, raw, ACME).tenant == ACME
