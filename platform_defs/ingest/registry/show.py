"""The Registry for people: sources with their endpoints, and how each operation compiles at a moment."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Engine

from platform_defs.ingest.codes import Operation
from platform_defs.ingest.errors import UnknownEndpoint
from platform_defs.ingest.spec.compiler import CompiledEndpoint, compile_all, read_rows, searchable_endpoints
from platform_defs.ingest.spec.snapshot import camel_case, spec_as_json, spec_fingerprint
from platform_defs.store.tables.registry import reg_prov_endpoint_def


@dataclass(frozen=True)
class SourceDescription:
    """A source with its compiled endpoints."""

    code: str
    name: str
    is_active: bool
    endpoints: tuple[CompiledEndpoint, ...]

    def as_json(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "name": self.name,
            "active": self.is_active,
            "endpoints": {
                each.endpoint_name: {str(operation): _operation_json(each, operation) for operation in Operation}
                for each in self.endpoints
            },
        }

    def as_text(self) -> str:
        lines = [f"{self.code}: {self.name}{'' if self.is_active else ' (inactive)'}"]
        for endpoint in self.endpoints:
            for operation in Operation:
                lines += _operation_lines(endpoint, operation)
        return "\n".join(lines)


def describe_source(engine: Engine, code: str, now: datetime) -> SourceDescription:
    rows = read_rows(engine, now, code)
    source = rows.sources.get(code)
    if source is None:
        raise UnknownEndpoint(f"no source has the code {code!r}; `platform registry list` shows all")
    return SourceDescription(code, source["provenance_name"], bool(source["is_active"]), tuple(compile_all(rows, now)))


def list_sources(engine: Engine, now: datetime) -> list[dict[str, Any]]:
    """Code, name, state, and the endpoints that are harvested; the number of queries does not grow with sources."""
    rows = read_rows(engine, now)
    searchable = searchable_endpoints(rows)
    others = {(row["provenance_code"], row["endpoint_name"]) for row in rows.tables[reg_prov_endpoint_def.name]}
    return [
        {
            "code": code,
            "name": source["provenance_name"],
            "state": "active" if source["is_active"] else "inactive",
            "endpoints": [name for owner, name in searchable if owner == code],
            "details": sorted(name for owner, name in others.difference(searchable) if owner == code),
        }
        for code, source in sorted(rows.sources.items())
    ]


def _operation_json(endpoint: CompiledEndpoint, operation: Operation) -> dict[str, Any] | None:
    compiled = endpoint.specs.get(operation)
    if compiled is not None:
        return {
            "specFingerprint": spec_fingerprint(compiled.spec),
            "spec": spec_as_json(compiled.spec),
            "origins": dict(compiled.origins),
            "warnings": list(compiled.warnings),
        }
    problems = endpoint.problems.get(operation)
    return None if problems is None else {"problems": list(problems)}


def _operation_lines(endpoint: CompiledEndpoint, operation: Operation) -> list[str]:
    title = f"{endpoint.endpoint_name} {operation}"
    compiled = endpoint.specs.get(operation)
    if compiled is None:
        problems = endpoint.problems.get(operation)
        if problems is None:
            return [f"{title}: not offered, because nothing can be asked for by id"]
        return [f"{title}: does not compile", *(f"  {problem}" for problem in problems)]
    spec = compiled.spec
    asked = spec.detail if operation is Operation.UPDATE and spec.detail is not None else spec.search
    address = "" if asked is None else f"{asked.http.method} {asked.http.base_url}{asked.http.path_template}"
    lines = [f"{title}: {address}"]
    lines += [f"  warning: {warning}" for warning in compiled.warnings]
    shown = spec_as_json(spec)
    if operation is Operation.HARVEST:
        lines += [f"  {path} = {_value_at(shown, path)}  ({origin})" for path, origin in compiled.origins.items()]
    return lines


def _value_at(document: Any, path: str) -> str:
    """The value of a path of the spec in its JSON, as one line."""
    value: Any = document
    for part in path.split("."):
        if isinstance(value, list):
            value = next((each for each in value if each.get("stdKey") == part), None)
        elif isinstance(value, dict):
            value = value.get(part, value.get(camel_case(part)))
    if isinstance(value, dict) and "stdKey" in value:
        value = value["expr"] if value["expr"] is not None else value["default"]
    return str(value)
