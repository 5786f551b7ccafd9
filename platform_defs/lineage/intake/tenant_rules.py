"""Decides to which tenant an event belongs, by the type of its source (seed 3.3).

Gravitino  The tenant in the event's `gravitino` facets; if they name none, the tenant in the event's namespaces, which
           must be on record. The credential alone never decides.
compute    The tenant of the credential. An event that also names a tenant must name the same one.

If the credential has no source type, the event decides which of the two rules applies (wire-formats 1). If
authentication is switched off (PLATFORM_AUTH=open), every event belongs to the demo tenant.
"""

from dataclasses import dataclass, replace
from typing import Any, Protocol

from platform_defs.access.errors import TenantError
from platform_defs.access.principal import Principal, SourceType
from platform_defs.access.tenants import MAX_ID, MAX_NAME, Tenant, check_tenant
from platform_defs.lineage.errors import TenantContradicted, TenantForbidden, TenantMissing, TenantUnknown
from platform_defs.lineage.events import Event
from platform_defs.lineage.extract.gravitino.names import looks_like_gravitino, parse_namespace


class TenantDirectory(Protocol):
    """The tenants on record."""

    def by_id(self, tenant_id: int) -> Tenant | None: ...

    def by_code(self, code: str) -> Tenant | None: ...


@dataclass(frozen=True, slots=True)
class ResolvedTenant:
    """record: the tenant is not on record yet and must be recorded together with the event.

    said_name: the name that the event's facets or the gateway give to the tenant.
    """

    tenant: Tenant
    record: bool
    source_type: SourceType
    said_name: str | None = None


@dataclass(frozen=True, slots=True)
class _Claim:
    """The tenant that the `gravitino` facets of an event name."""

    id: int
    code: str | None
    name: str | None


def resolve_tenant(principal: Principal, event: Event, tenants: TenantDirectory) -> ResolvedTenant:
    """The tenant of the event. Raises a TenantRefused error if the rules above allow none."""
    source_type = principal.source_type
    if source_type is None:
        source_type = SourceType.GRAVITINO if looks_like_gravitino(event) else SourceType.COMPUTE
    claim, named = _facet_claim(event), _namespace_tenant(event)
    if claim is not None and named is not None and claim.id != named:
        raise TenantContradicted(
            "tenantId", f"the facet says tenant {claim.id}, the namespaces say tenant {named}; expected the same"
        )
    if source_type is SourceType.COMPUTE or principal.kind == "open":
        tenant = _compute_tenant(principal, claim, named)
    else:
        tenant = _gravitino_tenant(principal, claim, named, tenants)
    resolved = _check_with_record(tenant, claim, tenants, source_type)
    return replace(resolved, said_name=_said_name(principal, claim))


def _said_name(principal: Principal, claim: _Claim | None) -> str | None:
    name = principal.tenant_name if claim is None or claim.name is None else claim.name
    if name is not None and not 0 < len(name.strip()) <= MAX_NAME:
        raise TenantContradicted("tenantName", f"expected 1 to {MAX_NAME} characters, got {len(name.strip())}")
    return None if name is None else name.strip()


def _compute_tenant(principal: Principal, claim: _Claim | None, named: int | None) -> Tenant:
    tenant = principal.tenant
    if tenant is None:
        if claim is None:
            raise TenantMissing("tenantId", "neither the credential nor a facet names a tenant; expected one that does")
        raise TenantForbidden(
            "tenantId",
            f"the facet says tenant {claim.id}, but a compute engine's tenant is its credential's, which has none",
        )
    if claim is not None and claim.id != tenant.id:
        raise TenantForbidden("tenantId", f"the facet says tenant {claim.id}, the credential belongs to another tenant")
    if named is not None and named != tenant.id:
        raise TenantForbidden(
            "namespace", f"the namespaces say tenant {named}, the credential belongs to another tenant"
        )
    return tenant


def _gravitino_tenant(
    principal: Principal, claim: _Claim | None, named: int | None, tenants: TenantDirectory
) -> Tenant:
    tenant_id = named if claim is None else claim.id
    if tenant_id is None:
        raise TenantMissing(
            "tenantId", "expected Gravitino's tenant in a gravitino facet or in the namespaces, got neither"
        )
    if principal.tenant is not None and principal.tenant.id != tenant_id:
        raise TenantForbidden(
            "tenantId", f"the event says tenant {tenant_id}, the credential belongs to another tenant"
        )
    known = principal.tenant or tenants.by_id(tenant_id)
    if known is not None:
        return known
    if claim is None:
        raise TenantUnknown(
            "namespace", f"tenant {tenant_id} is not on record; expected a gravitino facet with its code and name first"
        )
    if claim.code is None or claim.name is None:
        lacking = "tenantCode" if claim.code is None else "tenantName"
        raise TenantUnknown(lacking, f"tenant {tenant_id} is not on record; expected tenantCode and tenantName with it")
    return Tenant(claim.id, claim.code, claim.name)


def _check_with_record(
    tenant: Tenant, claim: _Claim | None, tenants: TenantDirectory, source_type: SourceType
) -> ResolvedTenant:
    if claim is not None and claim.code not in (None, tenant.code):
        raise TenantContradicted("tenantCode", f"tenant {tenant.id} is on record under another code")
    known = tenants.by_id(tenant.id)
    if known is not None:
        if known.code != tenant.code:
            raise TenantContradicted("tenantCode", f"tenant {tenant.id} is on record under another code")
        return ResolvedTenant(known, False, source_type)
    try:
        check_tenant(tenant)
    except TenantError as error:
        raise TenantContradicted(error.field, str(error).removeprefix(f"{error.field}: ")) from None
    if tenants.by_code(tenant.code) is not None:
        raise TenantContradicted("tenantCode", "this code belongs to another tenant")
    return ResolvedTenant(tenant, True, source_type)


def _facet_claim(event: Event) -> _Claim | None:
    """The tenant that all `gravitino` facets together name: id, code and name may stand in different facets."""
    said: dict[str, Any] = {}
    for dataset in event.datasets:
        facet = dataset.facet("gravitino")
        for key, read in (("tenantId", _tenant_id), ("tenantCode", _word), ("tenantName", _word)):
            value = read(key, facet.get(key))
            if value is not None and said.setdefault(key, value) != value:
                raise TenantContradicted(key, "the gravitino facets of the event disagree; expected one tenant")
    if "tenantId" in said:
        return _Claim(said["tenantId"], said.get("tenantCode"), said.get("tenantName"))
    if said:
        raise TenantMissing("tenantId", "expected the tenant's id in the gravitino facet that has its code or name")
    return None


def _namespace_tenant(event: Event) -> int | None:
    found: int | None = None
    for text in (event.job_namespace, *(dataset.namespace for dataset in event.datasets)):
        namespace = parse_namespace(text)
        if namespace is None or namespace.tenant_id is None:
            continue
        if not 0 < namespace.tenant_id <= MAX_ID:
            raise TenantContradicted("namespace", "expected a positive 64-bit number as the tenant's id")
        if found is not None and found != namespace.tenant_id:
            raise TenantContradicted("namespace", f"the namespaces say tenants {found} and {namespace.tenant_id}")
        found = namespace.tenant_id
    return found


def _tenant_id(key: str, value: object) -> int | None:
    if value is None or value == "":
        return None
    if type(value) is str and value.strip().isascii() and value.strip().isdecimal():
        value = int(value) if len(value) < 30 else MAX_ID + 1
    if type(value) is not int or not 0 < value <= MAX_ID:
        raise TenantContradicted(key, "expected a positive 64-bit number, or a text that holds one")
    return value


def _word(key: str, value: object) -> str | None:
    if value is None:
        return None
    if type(value) is not str:
        raise TenantContradicted(key, "expected a text")
    return value.strip() or None
