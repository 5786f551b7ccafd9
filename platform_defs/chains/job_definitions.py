"""Reusable jobs: a type with its cfg, which nodes name by `jobId` and which a run resolves when it starts."""

import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Engine, Row, select

from platform_defs.chains.errors import InvalidChain
from platform_defs.chains.json_values import json_problem, read_json_text
from platform_defs.chains.nodes.port import NodeTypes
from platform_defs.chains.request_keys import RequestKey
from platform_defs.chains.stored_definitions import Page, Saved, StoredDefinitions
from platform_defs.chains.validation import action_problems
from platform_defs.store.chunks import chunks
from platform_defs.store.tables.chains import job_definition

# The table has no unique key over names: the counter's lock keeps two jobs from taking one name in the same moment.
_JOBS = StoredDefinitions("job", job_definition, body=("config_json",), always_reload=True)


@dataclass(frozen=True)
class Job:
    job_id: str
    name: str
    description: str | None
    type: str
    enabled: bool
    version: int
    config_json: Mapping[str, Any]
    created_at: datetime
    updated_at: datetime

    @classmethod
    def from_row(cls, row: Row[Any]) -> "Job":
        return cls(**row._mapping)


def create_job(
    engine: Engine,
    types: NodeTypes,
    *,
    name: str,
    description: str | None,
    type_name: str,
    config_json: Any,
    actor: str,
    enabled: bool = True,
    request_key: RequestKey | None = None,
) -> Job:
    """A new job; with the request key of an earlier call the job that it made."""
    config = read_config(types, type_name, config_json)
    values = {"name": name, "description": description, "type": type_name, "config_json": config, "enabled": enabled}
    return Job.from_row(_JOBS.create(engine, str(uuid.uuid4()), values, actor=actor, request_key=request_key))


def update_job(
    engine: Engine,
    types: NodeTypes,
    job_id: str,
    *,
    name: str,
    description: str | None,
    type_name: str,
    config_json: Any,
    version: int,
    actor: str,
) -> Job:
    """Changes the job if it still has this version. Runs that have begun keep what they resolved at their start."""
    get_job(engine, job_id)
    config = read_config(types, type_name, config_json)
    values = {"name": name, "description": description, "type": type_name, "config_json": config}
    return Job.from_row(_JOBS.update(engine, job_id, values, version=version, actor=actor))


def save_job(connection: Connection, values: Mapping[str, Any], *, actor: str) -> tuple[Job, Saved]:
    """Creates or changes the job of this name. The values are checked columns, with `enabled`."""
    row, saved = _JOBS.save_by_name(connection, str(uuid.uuid4()), values, actor=actor)
    return Job.from_row(row), saved


def set_job_enabled(engine: Engine, job_id: str, enabled: bool, *, actor: str) -> Job:
    return Job.from_row(_JOBS.set_enabled(engine, job_id, enabled, actor=actor))


def get_job(engine: Engine, job_id: str) -> Job:
    return Job.from_row(_JOBS.get(engine, job_id))


def find_job(connection: Connection, job_id: str) -> Job:
    return Job.from_row(_JOBS.find(connection, job_id))


def find_jobs(connection: Connection, job_ids: Collection[str]) -> dict[str, Job]:
    """Those of the jobs that exist, by their ids."""
    found: dict[str, Job] = {}
    for some in chunks(sorted(job_ids), 500):
        query = select(job_definition).where(job_definition.c.job_id.in_(some))
        found |= {row.job_id: Job.from_row(row) for row in connection.execute(query)}
    return found


def page_of_jobs(
    engine: Engine, *, page: int, size: int, keyword: str | None = None, enabled: bool | None = None
) -> Page:
    return _JOBS.page(engine, page=page, size=size, keyword=keyword, enabled=enabled)


def read_config(types: NodeTypes, type_name: str, given: Any) -> dict[str, Any]:
    """The checked configJson, given as an object or as the text of one; raises InvalidChain with every problem."""
    if isinstance(given, str):
        try:
            given = read_json_text(given)
        except ValueError as error:
            raise InvalidChain([f"configJson: {error}"], code="JOB_INVALID") from None
    if not isinstance(given, dict):
        raise InvalidChain(["configJson: expected a JSON object"], code="JOB_INVALID")
    problem = json_problem(given)
    problems = [f"configJson: {problem}"] if problem else list(action_problems(types, "job", type_name, given))
    if problems:
        raise InvalidChain(problems, code="JOB_INVALID")
    return given
