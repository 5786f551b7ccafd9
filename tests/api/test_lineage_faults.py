"""What clients of the lineage endpoint see when a store hangs, is down or refuses, and when much comes at once."""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from platform_defs.access.principal import Principal
from platform_defs.access.tenants import Tenant
from platform_defs.api.lineage.service import LARGE_BODY, LineageService
from platform_defs.graph.embedded import EmbeddedGraph
from platform_defs.graph.errors import GraphUnavailable, InvalidGraphValue
from platform_defs.graph.neo4j import Neo4jGraph
from platform_defs.lineage.intake import dead_letters
from platform_defs.lineage.intake.intake import Intake, IntakeResult
from platform_defs.lineage.sink import store_health
from platform_defs.lineage.sink.answers import QUEUE_FULL, TOO_LATE
from platform_defs.lineage.sink.lanes import WIDE_FACTS
from tests.api.lineage_client import BACKENDS, Backend, Client
from tests.api.serving import logged_requests
from tests.lineage_events import run_event
from tests.waiting import PATIENCE_S, until


def test_no_small_event_waits_while_large_bodies_are_read(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    prepare = Intake.prepare

    def read(intake: Intake, principal: Principal, raw: Any) -> IntakeResult:
        if len(raw["job"]["name"]) > 200:
            release.wait(PATIENCE_S)
        return prepare(intake, principal, raw)

    monkeypatch.setattr(Intake, "prepare", read)
    large = [run_event(job="large" * 50, sql=f"select '{'x' * LARGE_BODY}'") for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(client.post, event) for event in large]
        until("large bodies to wait", lambda: "platform_http_requests_in_flight 5.0" in client.metrics())
        assert client.post(run_event()).status_code == 201
        assert not any(future.done() for future in waiting)
        release.set()
        assert {future.result().status_code for future in waiting} == {201}


@pytest.mark.parametrize("backend", BACKENDS[:1], indirect=True)
def test_between_the_events_of_a_large_array_other_tenants_have_their_turn(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_end = list[str](), threading.Semaphore(0)
    comes, has_its_turn = threading.Event(), threading.Event()
    prepare, wait_for_turn = Intake.prepare, LineageService.read

    def read(intake: Intake, principal: Principal, raw: Any) -> IntakeResult:
        if raw["job"]["name"] == "of the array":
            begun.append(raw["run"]["runId"])
            may_end.acquire(timeout=PATIENCE_S)
        else:
            has_its_turn.set()
        return prepare(intake, principal, raw)

    def arrive(service: LineageService, principal: Principal, *body: Any, **limit: Any) -> Any:
        if principal.tenant == client.backend.other:
            comes.set()
        return wait_for_turn(service, principal, *body, **limit)

    monkeypatch.setattr(Intake, "prepare", read)
    monkeypatch.setattr(LineageService, "read", arrive)
    text = f"select '{'x' * LARGE_BODY}'"
    events = [run_event(job="of the array", sql=text), *(run_event(job="of the array", sql=None) for _ in range(99))]
    with ThreadPoolExecutor(2) as pool:
        array = pool.submit(client.post, events)
        until("the array to be read", lambda: begun)
        other = pool.submit(client.post, run_event(sql=text), tenant=client.backend.other)
        try:
            assert comes.wait(PATIENCE_S)
            # the array goes on by one event at a look, until the other one's turn has come
            until("the other tenant's turn", lambda: has_its_turn.is_set() or may_end.release())
            assert other.result().status_code == 201
            assert len(begun) < len(events)
        finally:
            may_end.release(len(events))
        assert array.result().json()["accepted"] == len(events)


@pytest.mark.parametrize("backend", BACKENDS[:1], indirect=True)
def test_no_further_event_of_an_array_is_read_once_its_request_is_answered(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    release, begun = threading.Event(), list[str]()
    prepare = Intake.prepare

    def read(intake: Intake, principal: Principal, raw: Any) -> IntakeResult:
        if raw["job"]["name"] == "late":
            begun.append(raw["run"]["runId"])
            release.wait(PATIENCE_S)
        return prepare(intake, principal, raw)

    monkeypatch.setattr(Intake, "prepare", read)
    late = [run_event(job="late") for _ in range(3)]
    with backend.api(lineage_deadline_s=0.5) as client:
        while not begun:  # a busy machine may answer before the first event is read
            answer = client.post(late)
            assert (answer.status_code, answer.json()["message"]) == (503, TOO_LATE.message)
        release.set()
        # the same tenant's next events are read after what was left of the array
        until("an event to be accepted", lambda: client.post(run_event()).status_code == 201)
    assert begun == [late[0]["run"]["runId"]]


# A file of SQLite has one writer at a time.
@pytest.mark.parametrize("backend", BACKENDS[1:], indirect=True)
def test_while_the_wide_event_of_one_tenant_is_written_another_ones_is_accepted(
    client: Client, failing: Callable[[Callable[..., Any]], None]
) -> None:
    written, release = threading.Event(), threading.Event()

    def fault(merge: Any, store: Any, tenant: Tenant, *others: Any) -> Any:
        result = merge(store, tenant, *others)
        if tenant == client.backend.tenant:
            written.set()
            release.wait(PATIENCE_S)
        return result

    failing(fault)
    fields = [{"name": f"c{number}", "type": "int"} for number in range(WIDE_FACTS + 1)]
    wide = run_event()
    wide["outputs"] = [{"namespace": "postgres://h", "name": "d.s.wide", "facets": {"schema": {"fields": fields}}}]
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.post, wide)
        try:
            assert written.wait(PATIENCE_S)
            for _ in range(3):
                assert client.post(run_event(), tenant=client.backend.other).status_code == 201
            assert not waiting.done()
        finally:
            release.set()
        assert waiting.result().status_code == 201


def test_a_full_queue_is_503_unavailable(backend: Backend, failing: Callable[[Callable[..., Any]], None]) -> None:
    release = threading.Event()

    def fault(merge: Any, *arguments: Any) -> Any:
        release.wait(PATIENCE_S)
        return merge(*arguments)

    failing(fault)
    with backend.api(lineage_queue_events=2) as client, ThreadPoolExecutor(1) as pool:
        first = pool.submit(client.post, [run_event(sql=None) for _ in range(2)])
        try:
            until("the queue to be full", lambda: "platform_lineage_queue_events 2.0" in client.metrics())
            for refused in (run_event(), [run_event(), run_event()]):
                answer = client.post(refused)
                assert answer.status_code == 503
                assert QUEUE_FULL.message in answer.text
        finally:
            release.set()
        assert first.result().status_code == 201


def test_a_store_that_is_down_is_503_and_nothing_is_half_acknowledged(
    client: Client,
    failing: Callable[[Callable[..., Any]], None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(store_health, "HOLD_S", 0.0)
    down = True
    asked = 0

    def fault(merge: Any, *arguments: Any) -> Any:
        nonlocal asked
        asked += 1
        if down:
            raise GraphUnavailable("no answer")
        return merge(*arguments)

    def ping(_: Any) -> None:
        if down:
            raise GraphUnavailable("no answer")

    failing(fault)
    for graph in (EmbeddedGraph, Neo4jGraph):
        monkeypatch.setattr(graph, "ping", ping)
    event = run_event()
    answer = client.post(event)
    assert (answer.status_code, answer.json()["status"]) == (503, "unavailable")
    assert answer.headers["Retry-After"] == "1"
    assert answer.json()["message"] == "the graph does not answer; send again later"
    before = asked
    # no store is asked, and no body is read: this one is no event
    assert client.post({"no": "event"}).status_code == 503
    assert asked == before
    # the access log tells the one that was held for the store's return from the one that lost it
    lines = logged_requests(caplog, 2)
    assert [line.get("held") for line in lines] == [None, True]
    assert "platform_lineage_breaker_open 1.0" in client.metrics()
    assert all(row.graph_applied_at is None for row in client.rows())
    down = False
    until("the event to be accepted", lambda: client.post(event).status_code == 201)
    assert len([row for row in client.rows() if row.fingerprint]) == 1
    assert any("OUTPUT_TO" in line for line in client.graph())


@pytest.mark.parametrize("breaks", [False, True])
def test_a_request_is_answered_within_its_deadline_although_a_store_hangs(
    backend: Backend,
    failing: Callable[[Callable[..., Any]], None],
    monkeypatch: pytest.MonkeyPatch,
    breaks: bool,
) -> None:
    release = threading.Event()

    def fault(merge: Any, *arguments: Any) -> Any:
        hung = not release.is_set()
        release.wait(PATIENCE_S)
        if hung and breaks:
            raise GraphUnavailable("the connection is lost")
        return merge(*arguments)

    failing(fault)
    for graph in (EmbeddedGraph, Neo4jGraph):
        monkeypatch.setattr(graph, "ping", lambda _: release.wait(PATIENCE_S))
    with backend.api(lineage_deadline_s=0.5) as client:
        late = run_event()

        def refusal(event: dict[str, Any]) -> str:
            answer = client.post(event)
            assert answer.status_code == 503
            return str(answer.json()["message"])

        try:
            assert refusal(late) == TOO_LATE.message
            # then at once, not at the deadline; a busy machine may miss the deadline of a second one first
            until("events to be refused", lambda: refusal(run_event()).endswith("not answer; send again later"))
            assert not release.is_set()
        finally:
            release.set()
        # Sent again, while or after the group of the first request is written to its end, to a process that has more
        # time than half a second: it is stored once.
        with backend.api() as patient:
            until("the event to be accepted", lambda: patient.post(late).status_code == 201)
        assert [row.run_uuid for row in client.rows()].count(late["run"]["runId"]) == 1
        assert any("OUTPUT_TO" in line for line in client.graph())


def test_a_poison_event_does_not_fail_its_neighbours(
    client: Client, failing: Callable[[Callable[..., Any]], None]
) -> None:
    def fault(merge: Any, store: Any, tenant: Any, events: Any, *others: Any) -> Any:
        if any("poison" in repr(event.facts) for event in events):
            raise InvalidGraphValue("props.name", "expected something else")
        return merge(store, tenant, events, *others)

    failing(fault)
    events = [run_event(job=f"good{index}", sql=None) for index in range(5)]
    events.insert(2, run_event(job="poison", writes=("mart.poison",)))
    answer = client.post(events)
    assert answer.status_code == 207
    assert answer.json()["accepted"] == 5
    assert [failure["index"] for failure in answer.json()["failed"]] == [2]
    assert sorted(row.job_name for row in client.rows()) == [f"good{index}" for index in range(5)]
    (letter,) = dead_letters.list_letters(client.engine)
    assert "props.name" in letter.reason


@pytest.mark.parametrize("alone", [False, True])
def test_an_event_that_takes_too_long_is_503_and_its_neighbours_are_not(
    backend: Backend, failing: Callable[[Callable[..., Any]], None], alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The deadline is out of reach also for a busy machine; what is slow is a small share of it.
    monkeypatch.setattr(store_health, "SLOW_SHARE", 0.01)
    monkeypatch.setattr(store_health, "SLOW_PAUSE_S", PATIENCE_S)
    tries = 0

    def fault(merge: Any, store: Any, tenant: Any, events: Any, *others: Any) -> Any:
        nonlocal tries
        if any("wide" in repr(event.facts) for event in events):
            tries += 1
            threading.Event().wait(0.65)  # more than SLOW_SHARE of the request's deadline
            raise GraphUnavailable("took too long")
        return merge(store, tenant, events, *others)

    failing(fault)
    wide = run_event(writes=("mart.wide",), sql="select '" + "x" * 20_000 + "'")
    good = [run_event(job=f"good{index}", sql=None) for index in range(3)]
    with backend.api() as client:
        for _ in range(3):  # clients retry
            answers = [client.post(wide), client.post(good)] if alone else [client.post([*good, wide])]
            assert not any("not answer" in answer.text for answer in answers)
            assert answers[0].status_code == 503
        assert answers[-1].json()["accepted"] == 3
        assert tries == (1 if alone else 2)
        assert "platform_lineage_breaker_open 0.0" in client.metrics()
