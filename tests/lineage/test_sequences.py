"""What a tenant lives through, one event after the other: real dbt runs, then renames, drops, failures and overlaps.

After each sequence the graph is that of the reference, and a rebuild by the operator changes no line of it, counts of
executions included.
"""

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from platform_defs.graph.text import graph_lines
from tests.lineage.deliveries import Arrival, Deliveries
from tests.lineage.test_dbt import COMMANDS, DERIVED, FOLDER, JOINED, lineage
from tests.lineage.test_symlinks import deliveries, expected, open_graphs, opened, place
from tests.lineage.wire import dataset, run_event, schema

__all__ = ["deliveries", "open_graphs", "opened", "place"]

DUCK = "duckdb://shop.duckdb"
MAIN = "shop.main"
START = datetime(2026, 11, 18, tzinfo=UTC)
ARRIVED = START + timedelta(days=30)


def dbt(command: str) -> list[Arrival]:
    lines = FOLDER.joinpath(f"{command}.jsonl").read_text().splitlines()
    return [Arrival(json.loads(line), ARRIVED) for line in lines]


def said(
    minute: int,
    kind: str = "COMPLETE",
    *,
    job: str = "job",
    run: str | None = None,
    reads: Iterable[dict[str, Any]] = (),
    writes: Iterable[dict[str, Any]] = (),
    sql: str | None = None,
) -> Arrival:
    facets = {} if sql is None else {"sql": {"query": sql}}
    return Arrival(
        run_event(
            eventTime=(START + timedelta(minutes=minute)).isoformat(),
            eventType=kind,
            run={"runId": run or f"{job}-{minute}"},
            job={"namespace": "n", "name": job, "facets": facets},
            inputs=list(reads),
            outputs=list(writes),
        ),
        ARRIVED,
    )


def table(name: str, **facets: Any) -> dict[str, Any]:
    return dataset(DUCK, f"{MAIN}.{name}", **facets)


def derived(source: str, **pairs: str) -> dict[str, Any]:
    return {
        "fields": {
            out: {"inputFields": [{"namespace": DUCK, "name": f"{MAIN}.{source}", "field": field}]}
            for out, field in pairs.items()
        }
    }


def renamed(minute: int, old: str, new: str) -> Arrival:
    facet = {
        "lifecycleStateChange": "RENAME",
        "previousIdentifier": {"namespace": DUCK, "name": f"{MAIN}.{old}"},
    }
    return said(minute, job="ddl", writes=[table(new, lifecycleStateChange=facet)])


def dropped(minute: int, name: str) -> Arrival:
    return said(minute, job="ddl", writes=[table(name, lifecycleStateChange={"lifecycleStateChange": "DROP"})])


class Story:
    """Delivers events one by one, remembers them, and compares."""

    def __init__(self, deliveries: Deliveries) -> None:
        self.deliveries = deliveries
        self.events: list[Arrival] = []

    def goes_on(self, *events: Arrival) -> None:
        for event in events:
            self.deliveries.deliver([event])
        self.events += events

    @property
    def derived(self) -> set[str]:
        return self.shown[0]

    @property
    def joined(self) -> set[str]:
        return self.shown[1]

    @property
    def shown(self) -> tuple[set[str], set[str]]:
        return lineage(self.deliveries.graph.for_tenant(self.deliveries.tenant.id))

    @property
    def counts(self) -> dict[str, int]:
        """How often each SQL text of job `job` ran."""
        nodes = (json.loads(line) for line in graph_lines(self.deliveries.graph.for_tenant(self.deliveries.tenant.id)))
        props = (node["props"] for node in nodes if "SQL" in node.get("node", ()))
        return {prop.get("content", ""): prop["executionCount"] for prop in props if prop["jobName"] == "job"}

    def is_true(self) -> None:
        """The graph is that of the reference; after a rebuild it is the same text, with all counts."""
        store = self.deliveries.graph.for_tenant(self.deliveries.tenant.id)
        before = list(graph_lines(store))
        assert self.deliveries.lines() == expected(self.deliveries, self.events)
        self.deliveries.committer.flush()
        self.deliveries.rebuild()
        assert list(graph_lines(store)) == before


def test_dbt_goes_on_after_its_models_were_renamed_dropped_and_made_again(deliveries: Deliveries) -> None:
    story = Story(deliveries)
    for command in COMMANDS:
        story.goes_on(*dbt(command))
    assert story.shown == (DERIVED, JOINED)
    story.is_true()
    # the lineage goes along with the name, in both directions
    story.goes_on(renamed(1, "orders", "orders_old"))
    assert {edge for edge in story.derived if edge.startswith("orders")} == {
        edge.replace("orders.", "orders_old.", 1) for edge in DERIVED if edge.startswith("orders.")
    }
    story.goes_on(renamed(2, "stg_orders", "staged"))
    assert "orders_old.status>staged.status" in story.derived
    story.is_true()
    # a dropped table takes its lineage with it; made again, it has the new one alone
    story.goes_on(dropped(3, "staged"))
    assert not any("staged" in edge for edge in story.derived | story.joined)
    story.goes_on(
        said(4, reads=[table("raw_orders")], writes=[table("staged", columnLineage=derived("raw_orders", a="id"))])
    )
    assert {edge for edge in story.derived if "staged" in edge} == {"staged.a>raw_orders.id"}
    story.is_true()


def test_a_job_that_goes_on_under_another_name_leaves_what_it_said_under_the_old_one(deliveries: Deliveries) -> None:
    story = Story(deliveries)
    out = table("b", schema=schema("x", "y"), columnLineage=derived("a", x="x", y="y"))
    story.goes_on(said(1, job="old", reads=[table("a")], writes=[out]))
    less = table("b", schema=schema("x"), columnLineage=derived("a", x="x"))
    story.goes_on(said(2, job="new", reads=[table("a")], writes=[less]))
    assert story.derived == {"b.x>a.x", "b.y>a.y"}
    story.is_true()
    # nobody but the old job can take its words back
    story.goes_on(said(3, job="old", reads=[table("a")], writes=[less]))
    assert story.derived == {"b.x>a.x"}
    story.is_true()


def test_a_run_that_fails_midway_only_adds_and_the_next_good_one_replaces_it(deliveries: Deliveries) -> None:
    story = Story(deliveries)
    story.goes_on(said(1, reads=[table("a")], writes=[table("b", columnLineage=derived("a", x="x"))]))
    story.goes_on(
        said(2, "START", run="bad", reads=[table("a"), table("c")], writes=[table("b")]),
        said(3, "FAIL", run="bad", writes=[table("b", columnLineage=derived("c", x="z"))]),
    )
    assert (story.derived, story.joined) == ({"b.x>a.x", "b.x>c.z"}, {"a>b", "c>b"})
    story.is_true()
    story.goes_on(said(4, reads=[table("a")], writes=[table("b", columnLineage=derived("a", x="x"))]))
    assert (story.derived, story.joined) == ({"b.x>a.x"}, {"a>b"})
    story.is_true()


def test_a_run_that_starts_before_the_last_one_has_ended_is_counted_and_neither_is_lost(
    deliveries: Deliveries,
) -> None:
    story = Story(deliveries)
    first, second = "insert into b select x from a", "insert into b select x from c"
    a, c, b = table("a"), table("c"), table("b")
    story.goes_on(
        said(1, "START", run="one", reads=[a], writes=[b], sql=first),
        said(2, "START", run="two", reads=[c], writes=[b], sql=second),
        said(3, run="one", reads=[a], writes=[b], sql=first),
    )
    assert story.joined == {"a>b"}
    story.is_true()
    # an empty COMPLETE makes the run the current one all the same
    story.goes_on(said(4, run="two"))
    assert story.joined == {"c>b"}
    # the text that ran before stays, with its count
    assert story.counts == {first: 1, second: 1}
    story.goes_on(said(5, run="three", reads=[c], writes=[b], sql=second), said(6, "START", run="one", sql=first))
    assert story.counts == {first: 1, second: 2}
    story.is_true()


def test_a_table_that_is_swapped_every_night_keeps_the_lineage_of_the_job_that_fills_it(deliveries: Deliveries) -> None:
    """fill orders_new, rename orders to orders_old, orders_new to orders, drop orders_old."""
    story = Story(deliveries)
    for night in range(3):
        minute = night * 10
        filled = table("orders_new", schema=schema("x"), columnLineage=derived("raw", x="x"))
        story.goes_on(said(minute, job="fill", reads=[table("raw")], writes=[filled]))
        if night:
            story.goes_on(renamed(minute + 1, "orders", "orders_old"))
        story.goes_on(renamed(minute + 2, "orders_new", "orders"))
        if night:
            story.goes_on(dropped(minute + 3, "orders_old"))
        assert story.derived == {"orders.x>raw.x"}, night
        story.is_true()
    story.goes_on(said(50, job="report", reads=[table("orders")], writes=[table("board")]))
    assert "orders>board" in story.joined
    assert deliveries.rebuilds == 0


def test_a_job_event_is_a_run_and_a_dataset_event_replaces_that_of_its_producer(deliveries: Deliveries) -> None:
    def described(minute: int, producer: str, *columns: str) -> Arrival:
        raw = {
            "eventTime": (START + timedelta(minutes=minute)).isoformat(),
            "producer": producer,
            "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/DatasetEvent",
            "dataset": table("a", schema=schema(*columns)),
        }
        return Arrival(raw, ARRIVED)

    def designed(minute: int, source: str) -> Arrival:
        raw = said(minute, job="designed", reads=[table(source)], writes=[table("b")]).raw
        url = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/JobEvent"
        kept = {name: value for name, value in raw.items() if name not in ("run", "eventType")}
        return Arrival({**kept, "schemaURL": url}, ARRIVED)

    story = Story(deliveries)
    story.goes_on(described(1, "https://one", "x", "y"), described(2, "https://two", "z"), designed(3, "a"))
    story.goes_on(described(4, "https://one", "y"), designed(5, "c"))
    names = {line.split('"qualifiedName": "')[1].split('"')[0] for line in deliveries.lines() if '"Column"' in line}
    assert names == {f"{MAIN}.a.y", f"{MAIN}.a.z"}
    assert story.joined == {"c>b"}
    story.is_true()
