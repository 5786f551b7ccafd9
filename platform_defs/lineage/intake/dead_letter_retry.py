"""Another try for a refused event: as the source that sent it, by the rules as they are now."""

import json

from prometheus_client import CollectorRegistry
from sqlalchemy import Engine

from platform_defs.access.principal import Principal, SourceType
from platform_defs.access.tenants import Tenant, find_tenant
from platform_defs.graph.embedded import EmbeddedGraph
from platform_defs.graph.port import Graph
from platform_defs.lineage.errors import EventRefused, TenantUnknown
from platform_defs.lineage.intake import dead_letters
from platform_defs.lineage.intake.dead_letters import DeadLetter
from platform_defs.lineage.intake.intake import Intake
from platform_defs.lineage.intake.known_tenants import StoredTenants
from platform_defs.lineage.sink.commit import Committer, EmbeddedCommitter, ParallelCommitter, is_unavailable
from platform_defs.lineage.sink.metrics import Measures


def retry_letter(engine: Engine, graph: Graph, letter: DeadLetter) -> str | None:
    """None if it was accepted now, else the reason why not; an unavailable store is an error, not a reason."""
    committer = _committer(engine, graph)
    try:
        committer.commit([Intake(StoredTenants(engine)).take(_source(engine, letter), json.loads(letter.payload)).item])
        committer.flush()
    except (EventRefused, ValueError) as error:
        reason = str(error)
    except Exception as error:
        if is_unavailable(error):
            raise
        reason = f"{type(error).__name__}: {error}"
    else:
        dead_letters.close(engine, letter.id)
        return None
    finally:
        committer.close()
    dead_letters.refuse_again(engine, letter.id, reason)
    return reason


def _committer(engine: Engine, graph: Graph) -> Committer:
    measures = Measures(CollectorRegistry())
    if isinstance(graph, EmbeddedGraph):
        return EmbeddedCommitter(engine, measures)
    return ParallelCommitter(engine, graph, measures)


def _source(engine: Engine, letter: DeadLetter) -> Principal:
    return Principal(
        kind="key",
        name=letter.source or "dead letter",
        scopes=frozenset(),
        source_type=None if letter.source_type is None else SourceType(letter.source_type),
        tenant=None if letter.tenant_id is None else _tenant(engine, letter.tenant_id),
    )


def _tenant(engine: Engine, tenant_id: int) -> Tenant:
    """The only tenant that the source may write to. An assertion may have named one that no event has recorded yet."""
    tenant = find_tenant(engine, tenant_id)
    if tenant is None:
        raise TenantUnknown(
            "tenantId", f"the source's tenant {tenant_id} is not on record; expected it to be added first"
        )
    return tenant
