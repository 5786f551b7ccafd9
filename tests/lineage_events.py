"""Small events for tests of the sink, in the form in which Spark, Flink and Gravitino send them."""

import uuid
from typing import Any

PRODUCER = "https://example.com/producer"


def run_event(
    *,
    run: str | None = None,
    time: str = "2026-03-01T10:00:00Z",
    kind: str = "COMPLETE",
    job: str = "daily",
    reads: tuple[str, ...] = ("raw.orders",),
    writes: tuple[str, ...] = ("mart.orders",),
    sql: str | None = "insert into mart.orders select * from raw.orders",
    namespace: str = "hive://warehouse",
) -> dict[str, Any]:
    facets: dict[str, Any] = {}
    if sql is not None:
        facets["sql"] = {"_producer": PRODUCER, "_schemaURL": PRODUCER, "query": sql, "dialect": "spark"}
    return {
        "eventType": kind,
        "eventTime": time,
        "producer": PRODUCER,
        "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
        "run": {"runId": run or str(uuid.uuid4()), "facets": {}},
        "job": {"namespace": "spark", "name": job, "facets": facets},
        "inputs": [{"namespace": namespace, "name": name, "facets": {}} for name in reads],
        "outputs": [{"namespace": namespace, "name": name, "facets": _schema()} for name in writes],
    }


def create_table(
    tenant: tuple[int, str, str],
    table: str = "sales.orders",
    *,
    operation: str = "create_table",
    time: str = "2026-03-01T10:00:00Z",
    facet: dict[str, Any] | None = None,
    namespace_tenant: int | None = None,
) -> dict[str, Any]:
    id, code, name = tenant
    namespace = f"gravitino://tenant/{namespace_tenant or id}"
    gravitino = {"tenantId": id, "tenantCode": code, "tenantName": name} if facet is None else facet
    facets = {**_schema(), "gravitino": gravitino} if gravitino else _schema()
    return {
        "eventType": "COMPLETE",
        "eventTime": time,
        "producer": "https://gravitino.apache.org",
        "run": {"runId": str(uuid.uuid4())},
        "job": {"namespace": namespace, "name": f"gravitino.{operation}"},
        "inputs": [],
        "outputs": [{"namespace": f"{namespace}/lake/hive", "name": table, "facets": facets}],
    }


def _schema() -> dict[str, Any]:
    return {"schema": {"fields": [{"name": "id", "type": "bigint"}, {"name": "amount", "type": "decimal(10,2)"}]}}
