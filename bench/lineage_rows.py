"""A million rows in `lineage_events`, as years of events would leave them."""

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

from bench.lineage_places import Place
from platform_defs.access.tenants import Tenant
from platform_defs.store.engine import open_engine
from platform_defs.store.tables.lineage import lineage_events
from platform_defs.store.upsert import upsert

BULK_CHUNK = 5000


def fill(place: Place, rows: int) -> None:
    """Inserts rows of about 500 bytes each, as many as years of events would leave."""
    engine = open_engine(place.url)
    start = datetime(2020, 1, 1, tzinfo=UTC)
    try:
        for first in range(0, rows, BULK_CHUNK):
            chunk = [_bulk_row(place.tenant, number, start) for number in range(first, min(rows, first + BULK_CHUNK))]
            with engine.begin() as connection:
                upsert(connection, lineage_events, chunk, key=("tenant_id", "fingerprint"), update="nothing")
    finally:
        engine.dispose()


def _bulk_row(tenant: Tenant, number: int, start: datetime) -> dict[str, Any]:
    time = start + timedelta(seconds=number)
    run = str(uuid.UUID(int=number))
    return {
        "tenant_id": tenant.id,
        "tenant_code": tenant.code,
        "tenant_name": tenant.name,
        "event_time": time,
        "event_type": "COMPLETE",
        "run_uuid": run,
        "job_name": f"job{number % 1000}",
        "job_namespace": "bench",
        "producer": "bench",
        "_event_type": "RUN_EVENT",
        "event": {
            "eventTime": time.isoformat(),
            "eventType": "COMPLETE",
            "run": {"runId": run},
            "job": {"namespace": "bench", "name": f"job{number % 1000}"},
            "inputs": [{"namespace": "bench", "name": f"t{number % 500}", "facets": {"x": "y" * 100}}],
        },
        "fingerprint": f"{uuid.uuid5(uuid.NAMESPACE_OID, str(number)).hex}{number:032x}",
        "graph_applied_at": time,
    }
