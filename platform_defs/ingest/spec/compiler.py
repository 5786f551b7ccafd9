"""Compiles Registry rows into spec snapshots: merged by precedence, checked as a whole, immutable."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import Engine

from platform_defs.ingest.codes import EndpointRole, Operation
from platform_defs.ingest.errors import SpecError, UnknownEndpoint
from platform_defs.ingest.registry.rows import RegistryRows, Row, read_registry
from platform_defs.ingest.spec.checks import check_spec, degradations
from platform_defs.ingest.spec.merging import Finding, Findings
from platform_defs.ingest.spec.model import CompiledSpec
from platform_defs.ingest.spec.parts import draft_spec
from platform_defs.ingest.spec.shape_checks import readable_rows
from platform_defs.store.engine import read
from platform_defs.store.tables.registry import reg_prov_endpoint_def


@dataclass(frozen=True)
class CompiledEndpoint:
    """An active endpoint with what each of its operations compiled to, or why it did not.

    An operation that the endpoint does not have, UPDATE where nothing can be asked for by id, is in neither.
    """

    provenance_code: str
    endpoint_name: str
    specs: Mapping[Operation, CompiledSpec] = field(default_factory=dict)
    problems: Mapping[Operation, tuple[str, ...]] = field(default_factory=dict)


def compile_spec(
    registry: Engine | RegistryRows,
    provenance_code: str,
    endpoint_name: str,
    operation: Operation,
    *,
    overrides: Mapping[str, Any] | None = None,
    now: datetime,
) -> CompiledSpec:
    """The snapshot of one endpoint and operation as the Registry stands now.

    Raises SpecError with all reasons, or UnknownEndpoint. `overrides` are what this trigger alone sets, by path in the
    spec, such as {"pagination.page_size": 50}.
    """
    rows = read_rows(registry, now, provenance_code)
    endpoint = find_endpoint(rows, provenance_code, endpoint_name, operation)
    compiled, findings = _compile(rows, endpoint, operation, overrides, now)
    if compiled is None:
        raise SpecError([str(finding) for finding in findings])
    return compiled


def compile_all(registry: Engine | RegistryRows, now: datetime) -> list[CompiledEndpoint]:
    """Every active endpoint that lists records, with its operations; one that does not compile stops no other."""
    rows = read_rows(registry, now)
    found = []
    for code, endpoint_name in searchable_endpoints(rows):
        specs: dict[Operation, CompiledSpec] = {}
        problems: dict[Operation, tuple[str, ...]] = {}
        for operation in Operation:
            endpoint = find_endpoint(rows, code, endpoint_name, operation)
            if operation is Operation.UPDATE and endpoint["linked_endpoint_name"] is None:
                continue
            compiled, findings = _compile(rows, endpoint, operation, None, now)
            if compiled is None:
                problems[operation] = tuple(str(finding) for finding in findings)
            else:
                specs[operation] = compiled
        found.append(CompiledEndpoint(code, endpoint_name, specs, problems))
    return found


def findings_of_source(rows: RegistryRows, code: str, now: datetime) -> list[tuple[str, Operation, Finding]]:
    """All that keeps endpoints of one source from being compiled, with the endpoint and operation concerned."""
    found = []
    for source, endpoint_name in searchable_endpoints(rows):
        for operation in Operation if source == code else ():
            endpoint = find_endpoint(rows, code, endpoint_name, operation)
            if operation is not Operation.UPDATE or endpoint["linked_endpoint_name"] is not None:
                findings = _compile(rows, endpoint, operation, None, now)[1]
                found += [(finding.endpoint or endpoint_name, operation, finding) for finding in findings]
    return found


def read_rows(registry: Engine | RegistryRows, now: datetime, code: str | None = None) -> RegistryRows:
    if isinstance(registry, RegistryRows):
        return registry
    codes = None if code is None else [code]
    return read(registry, lambda connection: read_registry(connection, now, codes))


def searchable_endpoints(rows: RegistryRows) -> list[tuple[str, str]]:
    """Source and name of each endpoint that lists records, of sources that are active.

    An endpoint with a role that no dictionary has counts too: it must be reported and not vanish.
    """
    others = (EndpointRole.DETAIL, EndpointRole.METRICS)
    return sorted(
        {
            (row["provenance_code"], row["endpoint_name"])
            for row in rows.tables[reg_prov_endpoint_def.name]
            if row["role"] not in others and _is_active(rows, row["provenance_code"])
        }
    )


def find_endpoint(rows: RegistryRows, code: str, name: str, operation: Operation) -> Row:
    """The endpoint's row for this operation; raises UnknownEndpoint, also if the source is not active."""
    if not _is_active(rows, code):
        raise UnknownEndpoint(f"no active source has the code {code!r}; `platform registry list` shows all")
    found = rows.scoped(reg_prov_endpoint_def, code, name, operation)
    if not found:
        known = ", ".join(sorted({row["endpoint_name"] for row in rows.of(reg_prov_endpoint_def, code)})) or "none"
        raise UnknownEndpoint(f"source {code} has no endpoint {name!r}; it has {known}")
    return found[-1]


def find_update_endpoint(rows: RegistryRows, code: str, name: str) -> Row:
    """The endpoint's row; raises UnknownEndpoint where its records cannot be asked for by their ids."""
    endpoint = find_endpoint(rows, code, name, Operation.UPDATE)
    if endpoint["linked_endpoint_name"] is None:
        raise UnknownEndpoint(f"{code}/{name} has no update: its source cannot be asked for its records by their ids")
    return endpoint


def _is_active(rows: RegistryRows, code: str) -> bool:
    source = rows.sources.get(code)
    return source is not None and source["is_active"] and source["lifecycle_status_code"] == "ACTIVE"


def _compile(
    rows: RegistryRows, endpoint: Row, operation: Operation, overrides: Mapping[str, Any] | None, now: datetime
) -> tuple[CompiledSpec | None, list[Finding]]:
    findings = Findings()
    rows = readable_rows(rows, endpoint, operation, findings)
    endpoint = find_endpoint(rows, endpoint["provenance_code"], endpoint["endpoint_name"], operation)
    draft = draft_spec(rows, endpoint, operation, overrides, findings)
    check_spec(draft, rows, now, findings)
    if findings.all:
        return None, findings.all
    return CompiledSpec(draft.spec, dict(sorted(draft.merged.origins.items())), tuple(degradations(draft))), []
