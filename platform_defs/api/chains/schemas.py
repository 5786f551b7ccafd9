"""The schemas of a DAG and of the cfg of each node type, in the OpenAPI document."""

from collections.abc import Mapping
from typing import Any

from platform_defs.api.system import ApiContext
from platform_defs.chain_nodes.catalogue import all_node_types
from platform_defs.chains.dag import RetryPolicy
from platform_defs.chains.nodes.port import NodeTypes
from platform_defs.chains.validation import (
    MAX_ATTEMPTS,
    MAX_BACKOFF_MILLIS,
    MAX_JOB_NAME,
    MAX_MULTIPLIER,
    MAX_NODES,
    MAX_TIMEOUT_S,
    NODE_ID,
)

_REF = "#/components/schemas/"


def schemas(context: ApiContext) -> Mapping[str, Any]:
    types = all_node_types(context.engine, context.settings)
    try:
        return dag_schemas(types)
    finally:
        types.close()


def dag_schemas(types: NodeTypes) -> dict[str, Any]:
    """`Dag`, and `NodeCfg.TYPE` for each node type, by their names."""
    found: dict[str, Any] = {"Dag": _dag_schema(types)}
    for name, executor in sorted(types.by_name.items()):
        schema = executor.cfg_model.model_json_schema(ref_template=f"{_REF}{{model}}")
        found |= schema.pop("$defs", {})
        found[f"NodeCfg.{name}"] = schema
    return found


def _dag_schema(types: NodeTypes) -> dict[str, Any]:
    retry = RetryPolicy()
    names = sorted(types.by_name)
    node = {
        "type": "object",
        "required": ["id"],
        "properties": {
            "id": {"type": "string", "pattern": f"^{NODE_ID.pattern}$"},
            "type": {"enum": names},
            "cfg": {
                "description": "By the type; texts may have `${params.x}` and `${nodes.ID.artifact.y}`",
                "anyOf": [{"$ref": f"{_REF}NodeCfg.{name}"} for name in names],
            },
            "jobId": {"type": "string", "description": "A reusable job in place of type and cfg"},
            "dependsOn": {"type": "array", "items": {"type": "string"}},
            "retry": {
                "type": "object",
                "properties": {
                    "maxAttempts": _number("integer", 1, MAX_ATTEMPTS, retry.max_attempts),
                    "backoffMillis": _number("integer", 0, MAX_BACKOFF_MILLIS, retry.backoff_millis),
                    "backoffMultiplier": _number("number", 1, MAX_MULTIPLIER, retry.backoff_multiplier),
                },
            },
            "timeoutSeconds": {"type": "number", "exclusiveMinimum": 0, "maximum": MAX_TIMEOUT_S},
        },
    }
    trigger = {
        "description": "A cron with its zone, or a table whose arrivals start runs with params.opTime",
        "type": "object",
        "properties": {name: {"type": "string"} for name in ("cron", "zone", "table")} | {"params": {"type": "object"}},
    }
    return {
        "type": "object",
        "required": ["nodes"],
        "properties": {
            "job": {"type": "string", "maxLength": MAX_JOB_NAME, "description": "Default: the name of the chain"},
            "nodes": {"type": "array", "minItems": 1, "maxItems": MAX_NODES, "items": node},
            "triggers": {"type": "array", "items": trigger},
        },
    }


def _number(kind: str, smallest: int, largest: int, default: float) -> dict[str, Any]:
    return {"type": kind, "minimum": smallest, "maximum": largest, "default": default}
