"""Retries a dead letter: with the rights of the source that sent the event, under the rules of today."""

import json

from sqlalchemy import Engine

from platform_defs.access.principal import Principal, SourceType
from platform_defs.access.tenants import Tenant, find_tenant
from platform_defs.graph.port import Graph
from platform_defs.lineage.errors import EventRefused, TenantUnknown
from platform_defs.lineage.intake import dead_letters
from platform_defs.lineage.intake.dead_letters import DeadLetter
from platform_defs.lineage.intake.intake import Intake
from platform_defs.lineage.intake.known_tenants import KnownTenants
from platform_defs.lineage.sink.commit import is_store_unavailable
from platform_defs.lineage.sink.opening import open_committer
from platform_defs.lineage.sink.pending import PreparedEvent


def retry_letter(engine: Engine, graph: Graph, letter: DeadLetter) -> str | None:
    """None if the event is accepted now, else the reason of the refusal. Raises if a store is not available."""
    committer = open_committer(engine, graph)
    prepared: PreparedEvent | None = None
    try:
        intake = Intake(KnownTenants(engine))
        prepared = intake.prepare(_source_of(engine, letter), json.loads(letter.payload)).prepared
        committer.commit([prepared])
        committer.flush()
    except (EventRefused, ValueError) as error:
        reason = str(error)
    except Exception as error:
        if is_store_unavailable(error):
            raise
        if prepared is not None:
            # else the recovery would refuse the row too, and make a second letter of it
            committer.withdraw(prepared)
        reason = f"{type(error).__name__}: {error}"
    else:
        dead_letters.close_letter(engine, letter.id)
        return None
    finally:
        committer.close()
    dead_letters.record_refusal(engine, letter.id, reason)
    return reason


def _source_of(engine: Engine, letter: DeadLetter) -> Principal:
    return Principal(
        kind="key",
        name=letter.source or "dead letter",
        scopes=frozenset(),
        source_type=None if letter.source_type is None else SourceType(letter.source_type),
        tenant=None if letter.tenant_id is None else _tenant_on_record(engine, letter.tenant_id),
    )


def _tenant_on_record(engine: Engine, tenant_id: int) -> Tenant:
    """The source's tenant. It may be missing: a gateway assertion can name a tenant that no event has recorded yet."""
    tenant = find_tenant(engine, tenant_id)
    if tenant is None:
        raise TenantUnknown(
            "tenantId", f"the source's tenant {tenant_id} is not on record; expected it to be added first"
        )
    return tenant
