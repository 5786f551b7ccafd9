"""Builds events as real clients send them, reduced to the parts that a test needs."""

from typing import Any

METALAKE, CATALOG = "lake", "hive"
RUN_ID = "0195e3a0-7b1c-7d00-8000-000000000001"
TIME = "2025-03-14T08:58:29.169Z"


def run_event(**changes: Any) -> dict[str, Any]:
    event: dict[str, Any] = {
        "eventTime": TIME,
        "eventType": "COMPLETE",
        "producer": "https://example.org/spark",
        "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
        "run": {"runId": RUN_ID},
        "job": {"namespace": "prod", "name": "daily"},
        "inputs": [],
        "outputs": [],
    }
    return event | changes


def dataset(namespace: str, name: str, **facets: Any) -> dict[str, Any]:
    return {"namespace": namespace, "name": name, "facets": facets}


def schema(*fields: tuple[str, str | None] | str) -> dict[str, Any]:
    named = [(field, "int") if isinstance(field, str) else field for field in fields]
    return {"fields": [{"name": name, "type": kind} for name, kind in named]}


def gravitino(operation: str, *datasets: dict[str, Any], tenant: int = 7, **changes: Any) -> dict[str, Any]:
    return run_event(
        producer="https://gravitino.apache.org/listener",
        job={"namespace": f"gravitino://tenant/{tenant}", "name": f"gravitino.{operation}"},
        outputs=list(datasets),
        **changes,
    )


def at_catalog(name: str, tenant: int = 7, **facets: Any) -> dict[str, Any]:
    """A schema `s`, a table `s.t` or a column `s.t.c` of the catalog."""
    return dataset(f"gravitino://tenant/{tenant}/{METALAKE}/{CATALOG}", name, **facets)


def at_metalake(name: str, tenant: int = 7, **facets: Any) -> dict[str, Any]:
    return dataset(f"gravitino://tenant/{tenant}/{METALAKE}", name, **facets)


def pairs(name: str, /, **values: str | None) -> dict[str, Any]:
    """A metric, word root, modifier, unit, value domain or tag."""
    fields = [{"name": key, "type": "string", "description": value} for key, value in values.items()]
    return at_catalog(name, schema={"fields": fields})


def facet(tenant: Any = 7, **content: Any) -> dict[str, Any]:
    return {"tenantId": tenant, "tenantCode": "acme", "tenantName": "Acme", **content}
