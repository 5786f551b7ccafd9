"""The tenants on record, with a short cache: most events that a process receives belong to few tenants."""

import time

from sqlalchemy import ColumnElement, Engine, select

from platform_defs.access.tenants import Tenant, add_tenant, tenant_of_row
from platform_defs.store.engine import read
from platform_defs.store.tables.access import tenants

CACHE_S = 30.0
MAX_CACHED = 10_000


class KnownTenants:
    """Looks tenants up in the database. Found tenants are cached; that a tenant is absent is never cached."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._by_id: dict[int, tuple[Tenant, float]] = {}

    def by_id(self, tenant_id: int) -> Tenant | None:
        known = self._by_id.get(tenant_id)
        if known is not None and known[1] > time.monotonic():
            return known[0]
        return self._remember(self._find(tenants.c.tenant_id == tenant_id))

    def by_code(self, code: str) -> Tenant | None:
        return self._remember(self._find(tenants.c.tenant_code == code))

    def record(self, tenant: Tenant) -> None:
        """Records the tenant. Raises TenantError if another process has recorded a contradicting tenant first.

        Another name is no contradiction: the newest event decides which name the tenant has.
        """
        add_tenant(self._engine, tenant, any_name=True)
        self._remember(tenant)

    def _find(self, condition: ColumnElement[bool]) -> Tenant | None:
        query = select(tenants).where(condition)
        row = read(self._engine, lambda connection: connection.execute(query).one_or_none(), attempts=2)
        return None if row is None else tenant_of_row(row)

    def _remember(self, tenant: Tenant | None) -> Tenant | None:
        if tenant is not None:
            if len(self._by_id) >= MAX_CACHED:
                self._by_id = {}
            self._by_id[tenant.id] = (tenant, time.monotonic() + CACHE_S)
        return tenant
