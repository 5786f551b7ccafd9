"""The version of an event is a column: decided once, the same for every process, and cheap to page by."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from sqlalchemy import Connection, Engine, select, update

from assets.lineage import recovery_outcome
from platform_defs.access.principal import Principal, SourceType
from platform_defs.access.tenants import DEMO_TENANT, Tenant, add_tenant
from platform_defs.graph.embedded import EmbeddedGraph
from platform_defs.graph.port import Graph
from platform_defs.graph.text import graph_lines
from platform_defs.lineage.errors import LineageError
from platform_defs.lineage.intake.intake import Intake
from platform_defs.lineage.intake.known_tenants import KnownTenants
from platform_defs.lineage.sink.commit import EmbeddedCommitter
from platform_defs.lineage.sink.metrics import SinkMetrics
from platform_defs.lineage.sink.opening import open_committer
from platform_defs.lineage.sink.pending import PreparedEvent
from platform_defs.lineage.sink.rows import raw_events, stored_rows
from platform_defs.lineage.sink.rows.stored_rows import portions
from platform_defs.lineage.upkeep import rebuild_requests
from platform_defs.lineage.upkeep.recovery import recover
from platform_defs.lineage.upkeep.tenant_rebuild import rebuild_tenant
from platform_defs.lineage.version import Version, is_ahead, time_of, version_at_arrival, version_of
from platform_defs.store.engine import has_one_writer, transact
from platform_defs.store.tables.lineage import lineage_events
from tests.api.serving import serve_api
from tests.graph.conftest import EMBEDDED
from tests.lineage.deliveries import Arrival, Deliveries
from tests.lineage.fetches import count_fetched
from tests.lineage.test_merge_stores import open_graphs
from tests.lineage_events import run_event
from tests.waiting import PATIENCE_S

__all__ = ["open_graphs"]  # the fixture
SOURCE = Principal("key", "spark", frozenset(), SourceType.COMPUTE, DEMO_TENANT)
NOW = datetime.now(UTC)
MEBIBYTE = 1024 * 1024


@pytest.fixture
def engine(engine: Engine) -> Engine:
    add_tenant(engine, DEMO_TENANT)
    return engine


def prepared(engine: Engine, payload: dict[str, Any], tenant: Tenant = DEMO_TENANT) -> PreparedEvent:
    return Intake(KnownTenants(engine)).prepare(replace(SOURCE, tenant=tenant), payload).prepared


def committer(engine: Engine) -> EmbeddedCommitter:
    return EmbeddedCommitter(engine, SinkMetrics(CollectorRegistry()))


def lines(engine: Engine) -> list[str]:
    return list(graph_lines(EmbeddedGraph.on(engine).for_tenant(DEMO_TENANT.id)))


def versions(engine: Engine) -> list[str | None]:
    with engine.connect() as connection:
        return list(connection.scalars(select(lineage_events.c.version).order_by(lineage_events.c.id)))


def large(job: str, size: int) -> dict[str, Any]:
    event = run_event(job=job)
    event["run"]["facets"] = {"note": {"text": "x" * size}}
    return event


@pytest.mark.parametrize("keep", [False, True], ids=["by the operator", "after a late rename"])
def test_a_graph_with_events_of_one_and_seven_megabytes_can_be_rebuilt(engine: Engine, keep: bool) -> None:
    events = [prepared(engine, large(f"job{at}", size)) for at, size in enumerate([MEBIBYTE] * 3 + [7 * MEBIBYTE])]
    for event in events:
        committer(engine).commit([event])
    before = lines(engine)
    report = rebuild_tenant(engine, EmbeddedGraph.on(engine), DEMO_TENANT, keep_unexplained=keep)
    assert (report.events, report.removed) == (4, 0)
    assert lines(engine) == before


def test_events_are_read_in_the_order_of_their_versions_page_by_page(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(raw_events, "PAGE", 4)
    monkeypatch.setattr(stored_rows, "EVENTS_AT_ONCE", 3)
    times = [NOW - timedelta(minutes=minute % 5) for minute in range(11)]
    events = [prepared(engine, run_event(job=f"job{at}", time=time.isoformat())) for at, time in enumerate(times)]
    committer(engine).commit(events)
    read = [stored.event_facts.version for stored in raw_events.read_in_version_order(engine, DEMO_TENANT.id)]
    assert read == sorted(event.event_facts.version for event in events)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([], []),
        ([1, 1, 1, 1], [[0, 1, 2], [3]]),
        ([4, 4, 4], [[0, 1], [2]]),
        ([1, 99, 1, 1], [[0], [1], [2, 3]]),
    ],
)
def test_events_are_read_in_portions_of_so_many_and_of_so_many_bytes(
    sizes: list[int], expected: list[list[int]]
) -> None:
    assert list(portions(enumerate(sizes), most=3, most_size=10)) == expected


def test_no_more_large_events_than_fit_are_in_memory_at_a_time(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rebuild of twenty events of six megabytes each needed 800."""
    fetched = count_fetched(monkeypatch, raw_events)
    monkeypatch.setattr(stored_rows, "BYTES_AT_ONCE", 3 * 10_000)
    large = [prepared(engine, run_event(job=f"job{at}", sql=f"select '{'x' * 10_000}'")) for at in range(8)]
    transact(engine, lambda connection: raw_events.insert_rows(connection, [event.row for event in large]))
    unapplied = raw_events.read_unapplied(engine, before=NOW + timedelta(days=1))
    assert len(next(unapplied)) == 2
    assert fetched == [2]
    assert [len(rows) for rows in unapplied] == [2, 2, 2]
    fetched.clear()
    raw_events.renew_versions(engine, DEMO_TENANT.id)
    assert len(list(raw_events.read_in_version_order(engine, DEMO_TENANT.id))) == 8
    assert fetched == [2, 2, 2, 2] * 2


def test_no_size_is_measured_twice_and_few_by_one_statement(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server reads whole events to tell their sizes: all 500 of a page were measured anew for each portion."""
    measured: list[int] = []
    measure = stored_rows.measure

    def noting(reader: stored_rows.Reader, ids: Sequence[int]) -> Iterator[tuple[int, int]]:
        def fetch(query: Any) -> Any:
            rows = reader(query)
            measured.append(len(rows))
            return rows

        return measure(fetch, ids)

    monkeypatch.setattr(stored_rows, "measure", noting)
    monkeypatch.setattr(stored_rows, "MEASURED_AT_ONCE", 4)
    monkeypatch.setattr(stored_rows, "EVENTS_AT_ONCE", 3)
    events = [prepared(engine, run_event(job=f"job{at}")) for at in range(10)]
    transact(engine, lambda connection: raw_events.insert_rows(connection, [event.row for event in events]))
    unapplied = raw_events.read_unapplied(engine, before=NOW + timedelta(days=1))
    assert len(next(unapplied)) == 3
    assert measured == [4]
    assert [len(rows) for rows in unapplied] == [3, 3, 1]
    assert measured == [4, 4, 2]


def test_rows_of_an_older_release_keep_their_order_until_the_operator_rebuilds(engine: Engine) -> None:
    events = [prepared(engine, run_event(job=f"job{at}", time=NOW.isoformat())) for at in range(3)]
    committer(engine).commit(events)
    new = versions(engine)
    transact(engine, lambda connection: connection.execute(update(lineage_events).values(version=None)))
    old = [stored.event_facts.version for stored in raw_events.read_in_version_order(engine, DEMO_TENANT.id)]
    assert old == sorted(version_of(NOW, event.key.fingerprint) for event in events)
    rebuild_tenant(engine, EmbeddedGraph.on(engine), DEMO_TENANT, keep_unexplained=True)
    assert set(versions(engine)) == set(old)
    rebuild_tenant(engine, EmbeddedGraph.on(engine), DEMO_TENANT)
    assert versions(engine) == new


def test_an_event_from_the_future_is_ordered_by_its_arrival_and_does_not_win_for_ever(engine: Engine) -> None:
    def described(text: str, time: datetime) -> dict[str, Any]:
        event = run_event(time=time.isoformat())
        event["outputs"][0].setdefault("facets", {})["documentation"] = {"description": text}
        return event

    future = prepared(engine, described("from 2099", NOW.replace(year=2099)))
    assert future.ahead
    committer(engine).commit([future])
    assert abs(time_of(future.event_facts.version) - NOW) < timedelta(hours=1)
    committer(engine).commit([prepared(engine, described("true", datetime.now(UTC) + timedelta(minutes=1)))])
    assert any('"description": "true"' in line for line in lines(engine))
    before = lines(engine)
    rebuild_tenant(engine, EmbeddedGraph.on(engine), DEMO_TENANT)
    assert lines(engine) == before
    with engine.connect() as connection:
        assert connection.scalar(select(lineage_events.c.event_time).order_by(lineage_events.c.id)).year == 2099


@pytest.mark.parametrize("ahead", [timedelta(hours=23), timedelta(hours=24), timedelta(hours=24, microseconds=1)])
def test_a_time_counts_as_it_was_sent_until_it_is_more_than_a_day_ahead_of_the_arrival(ahead: timedelta) -> None:
    far = ahead > timedelta(days=1)
    assert is_ahead(NOW + ahead, NOW) is far
    assert time_of(version_at_arrival(NOW + ahead, NOW, "f" * 64)) == (NOW if far else NOW + ahead)


@pytest.mark.parametrize(("hours", "ahead"), [(23, False), (25, True)])
def test_an_event_of_tomorrow_keeps_its_own_time_and_one_of_later_has_that_of_its_arrival(
    engine: Engine, hours: int, ahead: bool
) -> None:
    before = datetime.now(UTC)
    own_time = before + timedelta(hours=hours)
    event = prepared(engine, run_event(time=own_time.isoformat()))
    assert event.ahead is ahead
    committer(engine).commit([event])
    (stored,) = versions(engine)
    assert stored is not None
    ordered_by = time_of(Version(stored))
    if ahead:
        assert before <= ordered_by <= datetime.now(UTC)
    else:
        assert ordered_by == own_time


def test_the_same_payload_has_the_same_version_for_every_tenant(engine: Engine) -> None:
    """So it is its hash that orders events of one time, and not the fingerprint, which holds the tenant's id."""
    other = Tenant(DEMO_TENANT.id + 1, "other", "Other")
    add_tenant(engine, other)
    payload = run_event(time=NOW.isoformat())
    for tenant in (DEMO_TENANT, other):
        committer(engine).commit([prepared(engine, payload, tenant)])
    mine, theirs = versions(engine)
    assert mine == theirs is not None
    with engine.connect() as connection:
        rows = connection.execute(select(lineage_events.c.tenant_id, lineage_events.c.fingerprint)).all()
    assert {row.tenant_id for row in rows} == {DEMO_TENANT.id, other.id}
    assert len({row.fingerprint for row in rows}) == 2


@pytest.mark.parametrize("place", [*EMBEDDED, pytest.param("neo4j", marks=pytest.mark.needs("neo4j", "mysql"))])
def test_two_processes_that_get_an_event_from_the_future_at_once_order_it_alike(
    place: str, open_graphs: Callable[[str], Graph], migrated: dict[str, Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With Neo4j the rows are in MySQL: SQLite has one writer at a time, so that both never miss the other's row."""
    tenant = Deliveries(migrated["mysql" if place == "neo4j" else place], open_graphs(place))
    payload = run_event(time=NOW.replace(year=2099).isoformat())
    events = [tenant.prepare(Arrival(payload, NOW + timedelta(seconds=second))) for second in range(2)]
    claimed = {event.event_facts.version for event in events}
    assert len(claimed) == 2
    both, have_met = threading.Barrier(2, timeout=PATIENCE_S), threading.local()
    find_stored = raw_events.find_stored

    def find_when_both_do(connection: Connection, keys: Sequence[raw_events.EventKey]) -> Any:
        found = find_stored(connection, keys)
        # a transaction may be repeated, after the other process is done
        if not has_one_writer(tenant.engine) and not hasattr(have_met, "other"):
            have_met.other = True
            both.wait()
        return found

    def commit(event: PreparedEvent) -> None:
        process = open_committer(tenant.engine, tenant.graph)
        process.commit([event])
        process.flush()
        process.close()

    try:
        with monkeypatch.context() as met, ThreadPoolExecutor(2) as threads:
            met.setattr(raw_events, "find_stored", find_when_both_do)
            list(threads.map(commit, events))
        with tenant.engine.connect() as connection:
            mine = lineage_events.c.tenant_id == tenant.tenant.id
            (stored,) = connection.scalars(select(lineage_events.c.version).where(mine))
        facts = [str(item) for item in tenant.graph.for_tenant(tenant.tenant.id).stream()]
        assert stored in claimed
        assert any(stored in item for item in facts)
        (losing,) = claimed - {stored}
        assert not any(losing in item for item in facts)
    finally:
        tenant.close()


def test_a_recovery_that_keeps_failing_is_shown_until_it_works_again(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = EmbeddedGraph.on(engine)
    committer(engine).commit([prepared(engine, run_event())])
    transact(engine, lambda connection: rebuild_requests.request_rebuild(connection, [DEMO_TENANT.id]))

    def refuse(*_: object) -> None:
        raise LineageError("out of sort memory")

    with serve_api(engine) as api, monkeypatch.context() as broken:
        broken.setattr(raw_events, "read_in_version_order", refuse)
        for _ in range(2):
            assert api.client.get("/readyz").json()["status"] == "ready"
            with pytest.raises(LineageError):
                recover(engine, graph)
        answer = api.client.get("/readyz")
        assert (answer.status_code, answer.json()["status"]) == (200, "degraded")
        assert "lineage_apply" in answer.json()["checks"]["lineage"]
        assert "platform_lineage_recovery_failures 2.0" in api.client.get("/metrics").text
        check = recovery_outcome(engine)
        assert (check.passed, "out of sort memory" in (check.description or "")) == (False, True)
        broken.undo()
        recover(engine, graph)
        assert api.client.get("/readyz").json() == api.client.get("/readyz").json() | {"status": "ready"}
        assert recovery_outcome(engine).passed
