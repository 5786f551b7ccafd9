"""The runs that read or wrote a table, out of the stored events of the jobs that the graph ties to it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Engine, Row, Select, select, tuple_

from platform_defs.graph.port import GraphStore
from platform_defs.lineage.errors import EventRefused
from platform_defs.lineage.events import parse_event
from platform_defs.lineage.query.names import Asset
from platform_defs.lineage.sink.linked_tables import LinkedTables
from platform_defs.store.engine import read
from platform_defs.store.tables.lineage import lineage_events

# Events are read page by page, the newest first, because one may have megabytes.
EVENTS_A_PAGE = 100
MAX_PAGES = 10
MAX_JOBS = 500

_ENDS = ("COMPLETE", "FAIL", "ABORT")
_events = lineage_events.c


@dataclass(slots=True)
class TableRun:
    """A run as far as its stored events tell. state: the type of its newest event; ended: None if it has not."""

    run_id: str
    job: str
    state: str
    began: datetime
    ended: datetime | None
    wrote: bool = False
    read: bool = False


@dataclass(frozen=True, slots=True)
class TableRuns:
    """The newest runs first. complete: all stored events of the table's jobs were looked at, or `limit` was enough."""

    runs: list[TableRun]
    jobs: int
    complete: bool


def runs_of(engine: Engine, store: GraphStore, table: Asset, *, limit: int) -> TableRuns:
    """The newest runs that read or wrote the table: four queries, and one for each page of events."""
    jobs = _jobs_of(store, table)
    found: dict[str, TableRun] = {}
    before: tuple[datetime, int] | None = None
    linked = LinkedTables(engine)
    for _ in range(MAX_PAGES if jobs else 0):
        page = _read_page(engine, store.tenant, jobs, before)
        for row in page:
            _note(found, row, store.tenant, linked, table)
        touched = [run for run in found.values() if run.read or run.wrote]
        # one more than asked: the oldest may lack the events of its beginning, which are on the next page
        if len(page) < EVENTS_A_PAGE or len(touched) > limit:
            return TableRuns(touched[:limit], len(jobs), complete=True)
        before = page[-1].event_time, page[-1].id
    touched = [run for run in found.values() if run.read or run.wrote]
    return TableRuns(touched[:limit], len(jobs), complete=not jobs)


def _jobs_of(store: GraphStore, table: Asset) -> list[tuple[str, str]]:
    """Namespaces and names of the jobs that read or write the table by their current runs, writers first."""
    writers = store.follow([table.id], ["OUTPUT_TO"], forward=False, limit=MAX_JOBS)
    readers = store.follow([table.id], ["INPUT_OF"], forward=True, limit=MAX_JOBS)
    ids = list(dict.fromkeys([*(edge.from_id for edge in writers), *(edge.to_id for edge in readers)]))[:MAX_JOBS]
    nodes = store.nodes(ids) if ids else {}
    names = [(nodes[id].props.get("jobNamespace"), nodes[id].props.get("jobName")) for id in ids if id in nodes]
    return list(dict.fromkeys((str(namespace), str(name)) for namespace, name in names if namespace and name))


def _read_page(
    engine: Engine, tenant: int, jobs: Sequence[tuple[str, str]], before: tuple[datetime, int] | None
) -> Sequence[Row[Any]]:
    query: Select[Any] = (
        select(_events.id, _events.event_time, _events.event_type, _events.run_uuid, _events.event, _events.version)
        .where(
            _events.tenant_id == tenant,
            tuple_(_events.job_namespace, _events.job_name).in_(jobs),
            _events.run_uuid.is_not(None),
        )
        .order_by(_events.event_time.desc(), _events.id.desc())
        .limit(EVENTS_A_PAGE)
    )
    if before is not None:
        time, id = before
        query = query.where((_events.event_time < time) | ((_events.event_time == time) & (_events.id < id)))
    return read(engine, lambda connection: connection.execute(query).all())


def _note(found: dict[str, TableRun], row: Row[Any], tenant: int, linked: LinkedTables, table: Asset) -> None:
    """Adds what an event says to its run; events come with the newest first."""
    try:
        event = parse_event(row.event)
    except EventRefused:
        return  # an earlier version accepted it
    job = "/".join(part for part in (event.job_namespace, event.job_name) if part)
    run = found.get(row.run_uuid)
    if run is None:
        ended = row.event_time if row.event_type in _ENDS else None
        run = found[row.run_uuid] = TableRun(row.run_uuid, job, row.event_type or "OTHER", row.event_time, ended)
    run.began = min(run.began, row.event_time)
    tables = linked.of(tenant, event, row.version)
    run.wrote |= any(tables.of(dataset).id == table.id for dataset in event.outputs)
    run.read |= any(tables.of(dataset).id == table.id for dataset in event.inputs)
