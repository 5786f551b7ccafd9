"""Events of a catalog and of jobs about the same tables, in any order, through the sink: one graph, also when rebuilt.

Beside what a merge alone sees there are real payloads, events that arrive twice, rebuilds between deliveries, and each
graph store with its own database.
"""

from collections.abc import Callable
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine

from platform_defs.access.principal import SourceType
from platform_defs.graph.port import Graph
from platform_defs.lineage.merge import bounds
from tests.lineage.deliveries import Arrival, Deliveries, true_facts
from tests.lineage.merging import examples
from tests.lineage.reference import Reference
from tests.lineage.test_merge_stores import START, open_graphs
from tests.lineage.wire import at_catalog, facet, gravitino, run_event, schema

__all__ = ["open_graphs"]

ARRIVED = START + timedelta(days=30)
TABLES, COLUMNS = ["s.a", "s.b", "s.c"], ["x", "y", "z"]


def columns(random: Random) -> dict[str, Any]:
    return schema(*random.sample(COLUMNS, random.randint(1, 3)))


def job_facets(random: Random, namespace: str) -> dict[str, Any]:
    """What a run says of its output."""

    def one_of(names: list[str], key: str) -> dict[str, str]:
        return {"namespace": namespace, key: random.choice(names)}

    facets: dict[str, Any] = {"schema": columns(random)} if random.random() < 0.6 else {}
    if random.random() < 0.5:
        inputs = {**one_of(TABLES, "name"), "field": random.choice(COLUMNS)}
        facets["columnLineage"] = {"fields": {random.choice(COLUMNS): {"inputFields": [inputs]}}}
    if random.random() < 0.15:
        change = random.choice([{}, {"previousIdentifier": one_of(TABLES, "name")}])
        facets["lifecycleStateChange"] = {"lifecycleStateChange": "RENAME" if change else "DROP", **change}
    return facets


def of_job(random: Random, tenant: int, minute: int) -> Arrival:
    def table(**facets: Any) -> dict[str, Any]:
        return at_catalog(random.choice(TABLES), tenant, **facets)

    job = random.choice("jkl")
    sql = {"sql": {"query": "insert into s.b select x, y from s.a"}} if random.random() < 0.3 else {}
    raw = run_event(
        eventTime=(START + timedelta(minutes=minute)).isoformat(),
        eventType=random.choice(["START", "COMPLETE", "COMPLETE", "FAIL"]),
        run={"runId": random.choice([f"{job}1", f"{job}2", f"{job}-{minute}"])},
        job={"namespace": "n", "name": job, "facets": sql},
        inputs=[table(**({"schema": columns(random)} if random.random() < 0.4 else {}))][: random.randint(0, 3)],
        outputs=[table(**job_facets(random, table()["namespace"]))][: random.randint(0, 5)],
    )
    return Arrival(raw, ARRIVED)


def of_catalog(random: Random, tenant: int, minute: int) -> Arrival:
    operation, name = random.choice(["create_table", "alter_table", "alter_table", "drop_table"]), random.choice(TABLES)
    facets: dict[str, Any] = {}
    if operation == "create_table":
        facets["schema"] = columns(random)
    elif operation == "alter_table":
        change = random.choice(
            [
                {"type": "RENAME_TABLE", "newName": random.choice("abc")},
                {"type": "DELETE_COLUMN", "columnName": random.choice(COLUMNS)},
                {"type": "RENAME_COLUMN", "oldColumnName": "x", "newColumnName": random.choice(COLUMNS)},
            ]
        )
        facets["gravitino"] = facet(tenant, changes=[change], tenantCode=f"code{tenant}", tenantName="Somebody")
    time = (START + timedelta(minutes=minute)).isoformat()
    raw = gravitino(operation, at_catalog(name, tenant, **facets), tenant=tenant, eventTime=time)
    return Arrival(raw, ARRIVED, SourceType.GRAVITINO)


def live_through(random: Random, deliveries: Deliveries) -> None:
    made = (random.choice([of_job, of_job, of_catalog]) for _ in range(random.randint(3, 9)))
    events = [make(random, deliveries.tenant.id, minute) for minute, make in enumerate(made)]
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


@pytest.mark.parametrize("few", [False, True], ids=["usual bounds", "low bounds"])
@pytest.mark.parametrize(
    ("rows", "place", "number"),
    [("sqlite", "sqlite", 25), pytest.param("mysql", "neo4j", 6, marks=[pytest.mark.needs("mysql", "neo4j")])],
)
def test_catalog_and_jobs_in_any_order_end_in_the_reference_and_in_the_rebuild(
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
            live_through(random, deliveries)
        finally:
            deliveries.close()

    same()
