"""The outbox: which records a batch changed, and to which version, for systems that follow them."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from platform_defs.canonical import json_string, sha256_hex
from platform_defs.ingest.fetching.reading import Record
from platform_defs.ingest.spec.model import Spec
from platform_defs.ingest.spec.snapshot import instant_text
from platform_defs.store.tables.ingest import ing_outbox
from platform_defs.store.upsert import Upsert

INSERTED = "RECORD_INSERTED"
UPDATED = "RECORD_UPDATED"
_ADD_CHANGES = Upsert(ing_outbox, key=())


def publish(
    connection: Connection,
    spec: Spec,
    changed: Mapping[str, Record],
    before: Mapping[str, Any],
    run_id: int,
    batch_id: int,
    mapping: str,
    now: datetime,
) -> None:
    """Events for downstream systems: which record changed and to which version; the record itself is in its table."""
    payloads, keys = [], []
    # texts of JSON, put together here: encoding a hundred small objects would take three times as long
    begin = f"[{json_string(spec.provenance_code)},{json_string(spec.endpoint_name)},"
    for provider_id, record in changed.items():
        assert record.updated_at is not None, "records have their time when they are committed"
        name, updated_at = json_string(provider_id), instant_text(record.updated_at)
        payloads.append(f'{{"providerId":{name},"updatedAt":"{updated_at}","exprHash":"{mapping}"}}')
        keys.append(sha256_hex(f'{begin}{name},"{updated_at}","{mapping}"]'))
    _ADD_CHANGES.run_columns(
        connection,
        {
            "provider_id": list(changed),
            "event_type": [UPDATED if provider_id in before else INSERTED for provider_id in changed],
            "payload": payloads,
            "idempotent_key": keys,
        },
        same={
            "provenance_code": spec.provenance_code,
            "endpoint_name": spec.endpoint_name,
            "run_id": run_id,
            "batch_id": batch_id,
            "created_at": now,
        },
        ready=("payload",),
    )
