"""The JSON of answers: chains, jobs, runs, nodes and pages, with the fields that clients of the seed's API know."""

from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime
from typing import Any

from pydantic.alias_generators import to_camel
from sqlalchemy import Row

from platform_defs.chains.definitions import Chain
from platform_defs.chains.job_definitions import Job
from platform_defs.chains.json_values import write_json_text
from platform_defs.chains.runs.operations import NodeState
from platform_defs.chains.stored_definitions import Page

_RUN = ("run_id", "chain_id", "job_name", "status", "dag_json", "created_at", "updated_at")
_NODE = ("node_id", "status", "attempt", "last_error", "artifact_json", "started_at", "ended_at")


def chain_answer(chain: Chain) -> dict[str, Any]:
    return _camel(asdict(chain))


def job_answer(job: Job) -> dict[str, Any]:
    return _camel(asdict(job))


def summary(row: Row[Any]) -> dict[str, Any]:
    """A chain or a job in a page: everything but its DAG or configuration."""
    return _camel(dict(row._mapping))


def run_answer(row: Row[Any]) -> dict[str, Any]:
    return _camel({name: row._mapping[name] for name in _RUN})


def node_answer(row: Row[Any]) -> dict[str, Any]:
    return _camel({name: row._mapping[name] for name in _NODE})


def node_state_answer(state: NodeState) -> dict[str, Any]:
    return {"runId": state.run_id, "nodeId": state.node_id, "status": state.status, "attempt": state.attempt}


def page_answer(page: Page, item: Callable[[Row[Any]], dict[str, Any]] = summary) -> dict[str, Any]:
    return {"items": [item(row) for row in page.rows], "page": page.page, "size": page.size, "total": page.total}


def _camel(fields: dict[str, Any]) -> dict[str, Any]:
    return {to_camel(name): _wire(name, value) for name, value in fields.items()}


def _wire(name: str, value: Any) -> Any:
    """Times as ISO 8601, and JSON as its text, as fields whose names end in Json have it on the wire."""
    if isinstance(value, datetime):
        return value.isoformat()
    return write_json_text(value) if name.endswith("_json") and value is not None else value
