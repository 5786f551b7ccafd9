"""OpenLineage events of the runs and nodes of chains, read from the tables and sent to the platform's own sink.

The events are made from the tables afterwards, so no run waits for the sink and none loses an event while the sink is
away. They are made of stored facts alone: an event that is made twice is the same event, which the sink stores once.
"""

import logging
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Engine, Row, Select, func, or_, select

from platform_defs.access.principal import Principal, SourceType
from platform_defs.access.tenants import Tenant, find_tenant, list_tenants
from platform_defs.canonical import sha256_hex
from platform_defs.chains.states import ENDED_RUNS, RunStatus
from platform_defs.graph.port import Graph
from platform_defs.lineage.errors import EventRefused
from platform_defs.lineage.intake.intake import Intake
from platform_defs.lineage.intake.known_tenants import KnownTenants
from platform_defs.lineage.sink.opening import open_committer
from platform_defs.lineage.sink.pending import PreparedEvent
from platform_defs.store.chunks import chunks
from platform_defs.store.tables.chains import job_audit, job_run, job_run_node

NAMESPACE = "chains"
PRODUCER = "platform-defs"
SCHEMA = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
PARENT_SCHEMA = "https://openlineage.io/spec/facets/1-1-0/ParentRunFacet.json#/$defs/ParentRunFacet"
ERROR_SCHEMA = "https://openlineage.io/spec/facets/1-0-1/ErrorMessageRunFacet.json#/$defs/ErrorMessageRunFacet"
JOB_TYPE_SCHEMA = "https://openlineage.io/spec/facets/2-0-3/JobTypeJobFacet.json#/$defs/JobTypeJobFacet"
# Rows that are committed late have an earlier time than others that were read already.
OVERLAP = timedelta(seconds=30)
# What is told about when nothing was ever told before.
FIRST_LOOK = timedelta(hours=1)
ROWS_PER_LOOK = 2000
EVENTS_PER_COMMIT = 200
LONGEST_NAME = 255
_NODES = uuid.UUID("0f6d1f0e-6c0a-4f0f-9a1c-6f1c5c0d3b52")
_ENDS = {"SUCCESS": "COMPLETE", "FAILED": "FAIL", "STOPPED": "ABORT"}
_OPERATIONS = ("node.retry", "node.complete")

Event = dict[str, Any]
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Position:
    """How far the tables have been read: rows changed up to `at`, and the audit up to `audit_id`."""

    at: datetime
    audit_id: int

    def as_json(self) -> dict[str, Any]:
        return {"at": self.at.isoformat(), "auditId": self.audit_id}

    def not_after(self, now: datetime) -> "Position":
        """Rows that were written while a clock was ahead must not hide what is written until that time has come."""
        return Position(min(self.at, now), self.audit_id)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Position":
        return cls(datetime.fromisoformat(value["at"]), int(value["auditId"]))


def first_position(connection: Connection, now: datetime) -> Position:
    return Position(now - FIRST_LOOK, connection.execute(select(func.max(job_audit.c.id))).scalar_one() or 0)


def choose_tenant(engine: Engine, tenant_id: int) -> Tenant | None:
    """The tenant that the events belong to: the one that was configured, or else the only one on record."""
    if tenant_id:
        return find_tenant(engine, tenant_id)
    known = list_tenants(engine)
    return known[0] if len(known) == 1 else None


def new_events(connection: Connection, before: Position) -> tuple[list[Event], Position]:
    """The events of everything that changed since, oldest first, and the position after them."""
    since = before.at - OVERLAP
    changed = _changed_runs(connection, since)
    late, operations = _late_operations(connection, before.audit_id, since), _operations(connection, before.audit_id)
    runs = {run.run_id: run for run in changed}
    missing = {row.object_id for row in (*late, *operations)} - runs.keys()
    runs |= {run.run_id: run for run in _runs_by_id(connection, missing)}
    nodes = _changed_nodes(connection, [run.run_id for run in changed], since)
    parents = _parents(connection, runs.values())
    events = [event for run in changed for event in _run_events(run, parents)]
    events += [event for node in nodes for event in _node_events(runs[node.run_id], node)]
    done = [row for row in (*late, *operations) if row.object_id in runs]
    events += [event for row in done for event in _before(row, runs, parents)]
    # If the look was cut off, the next one begins with the last node that was read; its runs were read whole.
    times = [node.updated_at for node in nodes]
    if len(nodes) < ROWS_PER_LOOK:
        times += [run.updated_at for run in changed]
    position = Position(
        max([before.at, *times]) if len(nodes) < ROWS_PER_LOOK else max(before.at, times[-1] + OVERLAP),
        operations[-1].id if operations else before.audit_id,
    )
    return sorted(events, key=lambda event: str(event["eventTime"])), position


def send_events(engine: Engine, graph: Graph, tenant: Tenant, events: Sequence[Event]) -> None:
    """Commits the events to raw table and graph, as the endpoint of the sink does. Raises if a store is away.

    An event that the sink refuses is logged and left out: it would be refused again, and must keep back no other.
    """
    principal = Principal("key", PRODUCER, frozenset(), SourceType.COMPUTE, tenant)
    intake = Intake(KnownTenants(engine))

    def prepare(event: Event) -> Iterator[PreparedEvent]:
        try:
            yield intake.prepare(principal, event).prepared
        except EventRefused as error:
            job, run_id = event["job"]["name"], event["run"]["runId"]
            _log.error("an event of %r, run %s, is not sent, because the sink refuses it: %s", job, run_id, error)

    committer = open_committer(engine, graph)
    try:
        for some in chunks(events, EVENTS_PER_COMMIT):
            committer.commit([prepared for event in some for prepared in prepare(event)])
        committer.flush()
    finally:
        committer.close()


def event_key(event: Event) -> tuple[str, str, str]:
    """Tells events apart that were sent already, so that the overlap of two looks is not sent again."""
    return event["run"]["runId"], event["eventType"], event["eventTime"]


# -- reading --------------------------------------------------------------------------------------------------------


def _changed_runs(connection: Connection, since: datetime) -> Sequence[Row[Any]]:
    columns = _run_columns()
    is_open = job_run.c.status.in_([RunStatus.RUNNING, RunStatus.STOPPING])
    query = select(*columns).where(or_(is_open, job_run.c.updated_at >= since)).order_by(job_run.c.updated_at)
    return connection.execute(query).all()


def _runs_by_id(connection: Connection, run_ids: Iterable[str]) -> Iterator[Row[Any]]:
    for some in chunks(sorted(run_ids), 500):
        yield from connection.execute(select(*_run_columns()).where(job_run.c.run_id.in_(some)))


def _run_columns() -> tuple[Any, ...]:
    run = job_run.c
    return (
        *(run.run_id, run.job_name, run.status, run.error, run.started_at, run.ended_at, run.updated_at),
        *(run.parent_run_id, run.parent_node_id),
    )


def _changed_nodes(connection: Connection, run_ids: Sequence[str], since: datetime) -> list[Row[Any]]:
    """Nodes that have begun; the oldest change first, and at most so many."""
    node = job_run_node.c
    columns: tuple[Any, ...] = (
        *(node.run_id, node.node_id, node.status, node.last_error),
        *(node.started_at, node.ended_at, node.updated_at),
    )
    found: list[Row[Any]] = []
    for some in chunks(run_ids, 500):
        query = (
            select(*columns)
            .where(node.run_id.in_(some), node.updated_at >= since, node.started_at.is_not(None))
            .order_by(node.updated_at)
            .limit(ROWS_PER_LOOK)
        )
        found += connection.execute(query).all()
    return sorted(found, key=lambda row: row.updated_at)[:ROWS_PER_LOOK]


def _operations(connection: Connection, audit_id: int) -> Sequence[Row[Any]]:
    """What people did to nodes: what was there before may never have been seen."""
    audit = job_audit.c
    query = _select_operations().where(audit.id > audit_id)
    return connection.execute(query.order_by(audit.id).limit(ROWS_PER_LOOK)).all()


def _late_operations(connection: Connection, audit_id: int, since: datetime) -> Sequence[Row[Any]]:
    """Operations that may have been committed after others with greater ids had been read."""
    audit = job_audit.c
    query = _select_operations().where(audit.id <= audit_id, audit.created_at >= since)
    return connection.execute(query.order_by(audit.id.desc()).limit(ROWS_PER_LOOK)).all()


def _select_operations() -> Select[Any]:
    audit = job_audit.c
    columns: tuple[Any, ...] = (audit.id, audit.object_id, audit.node_id, audit.before_json)
    return select(*columns).where(audit.action.in_(_OPERATIONS))


def _parents(connection: Connection, runs: Iterable[Row[Any]]) -> dict[str, str]:
    """The names of the chains above sub-runs, by run id."""
    wanted = {run.parent_run_id for run in runs if run.parent_run_id}
    return {run.run_id: run.job_name for run in _runs_by_id(connection, wanted)}


# -- events ---------------------------------------------------------------------------------------------------------


def _run_events(run: Row[Any], parents: Mapping[str, str]) -> Iterator[Event]:
    if run.started_at is not None:
        yield _run_event(run, "START", run.started_at, parents)
    if run.status in ENDED_RUNS and run.started_at is not None and run.ended_at is not None:
        yield _run_event(run, _ENDS[run.status], run.ended_at, parents, error=run.error)


def _node_events(run: Row[Any], node: Row[Any]) -> Iterator[Event]:
    yield _node_event(run, node.node_id, "START", node.started_at)
    if node.status in _ENDS and node.ended_at is not None:
        yield _node_event(run, node.node_id, _ENDS[node.status], node.ended_at, error=node.last_error)


def _before(row: Row[Any], runs: Mapping[str, Row[Any]], parents: Mapping[str, str]) -> Iterator[Event]:
    """How a node and its run stood before a retry or complete, which has replaced that in their rows."""
    run, before = runs[row.object_id], row.before_json or {}
    if before.get("status") in _ENDS and before.get("endedAt"):
        at = datetime.fromisoformat(before["endedAt"])
        yield _node_event(run, row.node_id, _ENDS[before["status"]], at, error=before.get("lastError"))
    run_before = before.get("run") or {}
    if run_before.get("status") in _ENDS and run_before.get("endedAt") and run.started_at is not None:
        at = datetime.fromisoformat(run_before["endedAt"])
        yield _run_event(run, _ENDS[run_before["status"]], at, parents, error=run_before.get("error"))


def _run_event(
    run: Row[Any], kind: str, at: datetime, parents: Mapping[str, str], *, error: str | None = None
) -> Event:
    facets: dict[str, Any] = {}
    if run.parent_run_id in parents:
        above = parents[run.parent_run_id]
        name = _node_name(above, run.parent_node_id)
        facets["parent"] = _parent(node_run_id(run.parent_run_id, run.parent_node_id), name)
    return _event(kind, at, _uuid(run.run_id), _cut(run.job_name), "CHAIN", facets, error)


def _node_event(run: Row[Any], node_id: str, kind: str, at: datetime, *, error: str | None = None) -> Event:
    facets = {"parent": _parent(_uuid(run.run_id), _cut(run.job_name))}
    name = _node_name(run.job_name, node_id)
    return _event(kind, at, node_run_id(run.run_id, node_id), name, "NODE", facets, error)


def _event(
    kind: str, at: datetime, run_id: str, name: str, job_type: str, facets: dict[str, Any], error: str | None
) -> Event:
    if kind == "FAIL" and error:
        facets["errorMessage"] = _facet(ERROR_SCHEMA, message=error, programmingLanguage="Python")
    job_facet = _facet(JOB_TYPE_SCHEMA, processingType="BATCH", integration="PLATFORM", jobType=job_type)
    return {
        "eventType": kind,
        "eventTime": at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
        "producer": PRODUCER,
        "schemaURL": SCHEMA,
        "run": {"runId": run_id, "facets": facets},
        "job": {"namespace": NAMESPACE, "name": name, "facets": {"jobType": job_facet}},
        "inputs": [],
        "outputs": [],
    }


def _parent(run_id: str, name: str) -> dict[str, Any]:
    return _facet(PARENT_SCHEMA, run={"runId": run_id}, job={"namespace": NAMESPACE, "name": name})


def _facet(schema: str, **fields: Any) -> dict[str, Any]:
    return {"_producer": PRODUCER, "_schemaURL": schema, **fields}


def node_run_id(run_id: str, node_id: str) -> str:
    """OpenLineage's id of a node of a run: the same for all of its attempts."""
    return str(uuid.uuid5(_NODES, f"{run_id}\0{node_id}"))


def _node_name(job_name: str, node_id: str) -> str:
    return _cut(f"{job_name}.{node_id}")


def _cut(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 9]}~{sha256_hex(name)[:8]}"


def _uuid(run_id: str) -> str:
    try:
        return str(uuid.UUID(run_id))
    except ValueError:
        return str(uuid.uuid5(_NODES, run_id))
