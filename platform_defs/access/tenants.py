"""Tenants on record: an id, a code that no other tenant has, and a name, which follows the newest lineage event."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Engine, or_, select
from sqlalchemy.exc import IntegrityError

from platform_defs.access.errors import TenantError
from platform_defs.store.engine import read, transact
from platform_defs.store.tables.access import tenants
from platform_defs.store.upsert import upsert

MAX_ID = 2**63 - 1
MAX_CODE = 64
MAX_NAME = 128


@dataclass(frozen=True)
class Tenant:
    """named_at: the version of the newest event that said the name; empty if none did."""

    id: int
    code: str
    name: str
    named_at: str = field(default="", compare=False)


DEMO_TENANT = Tenant(1, "demo", "Demo")


def add_tenant(engine: Engine, tenant: Tenant, *, any_name: bool = False) -> bool:
    """Puts a tenant on record; True if it was new. Adding it again changes nothing, a contradiction is refused.

    Another name is a contradiction unless an event has said the name on record. any_name: it is none.
    """
    check_tenant(tenant)
    try:
        return transact(engine, lambda connection: _add(connection, tenant, any_name))
    except IntegrityError:
        # another process added it after our look: the second call compares with that row
        return transact(engine, lambda connection: _add(connection, tenant, any_name))


def find_contradicting(engine: Engine, tenant: Tenant) -> Tenant | None:
    """The tenant on record because of which `add_tenant` would refuse this one."""
    known = read(engine, lambda connection: _with_its_id_or_code(connection, tenant))
    return next((one for one in known if _contradiction(tenant, one) is not None), None)


def name_tenants(connection: Connection, said: Iterable[Tenant]) -> Mapping[int, Tenant]:
    """Gives tenants the names that events of these versions say, unless a newer event has said another one.

    Returns the tenants as they are on record then.
    """
    newest = sorted(said, key=lambda tenant: tenant.id)
    if not newest:
        return {}
    rows = [
        {"tenant_id": one.id, "tenant_code": one.code, "tenant_name": one.name, "name_version": one.named_at}
        for one in newest
    ]
    known = tenants.c.name_version
    upsert(
        connection,
        tenants,
        rows,
        key=("tenant_id",),
        update=["tenant_name", "name_version"],
        when=lambda incoming: known.is_(None) | (known < incoming.name_version),
    )
    return _find_all(connection, [one.id for one in newest])


def find_tenants(engine: Engine, ids: Collection[int]) -> Mapping[int, Tenant]:
    return read(engine, lambda connection: _find_all(connection, ids))


def find_tenant(engine: Engine, tenant_id: int) -> Tenant | None:
    query = select(tenants).where(tenants.c.tenant_id == tenant_id)
    # only two attempts: a client waits, as for a key
    row = read(engine, lambda connection: connection.execute(query).one_or_none(), attempts=2)
    return None if row is None else tenant_of_row(row)


def list_tenants(engine: Engine) -> list[Tenant]:
    query = select(tenants).order_by(tenants.c.tenant_id)
    rows = read(engine, lambda connection: connection.execute(query).all())
    return [tenant_of_row(row) for row in rows]


def tenant_of_row(row: Any) -> Tenant:
    return Tenant(row.tenant_id, row.tenant_code, row.tenant_name, row.name_version or "")


def check_tenant(tenant: Tenant) -> None:
    """Refuses a tenant that the columns cannot hold, and an empty code or name."""
    if not 0 < tenant.id <= MAX_ID:
        raise TenantError("tenantId", f"expected a positive 64-bit number, got {tenant.id}")
    for name, value, limit in (("tenantCode", tenant.code, MAX_CODE), ("tenantName", tenant.name, MAX_NAME)):
        if not value.strip() or len(value) > limit:
            raise TenantError(name, f"expected 1 to {limit} characters, got {len(value.strip())}")


def _find_all(connection: Connection, ids: Collection[int]) -> Mapping[int, Tenant]:
    query = select(tenants).where(tenants.c.tenant_id.in_(sorted(ids)))
    return {row.tenant_id: tenant_of_row(row) for row in connection.execute(query)}


def _add(connection: Connection, tenant: Tenant, any_name: bool) -> bool:
    same = _with_its_id_or_code(connection, tenant)
    for known in same:
        if (refused := _contradiction(tenant, known, any_name=any_name)) is not None:
            raise refused
    if same:
        return False
    connection.execute(tenants.insert().values(tenant_id=tenant.id, tenant_code=tenant.code, tenant_name=tenant.name))
    return True


def _with_its_id_or_code(connection: Connection, tenant: Tenant) -> list[Tenant]:
    same = or_(tenants.c.tenant_id == tenant.id, tenants.c.tenant_code == tenant.code)
    query = select(tenants).where(same).order_by(tenants.c.tenant_id)
    return [tenant_of_row(row) for row in connection.execute(query)]


def _contradiction(tenant: Tenant, known: Tenant, *, any_name: bool = False) -> TenantError | None:
    """Why a tenant cannot be on record beside one with its id or its code; None if it is that one."""
    if known.id != tenant.id:
        return TenantError("tenantCode", f"{tenant.code!r} belongs to tenant {known.id}")
    if known.code != tenant.code:
        return TenantError("tenantCode", f"tenant {known.id} is on record as {known.code!r}, not {tenant.code!r}")
    if known.name != tenant.name and not known.named_at and not any_name:
        return TenantError("tenantName", f"tenant {known.id} is on record as {known.name!r}, not {tenant.name!r}")
    return None
