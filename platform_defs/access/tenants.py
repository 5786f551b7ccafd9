"""Tenants on record: an id, a code that no other tenant has, and a name."""

from dataclasses import dataclass

from sqlalchemy import Connection, Engine, or_, select
from sqlalchemy.exc import IntegrityError

from platform_defs.access.errors import TenantError
from platform_defs.store.engine import read, transact
from platform_defs.store.tables.access import tenants

MAX_ID = 2**63 - 1
MAX_CODE = 64
MAX_NAME = 128


@dataclass(frozen=True)
class Tenant:
    id: int
    code: str
    name: str


DEMO_TENANT = Tenant(1, "demo", "Demo")


def add_tenant(engine: Engine, tenant: Tenant) -> bool:
    """Puts a tenant on record; True if it was new. Adding it again changes nothing, a contradiction is refused."""
    check_tenant(tenant)
    try:
        return transact(engine, lambda connection: _add(connection, tenant))
    except IntegrityError:
        # another process added it after our look: the second call compares with that row
        return transact(engine, lambda connection: _add(connection, tenant))


def find_tenant(engine: Engine, tenant_id: int, *, attempts: int = 2) -> Tenant | None:
    query = select(tenants).where(tenants.c.tenant_id == tenant_id)
    row = read(engine, lambda connection: connection.execute(query).one_or_none(), attempts=attempts)
    return None if row is None else Tenant(row.tenant_id, row.tenant_code, row.tenant_name)


def list_tenants(engine: Engine) -> list[Tenant]:
    query = select(tenants).order_by(tenants.c.tenant_id)
    rows = read(engine, lambda connection: connection.execute(query).all())
    return [Tenant(row.tenant_id, row.tenant_code, row.tenant_name) for row in rows]


def check_tenant(tenant: Tenant) -> None:
    """Refuses a tenant that the columns cannot hold, and an empty code or name."""
    if not 0 < tenant.id <= MAX_ID:
        raise TenantError("tenantId", f"expected a positive 64-bit number, got {tenant.id}")
    for field, value, limit in (("tenantCode", tenant.code, MAX_CODE), ("tenantName", tenant.name, MAX_NAME)):
        if not value.strip() or len(value) > limit:
            raise TenantError(field, f"expected 1 to {limit} characters, got {len(value.strip())}")


def _add(connection: Connection, tenant: Tenant) -> bool:
    same = or_(tenants.c.tenant_id == tenant.id, tenants.c.tenant_code == tenant.code)
    rows = connection.execute(select(tenants).where(same)).all()
    for row in rows:
        _refuse_contradiction(tenant, Tenant(row.tenant_id, row.tenant_code, row.tenant_name))
    if rows:
        return False
    connection.execute(tenants.insert().values(tenant_id=tenant.id, tenant_code=tenant.code, tenant_name=tenant.name))
    return True


def _refuse_contradiction(tenant: Tenant, known: Tenant) -> None:
    if known.id != tenant.id:
        raise TenantError("tenantCode", f"{tenant.code!r} belongs to tenant {known.id}")
    if known.code != tenant.code:
        raise TenantError("tenantCode", f"tenant {known.id} is on record as {known.code!r}, not {tenant.code!r}")
    if known.name != tenant.name:
        raise TenantError("tenantName", f"tenant {known.id} is on record as {known.name!r}, not {tenant.name!r}")
