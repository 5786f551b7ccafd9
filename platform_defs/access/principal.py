"""The principal: an authenticated caller with scopes and perhaps a tenant; and the scopes that exist."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from platform_defs.access.tenants import DEMO_TENANT, Tenant

# scope: what it allows; `platform keys issue --help` and the refusal of an unknown scope show this list
SCOPES = {
    "lineage:write": "post OpenLineage events",
    "arrivals:write": "report table arrivals",
    "arrivals:read": "read executions, batches and values of KPIs",
    "webhooks:write": "manage webhook subscriptions",
    "ingest:write": "ask for harvested records to be fetched again",
    "chain:read": "read chain definitions",
    "chain:write": "create, change, enable and disable chains",
    "run:read": "read chain runs",
    "run:write": "start chain runs",
    "run:control": "stop runs, retry and complete nodes",
}
ALL_SCOPES = frozenset(SCOPES)


class SourceType(StrEnum):
    """The kind of a lineage source: it decides by which rules an event's tenant is found."""

    GRAVITINO = "gravitino"
    COMPUTE = "compute"


@dataclass(frozen=True)
class Principal:
    """An authenticated caller; `tenant` is the tenant of its credential, None if the credential names none.

    tenant_name: the name that the credential itself says the tenant has, which may differ from the record.
    """

    kind: Literal["key", "assertion", "open"]
    name: str
    scopes: frozenset[str]
    source_type: SourceType | None = None
    tenant: Tenant | None = None
    tenant_name: str | None = None

    def may(self, scope: str) -> bool:
        return scope in self.scopes


OPEN_PRINCIPAL = Principal("open", "open", ALL_SCOPES, tenant=DEMO_TENANT)


def unknown_scopes(scopes: Iterable[str]) -> list[str]:
    return sorted(set(scopes) - ALL_SCOPES)


def parse_source_type(text: str) -> SourceType | None:
    """The source type that a claim names, also by the seed's `COMPUTE_ENGINE`; None if there is no such type."""
    names = {"gravitino": SourceType.GRAVITINO, "compute": SourceType.COMPUTE, "compute_engine": SourceType.COMPUTE}
    return names.get(text.strip().lower())
