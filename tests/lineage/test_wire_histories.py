"""Events of a catalog and of jobs about the same tables, in any order, through the sink: one graph, also when rebuilt.

Beside what a merge alone sees there are real payloads: job and dataset events, paths that are linked late, times in the
future, fields inside of fields, facets that are deleted, drops of schemas and catalogs. Events arrive twice, graphs are
rebuilt between deliveries, retention deletes events, and each graph store has its own database.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, delete

from platform_defs.access.principal import SourceType
from platform_defs.graph.model import Node
from platform_defs.graph.port import Graph
from platform_defs.graph.vocabulary import TOMBSTONE
from platform_defs.lineage.merge import bounds
from platform_defs.lineage.merge.codec import FACTS
from platform_defs.lineage.merge.state import LAST_TYPE
from platform_defs.lineage.sink.apply import prune_graph
from platform_defs.store.engine import transact
from platform_defs.store.tables.lineage import lineage_events
from tests.lineage.deliveries import Arrival, Deliveries, true_facts
from tests.lineage.merging import examples
from tests.lineage.reference import Reference
from tests.lineage.test_merge_stores import START, open_graphs
from tests.lineage.wire import CATALOG, at_catalog, at_metalake, facet, gravitino, run_event, schema

__all__ = ["open_graphs"]

ARRIVED = START + timedelta(days=30)
TABLES, COLUMNS, PATHS = ["s.a", "s.b", "s.c", "z.a"], ["x", "y", "z"], ["/wh/p", "/wh/q"]
FILES = "hdfs://h"
_TYPE = re.compile(r'"dataType": "[^"]*", ')
SQL = ["insert into s.b select x, y from s.a", "insert into s.a select y as x from s.b;"]


@dataclass
class Teller:
    """Makes up events of one tenant. paths: tables are also named by paths, some of which are linked to them."""

    random: Random
    tenant: int
    paths: bool = True

    def event(self, minute: int) -> Arrival:
        make, source = (self._of_catalog, SourceType.GRAVITINO) if self._in(4) else (self._of_job, SourceType.COMPUTE)
        raw = make((START + timedelta(minutes=minute)).isoformat())
        if self.paths and self._in(12):
            # so far ahead that it is ordered by its arrival, also by the operator's rebuild
            arrived = START + timedelta(minutes=self.random.randint(0, 9), seconds=30)
            return Arrival(
                raw | {"eventTime": (START + timedelta(days=400_000, minutes=minute)).isoformat()}, arrived, source
            )
        return Arrival(raw, ARRIVED, source)

    def _in(self, number: int) -> bool:
        """True once in so many times."""
        return self.random.randrange(number) == 0

    def _named(self) -> dict[str, Any]:
        if self.paths and self._in(4):
            return {"namespace": FILES, "name": self.random.choice(PATHS)}
        named = at_catalog(self.random.choice(TABLES), self.tenant)
        return {"namespace": named["namespace"], "name": named["name"]}

    def _schema(self) -> dict[str, Any]:
        names = self.random.sample(COLUMNS, self.random.randint(0, 3))
        found = schema(*((name, self.random.choice(["int", "date", None])) for name in names))
        if found["fields"] and self._in(6):
            found["fields"][0] |= schema(self.random.choice(COLUMNS)) | {"description": "d"}
        return found

    def _source(self) -> dict[str, Any]:
        return {**self._named(), "field": self.random.choice([*COLUMNS, "x.y"])}

    def _column_lineage(self) -> dict[str, Any]:
        some = self.random.sample(COLUMNS, self.random.randint(0, 2))
        if self._in(8):
            return {"_deleted": True, "fields": {name: {} for name in some}}
        facet: dict[str, Any] = {"fields": {name: {"inputFields": [self._source()]} for name in some}}
        return facet | ({"dataset": [self._source()]} if self._in(4) else {})

    def _dataset(self, *, output: bool) -> dict[str, Any]:
        dataset, facets = self._named(), dict[str, Any]()
        if self._in(2):
            facets["schema"] = {"_deleted": True} if self._in(12) else self._schema()
        if output and self._in(2):
            facets["columnLineage"] = self._column_lineage()
        if output and self._in(7):
            kind = self.random.choice(["DROP", "RENAME", "TRUNCATE"])
            facets["lifecycleStateChange"] = {"lifecycleStateChange": kind, "previousIdentifier": self._named()}
        if dataset["namespace"] == FILES and self._in(3):
            table = at_catalog(self.random.choice(TABLES), self.tenant)
            link = {"namespace": table["namespace"], "name": table["name"], "type": "TABLE"}
            facets["symlinks"] = {"_deleted": True} if self._in(8) else {"identifiers": [link]}
        return {**dataset, "facets": facets}

    def _of_job(self, time: str) -> dict[str, Any]:
        job = self.random.choice("jkl")
        raw = run_event(
            eventTime=time,
            eventType=self.random.choice(["START", "RUNNING", "COMPLETE", "COMPLETE", "COMPLETE", "FAIL", "ABORT"]),
            run={"runId": self.random.choice([f"{job}1", f"{job}2", f"{job} at {time[:19]}"])},
            job={
                "namespace": "n",
                "name": job,
                "facets": {"sql": {"query": self.random.choice(SQL)}} if self._in(3) else {},
            },
            inputs=[self._dataset(output=False) for _ in range(self.random.randint(0, 2))],
            outputs=[self._dataset(output=True) for _ in range(self.random.randint(0, 2))],
        )
        if self._in(8):
            return {name: raw[name] for name in raw if name not in ("run", "eventType")}
        if self._in(8):
            producer = self.random.choice(["https://one", "https://two"])
            return {"eventTime": time, "producer": producer, "dataset": self._dataset(output=True)}
        return raw | ({"inputs": [], "outputs": []} if self._in(8) else {})

    def _of_catalog(self, time: str) -> dict[str, Any]:
        operation = self.random.choice(
            ["create_table", "load_table", "alter_table", "alter_table", "drop_table", "drop_schema", "drop_catalog"]
        )
        if operation == "drop_catalog":
            return gravitino(operation, at_metalake(CATALOG, self.tenant), tenant=self.tenant, eventTime=time)
        if operation == "drop_schema":
            return gravitino(
                operation, at_catalog(self.random.choice("sz"), self.tenant), tenant=self.tenant, eventTime=time
            )
        facets: dict[str, Any] = {}
        if operation in ("create_table", "load_table"):
            facets["schema"] = self._schema()
        elif operation == "alter_table":
            old, new = self.random.choice(COLUMNS), self.random.choice(COLUMNS)
            change = self.random.choice(
                [
                    {"type": "RENAME_TABLE", "newName": self.random.choice("abc")},
                    {"type": "DELETE_COLUMN", "columnName": old},
                    {"type": "RENAME_COLUMN", "oldColumnName": old, "newColumnName": new},
                    {"type": "UPDATE_COLUMN_TYPE", "columnName": old, "dataType": "date"},
                ]
            )
            names = {"tenantCode": f"code{self.tenant}", "tenantName": "Somebody"}
            facets["gravitino"] = facet(self.tenant, changes=[change], **names)
        table = at_catalog(self.random.choice(TABLES), self.tenant, **facets)
        return gravitino(operation, table, tenant=self.tenant, eventTime=time)


def live_through(random: Random, deliveries: Deliveries) -> None:
    teller = Teller(random, deliveries.tenant.id, paths=random.random() < 0.6)
    events = [teller.event(minute) for minute in range(random.randint(3, 9))]
    arriving = [*events, *random.sample(events, random.randint(0, 2))]
    if random.random() < 0.7:
        random.shuffle(arriving)
    while arriving:
        number = random.randint(1, 3)
        deliveries.deliver(arriving[:number])
        arriving = arriving[number:]
        if random.random() < 0.1:
            deliveries.committer.flush()
            deliveries.rebuild(keep=random.random() < 0.5)
            deliveries.recover()
    wanted = Reference(deliveries.tenant, true_facts(events)).lines()
    assert deliveries.lines() == wanted
    deliveries.committer.flush()
    for keep in (True, False):
        deliveries.rebuild(keep=keep)
        assert deliveries.lines() == wanted


def live_through_retention(random: Random, deliveries: Deliveries) -> None:
    """Events arrive in their order. Of those before, some are deleted, and so is what the graph remembers of drops."""
    teller = Teller(random, deliveries.tenant.id, paths=False)
    events = [teller.event(minute) for minute in range(random.randint(3, 9))]
    row = lineage_events.c
    deleted_so_far, types_forgotten = 0, False
    for number in range(1, len(events) + 1):
        events[number - 1] = of_a_remembered_run(events[number - 1], events[: number - 1], deleted_so_far)
        deliveries.deliver([events[number - 1]])
        if random.random() < 0.4:
            deliveries.committer.flush()
            old = [one.version for one in events[: random.randint(0, number)]]
            deleted_so_far = max(deleted_so_far, len(old))
            deleted = delete(lineage_events).where(row.tenant_id == deliveries.tenant.id, row.version.in_(old))
            transact(deliveries.engine, lambda connection, deleted=deleted: connection.execute(deleted))
            types_forgotten |= has_types_to_forget(deliveries)
            prune_graph(deliveries.graph.for_tenant(deliveries.tenant.id), ARRIVED)
            deliveries.rebuild(keep=True)
    found, wanted = deliveries.lines(), Reference(deliveries.tenant, true_facts(events)).lines()
    if types_forgotten:
        found, wanted = ([_TYPE.sub("", line) for line in lines] for lines in (found, wanted))
    assert found == wanted


def has_types_to_forget(deliveries: Deliveries) -> bool:
    """Whether a column is gone and has a last type: a rebuild of stored events knows it again, and else nobody does."""
    items = deliveries.graph.for_tenant(deliveries.tenant.id).stream()
    return any(TOMBSTONE in item.labels and LAST_TYPE in item.props[FACTS] for item in items if isinstance(item, Node))


def of_a_remembered_run(event: Arrival, before: Sequence[Arrival], deleted: int) -> Arrival:
    """The event in a new run, if its own may be forgotten and has events among the deleted ones, which are the first.

    What these said is no part of their run any more then (docs/lineage.md).
    """
    run, job = event.raw.get("run"), event.raw["job"]["name"] if "job" in event.raw else None
    began = next((place for place, one in enumerate(before) if one.raw.get("run") == run), len(before))
    if run is None or began >= deleted:
        return event
    since = [one.raw for one in before[began:] if "job" in one.raw and one.raw["job"]["name"] == job]
    others = {raw["run"]["runId"] if "run" in raw else raw["eventTime"] for raw in since} - {run["runId"]}
    if len(others) < min(bounds.MAX_RUNS, bounds.MAX_OPEN_RUNS):
        return event
    return replace(event, raw={**event.raw, "run": {"runId": f"{job} anew {event.raw['eventTime'][:19]}"}})


@pytest.mark.parametrize("life", [live_through, live_through_retention], ids=["any order", "retention"])
@pytest.mark.parametrize("few", [False, True], ids=["usual bounds", "low bounds"])
@pytest.mark.parametrize(
    ("rows", "place", "number"),
    [("sqlite", "sqlite", 25), pytest.param("mysql", "neo4j", 6, marks=[pytest.mark.needs("mysql", "neo4j")])],
)
def test_catalog_and_jobs_end_in_the_reference_and_in_the_rebuild(
    life: Callable[[Random, Deliveries], None],
    rows: str,
    place: str,
    number: int,
    few: bool,
    open_graphs: Callable[[str], Graph],
    migrated: dict[str, Engine],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if few:
        for name in ("MAX_CLAIMS", "MAX_RUNS", "MAX_OPEN_RUNS", "MAX_UNFINISHED"):
            monkeypatch.setattr(bounds, name, 1)

    @settings(max_examples=examples(number), deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.randoms(use_true_random=False))
    def same(random: Random) -> None:
        deliveries = Deliveries(migrated[rows], open_graphs(place))
        try:
            life(random, deliveries)
        finally:
            deliveries.close()

    same()
