"""A rebuild loses nothing: neither facts of deleted events, nor events that are written while it runs."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from sqlalchemy import Connection, Engine, Row, event, select, update

from platform_defs.access.principal import Principal, SourceType
from platform_defs.access.tenants import DEMO_TENANT, Tenant, add_tenant
from platform_defs.errors import GraphError
from platform_defs.graph.embedded import EmbeddedGraph
from platform_defs.graph.errors import GraphAccessDenied, GraphConflict, GraphUnavailable, InvalidGraphValue
from platform_defs.graph.model import Edge, Node, Patch, PatchNodes, UpsertEdges, UpsertNodes
from platform_defs.graph.port import Graph, GraphStore
from platform_defs.graph.text import graph_lines
from platform_defs.lineage.errors import LineageError
from platform_defs.lineage.facts import Exists, Renamed
from platform_defs.lineage.intake import dead_letters
from platform_defs.lineage.intake.intake import Intake
from platform_defs.lineage.intake.known_tenants import KnownTenants
from platform_defs.lineage.sink.apply import EventFacts
from platform_defs.lineage.sink.commit import EmbeddedCommitter, ParallelCommitter, is_store_unavailable
from platform_defs.lineage.sink.metrics import SinkMetrics
from platform_defs.lineage.sink.pending import PreparedEvent
from platform_defs.lineage.sink.rows import raw_events
from platform_defs.lineage.upkeep import rebuild_requests, tenant_rebuild
from platform_defs.lineage.upkeep.rebuild import rebuild
from platform_defs.lineage.upkeep.recovery import recover
from platform_defs.lineage.upkeep.retention import Retention, delete_expired
from platform_defs.lineage.upkeep.tenant_rebuild import rebuild_if_small, rebuild_tenant
from platform_defs.lineage.version import Version
from platform_defs.store import migrate
from platform_defs.store.engine import open_engine, transact
from platform_defs.store.tables.lineage import lineage_events
from tests.graph.conftest import random_tenant
from tests.lineage.merging import (
    TABLES,
    PlainStore,
    arrive,
    column,
    histories,
    moving_events,
    moving_wholes,
    plain_events,
    renames,
    spoken_and_dropped_events,
    spoken_and_moved_events,
)
from tests.lineage.reference import Reference
from tests.lineage_events import create_table, run_event
from tests.waiting import until

NOW = datetime.now(UTC)
OTHER = Tenant(8, "other", "Other")
AT_ONCE = timedelta(seconds=-60)
History = tuple[list[EventFacts], list[list[EventFacts]]]


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Engine]:
    opened = open_engine(f"sqlite:///{tmp_path / 'platform.db'}")
    migrate.upgrade(opened)
    add_tenant(opened, DEMO_TENANT)
    add_tenant(opened, OTHER)
    yield opened
    opened.dispose()


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[EmbeddedGraph]:
    """A graph in a database of its own, so that it shares no transactions with the raw rows, like Neo4j."""
    opened = open_engine(f"sqlite:///{tmp_path / 'graph.db'}")
    migrate.upgrade(opened)
    yield EmbeddedGraph.on(opened)
    opened.dispose()


def item(engine: Engine, payload: dict[str, Any], tenant: Tenant = DEMO_TENANT) -> PreparedEvent:
    kind = SourceType.GRAVITINO if "gravitino" in payload["producer"] else SourceType.COMPUTE
    return Intake(KnownTenants(engine)).prepare(Principal("key", "k", frozenset(), kind, tenant), payload).prepared


def created(table: str, age: timedelta, rename_to: str | None = None) -> dict[str, Any]:
    ids = (DEMO_TENANT.id, DEMO_TENANT.code, DEMO_TENANT.name)
    operation = "create_table" if rename_to is None else "alter_table"
    payload = create_table(ids, table, operation=operation, time=(NOW - age).isoformat())
    if rename_to is not None:
        changes = [{"type": "RENAME_TABLE", "newName": rename_to}]
        payload["outputs"][0]["facets"]["gravitino"]["changes"] = changes
    return payload


def tables(store: GraphStore) -> set[str]:
    nodes = [node for node in store.stream() if isinstance(node, Node) and "Table" in node.labels]
    return {str(node.props.get("name", node.id)) for node in nodes}


def store_raw(engine: Engine, *items: PreparedEvent) -> None:
    transact(engine, lambda connection: raw_events.insert_rows(connection, [one.row for one in items]))


def applied(engine: Engine) -> list[bool]:
    query = select(lineage_events.c.graph_applied_at).order_by(lineage_events.c.id)
    with engine.connect() as connection:
        return [at is not None for at in connection.scalars(query)]


def new_metrics() -> SinkMetrics:
    return SinkMetrics(CollectorRegistry())


def test_only_the_operators_rebuild_removes_what_forgotten_events_said(
    database: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, committer = EmbeddedGraph.on(database), EmbeddedCommitter(database, new_metrics())
    store = graph.for_tenant(DEMO_TENANT.id)
    long_ago = timedelta(days=100)
    committer.commit([item(database, run_event(time=(NOW - long_ago).isoformat()))])
    committer.commit([item(database, created(f"sales.t{at}", long_ago)) for at in range(3)])
    with database.begin() as connection:
        connection.execute(update(lineage_events).values(created_at=NOW - long_ago))
    assert delete_expired(database, graph, Retention(90, 7, 30), NOW).events == 4
    store.apply([UpsertNodes([Node("table:stray", {"Table"})])])
    old = next(node for node in store.stream() if isinstance(node, Node) and node.props.get("name") == "t1")
    store.apply([PatchNodes([Patch(old.id, {"summary": "by another system"})])])
    store.apply([UpsertEdges([Edge("HAS_TABLE", old.id, "table:stray"), Edge("HAS_TAG", old.id, "table:stray")])])
    before = list(graph_lines(store))

    committer.commit([item(database, created("sales.new", timedelta(minutes=10)))])
    committer.commit([item(database, created("sales.new", timedelta(minutes=5)))])
    late = committer.commit([item(database, created("sales.new", timedelta(minutes=7), rename_to="moved"))])
    assert late.rebuild == {DEMO_TENANT.id}
    for too_much in ("EVENTS_OF_SMALL", "SIZE_OF_SMALL"):
        with monkeypatch.context() as patch:
            patch.setattr(tenant_rebuild, too_much, 2)
            rebuild_if_small(database, graph, DEMO_TENANT.id)
        assert [request.tenant_id for request in rebuild_requests.list_open(database)] == [DEMO_TENANT.id]
    rebuild_if_small(database, graph, DEMO_TENANT.id)
    assert rebuild_requests.list_open(database) == []
    assert set(before) <= set(graph_lines(store))
    assert tables(store) == {"orders", "t0", "t1", "t2", "table:stray", "new", "moved"}

    after = list(graph_lines(store))
    transact(database, lambda connection: rebuild_requests.request_rebuild(connection, [DEMO_TENANT.id]))
    assert recover(database, graph).rebuilt == (DEMO_TENANT.id,)
    assert list(graph_lines(store)) == after

    rebuild_tenant(database, graph, DEMO_TENANT)
    assert tables(store) == {"new", "moved"}


@dataclass
class PlainGraph:
    store: PlainStore

    def for_tenant(self, tenant: int) -> GraphStore:
        return cast(GraphStore, self.store)


def rebuilt(engine: Engine, store: PlainStore, events: list[EventFacts], *, keep: bool = True) -> list[str]:
    rebuild(
        engine,
        cast(Graph, PlainGraph(store)),
        DEMO_TENANT,
        read_events=lambda: iter(events),
        keep_unexplained=keep,
        progress=lambda done: None,
    )
    return list(graph_lines(cast(GraphStore, store)))


any_history = (
    histories(st.one_of(plain_events, renames))
    | histories(st.one_of(moving_events, moving_wholes))
    | histories(spoken_and_dropped_events)
    | histories(spoken_and_moved_events)
)


def test_whatever_events_are_forgotten_the_others_end_in_the_same_graph(migrated: dict[str, Engine]) -> None:
    @settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
    @given(any_history, st.data())
    def same(history: History, data: st.DataObject) -> None:
        in_order, _ = history
        forgotten = data.draw(st.integers(0, len(in_order)))
        store = PlainStore(DEMO_TENANT.id)
        arrive(cast(GraphStore, store), DEMO_TENANT, [[one] for one in in_order])
        assert rebuilt(migrated["sqlite"], store, in_order[forgotten:]) == Reference(DEMO_TENANT, in_order).lines()

    same()


def test_with_all_events_stored_it_is_the_graph_of_the_events_hidden_facts_too(migrated: dict[str, Engine]) -> None:
    @settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
    @given(any_history, st.data())
    def same(history: History, data: st.DataObject) -> None:
        in_order, _ = history
        late = data.draw(st.sampled_from(in_order))
        store = PlainStore(DEMO_TENANT.id)
        arrive(cast(GraphStore, store), DEMO_TENANT, [[one] for one in in_order if one is not late])
        assert rebuilt(migrated["sqlite"], store, in_order) == Reference(DEMO_TENANT, in_order).lines()
        anew = PlainStore(DEMO_TENANT.id)
        rebuilt(migrated["sqlite"], anew, in_order, keep=False)
        assert list(store.stream()) == list(anew.stream())

    same()


def test_what_a_forgotten_event_said_after_a_stored_one_is_not_lost_either(migrated: dict[str, Engine]) -> None:
    """Retention deletes events in the order in which they were stored, which need not be the order of their times."""
    old, new, _, _ = TABLES
    said = [
        *([Exists(old, "Table", {"producer": "p"})], [Renamed(old, new)]),
        *([Exists(new, "Table", {"description": "d"})], [Exists(column(new, "x"), "Column")]),
    ]
    in_order = [EventFacts(Version(f"{at:032x}"), tuple(facts)) for at, facts in enumerate(said, 1)]
    store = PlainStore(DEMO_TENANT.id)
    arrive(cast(GraphStore, store), DEMO_TENANT, [[one] for one in in_order])
    assert rebuilt(migrated["sqlite"], store, in_order[1:2]) == Reference(DEMO_TENANT, in_order).lines()


def test_an_event_is_not_marked_when_a_rebuild_wrote_its_graph_meanwhile(
    database: Engine, elsewhere: EmbeddedGraph
) -> None:
    committer = ParallelCommitter(database, elsewhere, new_metrics())
    committer.commit([item(database, run_event(job="before"))])
    committer.commit([item(database, run_event(job="beside")), item(database, run_event(), OTHER)])
    assert applied(database) == [True, False, False]
    rebuild_requests.record_rewrite(database, DEMO_TENANT.id)
    committer.flush()
    assert applied(database) == [True, False, True], "of the other tenant no graph was written"
    committer.commit([item(database, run_event(job="after"))])
    committer.flush()
    assert applied(database) == [True, False, True, True]
    assert recover(database, elsewhere, patience=AT_ONCE).applied == 1
    assert all(applied(database))
    committer.close()


@pytest.mark.needs("mysql")
def test_an_event_whose_row_a_rebuild_cannot_see_yet_is_not_lost(
    migrated: dict[str, Engine], elsewhere: EmbeddedGraph
) -> None:
    engine = migrated["mysql"]
    id = random_tenant()
    tenant = Tenant(id, f"code{id}", "Beside")
    add_tenant(engine, tenant)
    store = elsewhere.for_tenant(tenant.id)
    committer = ParallelCommitter(engine, elsewhere, new_metrics())
    committer.commit([item(engine, run_event(job="a", writes=("mart.first",)), tenant)])
    committer.flush()
    # an event that counts a run has a lock, and a rebuild waits for its commit; that of a catalog counts none
    second = item(engine, create_table((id, tenant.code, tenant.name), "mart.second"), tenant)

    def rebuild_before_the_commit(connection: Connection) -> None:
        until("the graph to have the event", lambda: "second" in tables(store))
        rebuild_tenant(engine, elsewhere, tenant)
        assert "second" not in tables(store)

    event.listen(engine, "commit", rebuild_before_the_commit, once=True)
    committer.commit([second])
    committer.flush()
    recover(engine, elsewhere, patience=AT_ONCE)
    assert {"first", "second"} <= tables(store)
    committer.close()


@dataclass
class Failing:
    """A graph that raises the error that `error` gives for a tenant."""

    graph: Graph
    error: Callable[[int], Exception | None]

    def for_tenant(self, tenant: int) -> GraphStore:
        if (error := self.error(tenant)) is not None:
            raise error
        return self.graph.for_tenant(tenant)


def failing(graph: Graph, error: Exception) -> Graph:
    return cast(Graph, Failing(graph, lambda tenant: error if tenant == DEMO_TENANT.id else None))


def two_waiting(database: Engine) -> None:
    store_raw(database, item(database, run_event()), item(database, run_event(), OTHER))


def test_errors_of_the_server_are_not_blamed_on_an_event(database: Engine, elsewhere: EmbeddedGraph) -> None:
    two_waiting(database)
    full = GraphError("Neo4j at bolt://there:7687: no space left on device")
    with pytest.raises(GraphError):
        recover(database, failing(elsewhere, full), patience=AT_ONCE)
    assert len(applied(database)) == 2
    assert dead_letters.list_letters(database) == []
    assert all(map(is_store_unavailable, (full, GraphUnavailable("gone"), GraphAccessDenied("refused"))))
    assert not any(map(is_store_unavailable, (InvalidGraphValue("id", "expected text"), GraphConflict("taken"))))


def test_an_event_that_fails_for_no_foreseen_reason_waits_and_the_others_are_applied(
    database: Engine, elsewhere: EmbeddedGraph
) -> None:
    two_waiting(database)
    recovered = recover(database, failing(elsewhere, KeyError("nobody foresaw")), patience=AT_ONCE)
    assert (recovered.applied, recovered.refused) == (1, 0)
    assert applied(database) == [False, True]
    assert dead_letters.list_letters(database) == []


def test_an_event_that_the_graph_can_never_hold_becomes_a_dead_letter(
    database: Engine, elsewhere: EmbeddedGraph
) -> None:
    two_waiting(database)
    error = InvalidGraphValue("props.name", "expected at most so many bytes")
    recovered = recover(database, failing(elsewhere, error), patience=AT_ONCE)
    assert (recovered.applied, recovered.refused) == (1, 1)
    assert applied(database) == [True]
    (letter,) = dead_letters.list_letters(database)
    assert "props.name" in letter.reason


def test_a_tenant_whose_rebuild_fails_does_not_keep_the_others_from_theirs(
    database: Engine, elsewhere: EmbeddedGraph
) -> None:
    two_waiting(database)
    for tenant in (DEMO_TENANT, OTHER):
        transact(database, lambda connection, id=tenant.id: rebuild_requests.request_rebuild(connection, [id]))  # type: ignore[misc]
    graph = failing(elsewhere, KeyError("nobody foresaw"))
    with pytest.raises(LineageError, match=rf"of tenants {DEMO_TENANT.id} could not be rebuilt: .*nobody foresaw"):
        recover(database, graph, patience=AT_ONCE)
    assert [mark.tenant_id for mark in rebuild_requests.list_open(database)] == [DEMO_TENANT.id]
    assert "orders" in tables(elsewhere.for_tenant(OTHER.id))


def test_an_event_whose_time_would_not_be_accepted_any_more_is_read_by_the_time_it_was_stored_with() -> None:
    time = datetime(2024, 5, 1, 12, tzinfo=UTC)
    row = SimpleNamespace(
        id=1,
        tenant_id=7,
        tenant_code="acme",
        tenant_name="Acme",
        event_time=time,
        event={**run_event(), "eventTime": "123456789"},
        fingerprint="0" * 64,
        source_type=None,
        created_at=time,
        graph_applied_at=None,
        version=None,
    )
    found = raw_events.read_row(cast("Row[Any]", row))
    assert found.event.event_time == time
    assert found.event_facts.facts
