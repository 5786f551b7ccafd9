"""What an event costs does not grow with the number of jobs and runs that have named the same tables before it.

The cost is counted and not timed: what is read from and written to the graph, and the work that the stores say they do.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy import event as sqlalchemy_event

from platform_defs.access.tenants import DEMO_TENANT
from platform_defs.graph.embedded_store import EmbeddedStore
from platform_defs.graph.model import Operation
from platform_defs.graph.neo4j_store import Neo4jStore
from platform_defs.graph.port import Graph
from platform_defs.lineage.facts import SPEAKER, Ref
from platform_defs.lineage.sink.apply import EventFacts, apply_events
from platform_defs.lineage.version import Version
from tests.lineage.deliveries import Arrival, Deliveries
from tests.lineage.merging import TABLES, PlainStore, stated
from tests.lineage.test_merge_stores import open_graphs
from tests.lineage.wire import dataset, run_event, schema
from tests.needs import Absent, find

__all__ = ["open_graphs"]  # the fixture
EARLY, LATE = 100, 300
# On the real stores: as many jobs as fit into some ten seconds, and in CI those of the promise.
JOBS = 3_000 if isinstance(find("time"), Absent) else 10_000
AT_ONCE = 100
HIVE = "hive://h:9083"
START = datetime(2026, 1, 1, tzinfo=UTC)


class Work:
    """Counts what happens between `begin` and `end`: by name, numbers of things."""

    def __init__(self) -> None:
        self._counts: Counter[str] | None = None

    def begin(self) -> None:
        self._counts = Counter()

    def end(self) -> Counter[str]:
        counts, self._counts = self._counts, None
        assert counts is not None
        return counts

    @property
    def is_counted(self) -> bool:
        return self._counts is not None

    def add(self, name: str, number: int = 1) -> None:
        if self._counts is not None:
            self._counts[name] += number


def count_graph(monkeypatch: pytest.MonkeyPatch, store: type, work: Work) -> None:
    """Counts nodes and edges that are read and written, and the length of their text, hidden properties included."""

    def counted_read(read: Callable[..., Any]) -> Callable[..., Any]:
        def method(self: object, asked: Sequence[object], **options: Any) -> Any:
            found = read(self, asked, **options)
            items = list(found.values() if isinstance(found, Mapping) else found)
            work.add("read", len(items))
            work.add("size", sum(len(str(item)) for item in items))
            return found

        return method

    def counted_apply(apply: Callable[..., Any]) -> Callable[..., Any]:
        def method(self: object, operations: Iterable[Operation]) -> Any:
            steps = list(operations)
            work.add("written", sum(len(getattr(step, field.name)) for step in steps for field in fields(step)))
            work.add("size", len(str(steps)))
            return apply(self, steps)

        return method

    for name in ("nodes", "edges", "edges_by_key"):
        monkeypatch.setattr(store, name, counted_read(getattr(store, name)))
    monkeypatch.setattr(store, "apply", counted_apply(store.apply))  # type: ignore[attr-defined]


def check_that_late_is_as_cheap(early: Counter[str], late: Counter[str]) -> None:
    assert early["read"] > 0 < early["written"]
    assert {name: late[name] for name in ("read", "written")} == {name: early[name] for name in ("read", "written")}
    for name, number in late.items():
        assert number < 2 * early[name], name


def event(at: int, job: str, run: str, kind: str = "COMPLETE") -> EventFacts:
    """Each job has its SQL; all of them write the same columns of one table from those of another."""
    columns, pairs = {"x": {"dataType": "int"}, "y": {}}, [("x", "x"), ("y", "y")]
    facts = stated(
        Ref(SPEAKER, ("job", "n", job)), run, kind, Ref("sql", (job,)), *TABLES[:2], columns, pairs, ["whole"]
    )
    return EventFacts(Version(f"{at:032x}"), tuple(facts))


@pytest.mark.parametrize(
    ("job", "run", "kind"),
    [("job{}", "run", "COMPLETE"), ("job{}", "run", "START"), ("job", "run{}", "COMPLETE"), ("job", "run{}", "START")],
)
def test_what_the_last_event_reads_and_writes_is_what_the_hundredth_did(
    job: str, run: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store: Any = PlainStore(DEMO_TENANT.id)
    work = Work()
    count_graph(monkeypatch, PlainStore, work)
    costs = []
    for at in range(1, LATE + 1):
        work.begin()
        assert not apply_events(store, DEMO_TENANT, [event(at, job.format(at), run.format(at), kind)]).needs_rebuild
        costs.append(work.end())
    check_that_late_is_as_cheap(costs[EARLY], costs[-1])


def ran_once(number: int) -> Arrival:
    """The only run of a job. All jobs write the same columns of one table from those of another."""
    inputs = [{"namespace": HIVE, "name": "s.in", "field": "a"}]
    lineage = {"fields": {name: {"inputFields": inputs} for name in ("x", "y")}, "dataset": inputs}
    raw = run_event(
        eventTime=(START + timedelta(seconds=number)).isoformat(),
        run={"runId": f"run{number}"},
        job={"namespace": "n", "name": f"job{number}", "facets": {"sql": {"query": f"insert {number}"}}},
        inputs=[dataset(HIVE, "s.in")],
        outputs=[dataset(HIVE, "s.out", schema=schema("x", "y"), columnLineage=lineage)],
    )
    return Arrival(raw, START + timedelta(days=1))


class Profiled:
    """A transaction of Neo4j that also asks how often each statement has touched the store."""

    def __init__(self, tx: Any, work: Work) -> None:
        self._tx, self._work = tx, work

    def run(self, statement: str, parameters: Mapping[str, Any]) -> list[Any]:
        result = self._tx.run(f"PROFILE {statement}", parameters)
        records = list(result)
        self._work.add("statements")
        self._work.add("hits of Neo4j", _hits(result.consume().profile))
        return records


def _hits(plan: Mapping[str, Any]) -> int:
    return int(plan.get("dbHits", 0)) + sum(map(_hits, plan.get("children", ())))


def count_neo4j(monkeypatch: pytest.MonkeyPatch, work: Work) -> None:
    execute = Neo4jStore._execute

    def counted(store: Neo4jStore, tx: Any, template: str, names: Any, **parameters: Any) -> Any:
        return execute(store, Profiled(tx, work) if work.is_counted else tx, template, names, **parameters)  # type: ignore[arg-type]

    monkeypatch.setattr(Neo4jStore, "_execute", counted)


@pytest.fixture
def count_sqlite(migrated: dict[str, Engine]) -> Iterator[Callable[[Work], None]]:
    """Counts steps of SQLite's virtual machine: it calls back as often as it can be asked to, some times per row."""
    engine, listeners = migrated["sqlite"], []

    def count(work: Work) -> None:
        def step() -> int:
            work.add("steps of SQLite")
            return 0

        def watch(connection: Any, *_: object) -> None:
            connection.set_progress_handler(step if work.is_counted else None, 1)

        sqlalchemy_event.listen(engine, "checkout", watch)
        listeners.append(watch)

    yield count
    for listener in listeners:
        sqlalchemy_event.remove(engine, "checkout", listener)


@pytest.mark.parametrize("place", ["sqlite", pytest.param("neo4j", marks=pytest.mark.needs("neo4j"))])
def test_of_thousands_of_jobs_that_write_one_table_the_last_event_costs_the_stores_what_the_hundredth_did(
    place: str,
    migrated: dict[str, Engine],
    open_graphs: Callable[[str], Graph],
    monkeypatch: pytest.MonkeyPatch,
    count_sqlite: Callable[[Work], None],
) -> None:
    """With Neo4j the rows are in SQLite, and both are counted."""
    work = Work()
    tenant = Deliveries(migrated["sqlite"], open_graphs(place))
    count_graph(monkeypatch, Neo4jStore if place == "neo4j" else EmbeddedStore, work)
    count_neo4j(monkeypatch, work)
    count_sqlite(work)

    def cost_after(first: int, last: int) -> Counter[str]:
        """Of the event of the job with the last number."""
        for begin in range(first, last - 1, AT_ONCE):
            tenant.deliver([ran_once(number) for number in range(begin, min(begin + AT_ONCE, last - 1))])
        # alone, because the event after it also writes that the graph has the one before it
        tenant.deliver([ran_once(last - 1)])
        work.begin()
        tenant.deliver([ran_once(last)])
        return work.end()

    try:
        early, late = cost_after(1, EARLY), cost_after(EARLY + 1, JOBS)
        assert early["steps of SQLite"] > 0
        assert (early["hits of Neo4j"] > 0) == (place == "neo4j")
        check_that_late_is_as_cheap(early, late)
        assert tenant.rebuilds == 0
    finally:
        tenant.close()
