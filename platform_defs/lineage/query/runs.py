"""The runs that read or wrote a table, out of the stored events of the jobs that the graph ties to it."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Engine, Row, Select, case, func, select, tuple_

from platform_defs.graph.port import GraphStore
from platform_defs.lineage.query.names import Asset
from platform_defs.lineage.sink.rows.linked_tables import read_tables
from platform_defs.lineage.sink.rows.stored_rows import portion_by_id, portions_of, reader_of
from platform_defs.store.engine import read
from platform_defs.store.tables.lineage import lineage_events

# Runs are found page by page, in the newest events of the jobs.
EVENTS_A_PAGE = 100
MAX_PAGES = 10
# Of the runs of a page so many pages of events are read, because one event may have megabytes. It must be at least two:
# the first and the last event of each run say when it began, whether it ended, and how.
PAGES_OF_RUNS = 4
MAX_JOBS = 500

_ENDS = ("COMPLETE", "FAIL", "ABORT")
_events = lineage_events.c


@dataclass(slots=True)
class TableRun:
    """A run as far as its stored events tell. state: the type of its newest event; ended: None if it has not.

    unread: how many of its events were not looked at, between its first and its last ones.
    """

    run_id: str
    job: str
    state: str
    began: datetime
    ended: datetime | None
    wrote: bool = False
    read: bool = False
    unread: int = 0

    @property
    def touched(self) -> bool:
        return self.read or self.wrote

    @property
    def may_say_more(self) -> bool:
        """Whether an event that was not looked at may say that the run touched the table, or how else."""
        return self.unread > 0 and not (self.read and self.wrote)


@dataclass(frozen=True, slots=True)
class TableRuns:
    """The newest runs first. complete: nothing that was left unread could add a run to these, or change one of them."""

    runs: list[TableRun]
    jobs: int
    complete: bool


def runs_of(engine: Engine, store: GraphStore, table: Asset, *, limit: int) -> TableRuns:
    """The newest runs that read or wrote the table: four queries, and a few for each page and each portion of events.

    A page finds runs by their newest events; all that is said of a run is read by its id, because its other events may
    be far from the newest, and because only some of them may name the table.
    """
    jobs, all_jobs = _jobs_of(store, table)
    found: list[TableRun] = []
    known: set[str] = set()
    before: tuple[datetime, int] | None = None
    for _ in range(MAX_PAGES if jobs else 0):
        page = _read_page(engine, store.tenant, jobs, before)
        new: dict[str, Row[Any]] = {}
        for row in page:
            if row.run_uuid not in known:
                new.setdefault(row.run_uuid, row)
        known |= new.keys()
        found += _read_runs(engine, store.tenant, list(new.values()), table)
        is_last = len(page) < EVENTS_A_PAGE
        if is_last or sum(run.touched for run in found) >= limit:
            return _newest(found, limit, len(jobs), complete=all_jobs)
        before = page[-1].event_time, page[-1].id
    return _newest(found, limit, len(jobs), complete=all_jobs and not jobs)


def _newest(found: Sequence[TableRun], limit: int, jobs: int, *, complete: bool) -> TableRuns:
    touched: list[TableRun] = []
    for run in found:
        complete &= not run.may_say_more
        if run.touched:
            touched.append(run)
        if len(touched) == limit:
            break
    return TableRuns(touched, jobs, complete)


def _jobs_of(store: GraphStore, table: Asset) -> tuple[list[tuple[str, str]], bool]:
    """Namespaces and names of the jobs that read or write the table by their current runs, writers first; whether these
    are all of them."""
    writers = store.follow([table.id], ["OUTPUT_TO"], forward=False, limit=MAX_JOBS + 1)
    readers = store.follow([table.id], ["INPUT_OF"], forward=True, limit=MAX_JOBS + 1)
    ids = list(dict.fromkeys([*(edge.from_id for edge in writers), *(edge.to_id for edge in readers)]))
    some = ids[:MAX_JOBS]
    nodes = store.nodes(some) if some else {}
    names = [(nodes[id].props.get("jobNamespace"), nodes[id].props.get("jobName")) for id in some if id in nodes]
    jobs = dict.fromkeys((str(namespace), str(name)) for namespace, name in names if namespace and name)
    return list(jobs), len(ids) <= MAX_JOBS


def _read_page(
    engine: Engine, tenant: int, jobs: Sequence[tuple[str, str]], before: tuple[datetime, int] | None
) -> Sequence[Row[Any]]:
    query: Select[Any] = (
        select(_events.id, _events.event_time, _events.run_uuid, _events.job_namespace, _events.job_name)
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


def _read_runs(engine: Engine, tenant: int, newest: Sequence[Row[Any]], table: Asset) -> list[TableRun]:
    """The runs of these events, each the newest of its run, in the same order."""
    chosen: dict[str, list[Row[Any]]] = {row.run_uuid: [] for row in newest}
    for row in _choose_events(engine, tenant, chosen) if newest else ():
        chosen[row.run_uuid].append(row)
    runs = {row.run_uuid: _run(row, chosen[row.run_uuid]) for row in newest if chosen[row.run_uuid]}
    reader, ids = reader_of(engine), sorted(row.id for rows in chosen.values() for row in rows)
    for one in read_tables(engine, (portion_by_id(reader, some) for some in portions_of(reader, ids))):
        if one.said is not None:
            event, tables = one.said
            run = runs[one.row.run_uuid]
            run.wrote |= any(tables.of(dataset).id == table.id for dataset in event.outputs)
            run.read |= any(tables.of(dataset).id == table.id for dataset in event.inputs)
    return list(runs.values())


def _choose_events(engine: Engine, tenant: int, runs: Collection[str]) -> Sequence[Row[Any]]:
    """Events of the runs, without what they say: the first and the last of each, then the second and the last but one,
    as far as the bound allows, so that a run with very many events leaves room for the others."""
    window: dict[str, Any] = {"partition_by": _events.run_uuid}
    from_first = func.row_number().over(**window, order_by=(_events.event_time, _events.id))
    from_last = func.row_number().over(**window, order_by=(_events.event_time.desc(), _events.id.desc()))
    ranked = (
        select(
            *(_events.id, _events.run_uuid, _events.event_time, _events.event_type),
            *(from_first.label("from_first"), from_last.label("from_last")),
        )
        .where(_events.tenant_id == tenant, _events.run_uuid.in_(runs))
        .subquery()
    )
    nearest = case((ranked.c.from_first < ranked.c.from_last, ranked.c.from_first), else_=ranked.c.from_last)
    query: Select[Any] = select(ranked).order_by(nearest, ranked.c.id).limit(PAGES_OF_RUNS * EVENTS_A_PAGE)
    return read(engine, lambda connection: connection.execute(query).all())


def _run(newest: Row[Any], events: Sequence[Row[Any]]) -> TableRun:
    """newest: the event by which the run was found, which names a job of the table; its others may name another."""
    first = min(events, key=lambda row: row.from_first)
    last = min(events, key=lambda row: row.from_last)
    return TableRun(
        run_id=newest.run_uuid,
        job="/".join(part for part in (newest.job_namespace, newest.job_name) if part),
        state=last.event_type or "OTHER",
        began=first.event_time,
        ended=last.event_time if last.event_type in _ENDS else None,
        unread=last.from_first + last.from_last - 1 - len(events),
    )
