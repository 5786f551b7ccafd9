"""Loads chains and jobs from a YAML or JSON file: all of it or nothing, with each problem at its line.

jobs:
  - {name: hello, type: print, config: {message: hi}}
chains:
  - name: nightly
    description: what it is for
    dag: {nodes: [{id: a, jobId: hello}, {id: b, type: print, dependsOn: [a], cfg: {message: done}}]}

A chain or job with a known name is changed; `enabled` is true unless the file says otherwise. `jobId` may be the name
of a job of the file.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml
from sqlalchemy import Connection, Engine

from platform_defs.chains.definitions import save_chain
from platform_defs.chains.errors import InvalidChain
from platform_defs.chains.job_definitions import read_config, save_job
from platform_defs.chains.nodes.port import NodeTypes
from platform_defs.chains.stored_definitions import MAX_NAME
from platform_defs.chains.validation import read_dag
from platform_defs.store.engine import transact
from platform_defs.yaml_lines import Fields, NotYaml, Problem, YamlFileError, line_of, read_document


class _PlainLoader(yaml.SafeLoader):
    """Reads dates as text: JSON has none."""


_PlainLoader.add_constructor("tag:yaml.org,2002:timestamp", lambda loader, node: node.value)


@dataclass(frozen=True)
class Saved:
    """One chain or job of the file; change says whether it was new, changed or the same."""

    change: str
    kind: str
    name: str


@dataclass(frozen=True)
class LoadSummary:
    """What became of each chain and job, in the order of the file."""

    saved: list[Saved] = field(default_factory=list)


def load_file(engine: Engine, types: NodeTypes, content: bytes, file_name: str, *, actor: str) -> LoadSummary:
    """Saves what the file says; raises YamlFileError with every problem, and then nothing is saved."""
    problems: list[Problem] = []
    jobs, chains = _read(content, types, problems)
    if problems:
        raise YamlFileError(file_name, problems)

    def save(connection: Connection) -> LoadSummary:
        summary, job_ids = LoadSummary(), {}
        for values in jobs:
            job, saved = save_job(connection, values, actor=actor)
            job_ids[job.name] = job.job_id
            summary.saved.append(Saved(saved, "job", job.name))
        for values in chains:
            named = {**values, "dag_json": _with_job_ids(values["dag_json"], job_ids)}
            chain, saved = save_chain(connection, named, actor=actor)
            summary.saved.append(Saved(saved, "chain", chain.name))
        return summary

    return transact(engine, save)


def _read(
    content: bytes, types: NodeTypes, problems: list[Problem]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    try:
        document = read_document(content)
    except NotYaml as error:
        problems.append(error.problem)
        return [], []
    if document is None:
        problems.append(Problem(1, "expected chains or jobs, found nothing"))
        return [], []
    top = Fields.of(document, "the file", problems, (), ("chains", "jobs"))
    jobs = [_read_job(node, types, problems) for node in top.items("jobs")]
    chains = [_read_chain(node, types, problems) for node in top.items("chains")]
    for noun, entries in (("job", jobs), ("chain", chains)):
        names = [entry["name"] for entry in entries]
        for name in sorted({name for name in names if names.count(name) > 1 and name}):
            problems.append(Problem(top.line, f"{noun} {name} is there twice"))
    if not (problems or jobs or chains):
        problems.append(Problem(top.line, "expected chains or jobs, found neither"))
    return jobs, chains


def _read_job(node: yaml.Node, types: NodeTypes, problems: list[Problem]) -> dict[str, Any]:
    fields = Fields.of(node, "job", problems, ("name", "type"), ("description", "enabled", "config"))
    values, type_name = _read_common(fields), fields.text("type")
    if type_name is not None:
        values["type"] = type_name.value
        try:
            values["config_json"] = read_config(types, type_name.value, _plain(fields, "config") or {})
        except InvalidChain as error:
            problems += [Problem(fields.line, f"job {values['name']}: {problem}") for problem in error.problems]
    return values


def _read_chain(node: yaml.Node, types: NodeTypes, problems: list[Problem]) -> dict[str, Any]:
    fields = Fields.of(node, "chain", problems, ("name", "dag"), ("description", "enabled"))
    values = _read_common(fields)
    if "dag" in fields.nodes:
        try:
            values["dag_json"] = read_dag(_plain(fields, "dag"), types)
        except InvalidChain as error:
            line = line_of(fields.nodes["dag"])
            problems += [Problem(line, f"chain {values['name']}: {problem}") for problem in error.problems]
    return values


def _read_common(fields: Fields) -> dict[str, Any]:
    name, description = fields.text("name", longest=MAX_NAME), fields.text("description")
    enabled = _plain(fields, "enabled")
    if enabled is not None and not isinstance(enabled, bool):
        fields.problem(fields.line, "enabled: expected true or false")
    return {
        "name": name.value.strip() if name else "",
        "description": description.value if description else None,
        "enabled": enabled is not False,
    }


def _plain(fields: Fields, name: str) -> Any:
    """The field as plain values; the document has no aliases."""
    if name not in fields.nodes:
        return None
    loader = _PlainLoader("")
    try:
        return loader.construct_object(fields.nodes[name], deep=True)
    except yaml.YAMLError as error:
        fields.problem(line_of(fields.nodes[name]), f"{name}: {str(error).splitlines()[0]}")
        return None


def _with_job_ids(dag_json: Mapping[str, Any], job_ids: Mapping[str, str]) -> dict[str, Any]:
    nodes = [
        {**node, "jobId": job_ids.get(node["jobId"], node["jobId"])} if node.get("jobId") else node
        for node in dag_json["nodes"]
    ]
    return {**dag_json, "nodes": nodes}
