"""The OpenLineage events of the shop's nightly jobs: ingest, staging, marts and a dashboard, with their columns."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

# by which the removal tells the demo's events from those of others
JOB_NAMESPACE = "demo-shop"
PRODUCER = "platform-defs-demo"
_SPEC = "https://openlineage.io/spec"
_SCHEMA = f"{_SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent"
_RUNS = uuid.UUID("5b1d0a52-7a0e-4a5e-9c53-1f2d6f0b8a17")

Event = dict[str, Any]
# column of the output -> the inputs' columns that it derives from, as TABLE.COLUMN
Columns = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Table:
    namespace: str
    name: str
    columns: Mapping[str, str]


# short, because the groups in the Dagster UI are named after tenant and namespace
_SHOP, _WAREHOUSE, _BOARDS = "shop", "warehouse", "dashboards"
# what PLATFORM_ARRIVALS_NAMESPACE says of the shop: the tables that its models wait for are these tables
ARRIVALS_NAMESPACE = f"{_SHOP}/main"
_ORDER = {"order_id": "TEXT", "day": "TEXT", "store_id": "TEXT", "customer": "TEXT", "amount": "REAL"}
_STORE = {"store_id": "TEXT", "city": "TEXT", "region": "TEXT"}
_RETURN = {"return_id": "TEXT", "day": "TEXT", "order_id": "TEXT", "reason": "TEXT", "refund": "REAL"}

DASHBOARD = "sales_overview"
TABLES = {
    "shop.orders": Table(_SHOP, "main.demo_orders", _ORDER),
    "shop.stores": Table(_SHOP, "main.demo_stores", _STORE),
    "shop.returns": Table(_SHOP, "main.demo_returns", _RETURN),
    "raw.orders": Table(_WAREHOUSE, "raw.orders", _ORDER),
    "raw.stores": Table(_WAREHOUSE, "raw.stores", _STORE),
    "raw.returns": Table(_WAREHOUSE, "raw.returns", _RETURN),
    "staging.orders": Table(
        _WAREHOUSE,
        "staging.orders",
        {"order_id": "TEXT", "order_date": "DATE", "region": "TEXT", "city": "TEXT", "amount": "NUMERIC"},
    ),
    "marts.daily_sales": Table(
        _WAREHOUSE,
        "marts.daily_sales",
        {"order_date": "DATE", "region": "TEXT", "revenue": "NUMERIC", "orders": "BIGINT"},
    ),
    "marts.daily_returns": Table(
        _WAREHOUSE,
        "marts.daily_returns",
        {"day": "DATE", "reason": "TEXT", "returns": "BIGINT", "refunds": "NUMERIC"},
    ),
    DASHBOARD: Table(
        _BOARDS,
        "boards.sales_overview",
        {"region": "TEXT", "revenue": "NUMERIC", "refunds": "NUMERIC"},
    ),
}


@dataclass(frozen=True)
class Job:
    name: str
    reads: Sequence[str]
    writes: str
    columns: Columns
    sql: str | None = None
    minutes: int = field(default=3)


def _copied(what: str, columns: Mapping[str, str]) -> Job:
    return Job(
        f"ingest.{what}",
        [f"shop.{what}"],
        f"raw.{what}",
        {column: [f"shop.{what}.{column}"] for column in columns},
    )


JOBS = (
    _copied("orders", _ORDER),
    _copied("stores", _STORE),
    _copied("returns", _RETURN),
    Job(
        "staging.orders",
        ["raw.orders", "raw.stores"],
        "staging.orders",
        {
            "order_id": ["raw.orders.order_id"],
            "order_date": ["raw.orders.day"],
            "region": ["raw.stores.region"],
            "city": ["raw.stores.city"],
            "amount": ["raw.orders.amount"],
        },
        "INSERT INTO staging.orders SELECT o.order_id, CAST(o.day AS DATE) AS order_date, s.region, s.city,"
        " o.amount FROM raw.orders AS o JOIN raw.stores AS s ON s.store_id = o.store_id",
    ),
    Job(
        "marts.daily_sales",
        ["staging.orders"],
        "marts.daily_sales",
        {
            "order_date": ["staging.orders.order_date"],
            "region": ["staging.orders.region"],
            "revenue": ["staging.orders.amount"],
            "orders": ["staging.orders.order_id"],
        },
        "INSERT INTO marts.daily_sales SELECT order_date, region, SUM(amount) AS revenue,"
        " COUNT(order_id) AS orders FROM staging.orders GROUP BY order_date, region",
    ),
    Job(
        "marts.daily_returns",
        ["raw.returns"],
        "marts.daily_returns",
        {
            "day": ["raw.returns.day"],
            "reason": ["raw.returns.reason"],
            "returns": ["raw.returns.return_id"],
            "refunds": ["raw.returns.refund"],
        },
        "INSERT INTO marts.daily_returns SELECT day, reason, COUNT(return_id) AS returns,"
        " SUM(refund) AS refunds FROM raw.returns GROUP BY day, reason",
    ),
    Job(
        "dashboard.sales_overview",
        ["marts.daily_sales", "marts.daily_returns"],
        "sales_overview",
        {
            "region": ["marts.daily_sales.region"],
            "revenue": ["marts.daily_sales.revenue"],
            "refunds": ["marts.daily_returns.refunds"],
        },
    ),
)


def lineage_events(born: datetime) -> list[Event]:
    """Two events for each job, which ran one after the other before the demo was born.

    They depend on `born` alone: sent again, they are the same events, which the sink stores once.
    """
    events = []
    at = born - timedelta(minutes=sum(job.minutes for job in JOBS) + 5)
    for job in JOBS:
        end = at + timedelta(minutes=job.minutes)
        events += [_event(job, "START", at, born), _event(job, "COMPLETE", end, born)]
        at = end
    return events


def _event(job: Job, kind: str, at: datetime, born: datetime) -> Event:
    facets: dict[str, Any] = {"jobType": _facet("2-0-3/JobTypeJobFacet", **_JOB_TYPE)}
    if job.sql is not None:
        facets["sql"] = _facet("1-1-0/SQLJobFacet", query=job.sql)
    return {
        "eventType": kind,
        "eventTime": at.isoformat().replace("+00:00", "Z"),
        "producer": PRODUCER,
        "schemaURL": _SCHEMA,
        "run": {"runId": str(uuid.uuid5(_RUNS, f"{job.name} {born.isoformat()}"))},
        "job": {"namespace": JOB_NAMESPACE, "name": job.name, "facets": facets},
        "inputs": [_dataset(name) for name in job.reads],
        "outputs": [_dataset(job.writes, job.columns)] if kind == "COMPLETE" else [],
    }


_JOB_TYPE = {"processingType": "BATCH", "integration": "DEMO", "jobType": "JOB"}


def _dataset(name: str, columns: Columns | None = None) -> dict[str, Any]:
    table = TABLES[name]
    fields = [{"name": column, "type": type} for column, type in table.columns.items()]
    facets = {"schema": _facet("1-1-1/SchemaDatasetFacet", fields=fields)}
    if columns is not None:
        facets["columnLineage"] = _facet(
            "1-2-0/ColumnLineageDatasetFacet",
            fields={
                column: {"inputFields": [_input_field(path) for path in paths]} for column, paths in columns.items()
            },
        )
    return {"namespace": table.namespace, "name": table.name, "facets": facets}


def _input_field(path: str) -> dict[str, str]:
    name, _, column = path.rpartition(".")
    table = TABLES[name]
    return {"namespace": table.namespace, "name": table.name, "field": column}


def _facet(schema: str, **content: Any) -> dict[str, Any]:
    version, name = schema.split("/")
    return {
        "_producer": PRODUCER,
        "_schemaURL": f"{_SPEC}/facets/{version}/{name}.json#/$defs/{name}",
        **content,
    }
