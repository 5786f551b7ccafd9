"""The version of an event is a column: decided once, the same for every process, and cheap to page by."""

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from sqlalchemy import Engine, select, update

from assets.lineage import recovery_outcome
from platform_defs.access.principal import Principal, SourceType
from platform_defs.access.tenants import DEMO_TENANT, add_tenant
from platform_defs.graph.embedded import EmbeddedGraph
from platform_defs.graph.text import graph_lines
from platform_defs.lineage.errors import LineageError
from platform_defs.lineage.intake.intake import Intake
from platform_defs.lineage.intake.known_tenants import KnownTenants
from platform_defs.lineage.sink import raw_events
from platform_defs.lineage.sink.commit import EmbeddedCommitter
from platform_defs.lineage.sink.metrics import SinkMetrics
from platform_defs.lineage.sink.pending import PreparedEvent
from platform_defs.lineage.upkeep import rebuild_requests
from platform_defs.lineage.upkeep.recovery import rebuild_tenant, recover
from platform_defs.lineage.version import time_of, version_of
from platform_defs.store.engine import transact
from platform_defs.store.tables.lineage import lineage_events
from tests.api.serving import serve_api
from tests.lineage_events import run_event

SOURCE = Principal("key", "spark", frozenset(), SourceType.COMPUTE, DEMO_TENANT)
NOW = datetime.now(UTC)
MEBIBYTE = 1024 * 1024


@pytest.fixture
def engine(engine: Engine) -> Engine:
    add_tenant(engine, DEMO_TENANT)
    return engine


def prepared(engine: Engine, payload: dict[str, Any]) -> PreparedEvent:
    return Intake(KnownTenants(engine)).prepare(SOURCE, payload).prepared


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
    monkeypatch.setattr(raw_events, "EVENTS_AT_ONCE", 3)
    times = [NOW - timedelta(minutes=minute % 5) for minute in range(11)]
    events = [prepared(engine, run_event(job=f"job{at}", time=time.isoformat())) for at, time in enumerate(times)]
    committer(engine).commit(events)
    read = [stored.event_facts.version for stored in raw_events.read_in_version_order(engine, DEMO_TENANT.id)]
    assert read == sorted(event.event_facts.version for event in events)


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


def test_two_processes_that_get_an_event_from_the_future_at_once_order_it_alike(engine: Engine) -> None:
    payload = run_event(time=NOW.replace(year=2099).isoformat())
    mine, theirs = prepared(engine, payload), prepared(engine, payload)
    assert mine.event_facts.version != theirs.event_facts.version
    threads = [threading.Thread(target=committer(engine).commit, args=([one],)) for one in (mine, theirs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (stored,) = versions(engine)
    facts = [stamps for line in EmbeddedGraph.on(engine).for_tenant(DEMO_TENANT.id).stream() if (stamps := str(line))]
    assert stored is not None
    assert any(stored in line for line in facts)
    losing = ({mine.event_facts.version, theirs.event_facts.version} - {stored}).pop()
    assert not any(losing in line for line in facts)


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
