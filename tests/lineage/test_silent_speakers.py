"""Jobs that have been silent for long are forgotten: hidden state stays bounded if every run has a job of its own."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, func, select, update

from platform_defs.graph.model import Node
from platform_defs.graph.port import Graph
from platform_defs.graph.text import graph_lines
from platform_defs.lineage.facts import SPEAKER
from platform_defs.lineage.merge.bounds import MAX_CLAIMS
from platform_defs.lineage.upkeep.retention import Retention, delete_expired
from platform_defs.store.tables.lineage import lineage_events
from tests.graph.conftest import GRAPHS
from tests.lineage.deliveries import Arrival, Deliveries
from tests.lineage.test_merge_stores import open_graphs
from tests.lineage.wire import dataset, run_event, schema

__all__ = ["open_graphs"]  # the fixture
NOW = datetime.now(UTC)
LONG_AGO = NOW - timedelta(days=100)
RETENTION = Retention(events=90, tombstones=7, dead_letters=30)
# some more than are remembered one by one on a column
JOBS = MAX_CLAIMS + 8
HIVE = "hive://h:9083"


@pytest.fixture(params=GRAPHS)
def deliveries(
    request: pytest.FixtureRequest, open_graphs: Callable[[str], Graph], migrated: dict[str, Engine]
) -> Iterator[Deliveries]:
    """Neo4j has its rows in SQLite here."""
    place = str(request.param)
    made = Deliveries(migrated["sqlite" if place == "neo4j" else place], open_graphs(place))
    yield made
    made.close()


def ran_once(number: int, time: datetime) -> Arrival:
    """The only run of a job. All jobs write one table, each with a column and a source of its own beside the others."""
    names = ("x", "y", f"own{number}")
    inputs = [{"namespace": HIVE, "name": name, "field": "a"} for name in ("s.shared", f"s.from{number}")]
    lineage = {"fields": {name: {"inputFields": inputs} for name in names}}
    facets: dict[str, Any] = {"schema": schema(*names), "columnLineage": lineage}
    raw = run_event(
        eventTime=(time + timedelta(seconds=number)).isoformat(),
        run={"runId": f"run{number}"},
        job={"namespace": "n", "name": f"job{number}", "facets": {"sql": {"query": f"insert {number}"}}},
        inputs=[dataset(HIVE, "s.shared"), dataset(HIVE, f"s.from{number}")],
        outputs=[dataset(HIVE, "s.all", **facets)],
    )
    return Arrival(raw, time)


def speakers(deliveries: Deliveries) -> list[str]:
    items = deliveries.graph.for_tenant(deliveries.tenant.id).stream()
    return [item.id for item in items if isinstance(item, Node) and item.id.startswith(f"{SPEAKER}:")]


def visible(deliveries: Deliveries) -> list[str]:
    return list(graph_lines(deliveries.graph.for_tenant(deliveries.tenant.id)))


def stored(deliveries: Deliveries) -> int:
    query = select(func.count()).where(lineage_events.c.tenant_id == deliveries.tenant.id)
    with deliveries.engine.connect() as connection:
        return int(connection.execute(query).scalar_one())


@pytest.mark.parametrize("awake", [0, 1], ids=["all silent", "one speaks still"])
def test_silent_jobs_are_forgotten_and_what_they_said_stays_also_in_a_rebuild(
    awake: int, deliveries: Deliveries
) -> None:
    for begin in range(0, JOBS, 10):
        deliveries.deliver([ran_once(number, LONG_AGO) for number in range(begin, min(begin + 10, JOBS))])
    mine = lineage_events.c.tenant_id == deliveries.tenant.id
    with deliveries.engine.begin() as connection:
        connection.execute(update(lineage_events).where(mine).values(created_at=LONG_AGO))
    for number in range(JOBS, JOBS + awake):
        deliveries.deliver([ran_once(number, NOW)])
    deliveries.committer.flush()
    before = visible(deliveries)
    assert len(speakers(deliveries)) == JOBS + awake
    assert sum('"edge": "DERIVES_FROM"' in line for line in before) >= 3 * JOBS

    delete_expired(deliveries.engine, deliveries.graph, RETENTION, NOW)
    assert stored(deliveries) == len(speakers(deliveries)) == awake
    assert visible(deliveries) == before
    deliveries.rebuild(keep=True)
    assert len(speakers(deliveries)) == awake
    assert visible(deliveries) == before
    assert deliveries.rebuilds == 0
