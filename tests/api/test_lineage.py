"""POST /api/openlineage as clients see it: every answer, and which rows, nodes and dead letters it leaves."""

import asyncio
import gzip
import json
import threading
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import httpx
import pytest
from sqlalchemy import update

from platform_defs.access.principal import SourceType
from platform_defs.access.tenants import Tenant, find_tenant
from platform_defs.api.lineage import router
from platform_defs.api.lineage.service import MAX_LETTERS
from platform_defs.lineage.intake import dead_letters
from platform_defs.lineage.sink.apply import ApplyResult
from platform_defs.lineage.sink.rows import raw_events
from platform_defs.lineage.upkeep import rebuild_requests
from platform_defs.lineage.upkeep.recovery import recover
from platform_defs.store.errors import StoreUnavailable
from platform_defs.store.tables.lineage import lineage_dead_letter, lineage_events, lineage_sql, lineage_sql_run
from tests.api.lineage_client import PATH, Backend, Client
from tests.lineage_events import create_table, run_event
from tests.waiting import PATIENCE_S, until


def test_a_run_event_is_stored_shown_in_the_graph_and_answered_as_the_wire_format_says(client: Client) -> None:
    event = run_event()
    answer = client.post(event)
    assert answer.status_code == 201
    assert answer.json() == {
        "status": "accepted",
        "eventType": "RUN_EVENT",
        "runId": event["run"]["runId"],
        "tenantId": client.backend.tenant.id,
    }
    (row,) = client.rows()
    assert (row.tenant_code, row.job_name, row.event_type) == (client.backend.tenant.code, "daily", "COMPLETE")
    assert row.event == event
    edges = [json.loads(line) for line in client.graph() if '"edge"' in line]
    assert {"INPUT_OF", "OUTPUT_TO"} <= {edge["edge"] for edge in edges}


def test_an_event_that_comes_twice_is_stored_once_and_answered_201_both_times(client: Client) -> None:
    event = run_event()
    assert client.post(event).status_code == 201
    before = client.graph()
    assert client.post(event).status_code == 201
    assert client.post([event, event]).status_code == 201
    assert len(client.rows()) == 1
    assert client.graph() == before


def test_executions_are_counted_by_run_not_by_delivery(client: Client) -> None:
    first, second = run_event(), run_event(time="2026-03-01T11:00:00Z")
    started = dict(first, eventType="START", eventTime="2026-03-01T09:59:00Z")
    for event in (first, started, first, second, second):
        assert client.post(event).status_code == 201
    (node,) = [json.loads(line) for line in client.graph() if '"node"' in line and '"SQL"' in line]
    assert node["props"]["executionCount"] == 2
    assert len(client.rows(lineage_sql_run)) == 2
    assert [row.runs for row in client.rows(lineage_sql)] == [2]


def test_gzip_is_understood(client: Client) -> None:
    assert client.post(gzip.compress(json.dumps(run_event()).encode())).status_code == 201


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"eventTime": None}, "eventTime"),
        ({"eventTime": "yesterday"}, "eventTime"),
        ({"run": {}}, "run.runId"),
        ({"job": {"namespace": "x"}}, "job.name"),
        ({"job": {"namespace": "x", "name": "y" * 256}}, "job.name"),
        ({"producer": "a\ud800b"}, "producer"),
    ],
)
def test_what_would_lose_meaning_is_400_and_names_the_field(client: Client, change: Any, field: str) -> None:
    answer = client.post(json.dumps(run_event() | change).encode())
    assert answer.status_code == 400
    assert answer.json()["status"] == "bad_request"
    assert field in answer.json()["message"]
    assert client.rows() == []
    (letter,) = client.rows(lineage_dead_letter)
    assert field in letter.reason


def test_a_body_that_is_no_json_is_400_and_kept_as_it_came(client: Client) -> None:
    answer = client.post(b'{"eventTime": ')
    assert answer.status_code == 400
    (letter,) = dead_letters.list_letters(client.engine)
    assert letter.payload == '{"eventTime": '


def test_an_event_larger_than_a_group_is_413_without_retry_after(backend: Backend) -> None:
    with backend.api(lineage_group_bytes=4096) as client:
        answer = client.post(run_event(sql="select '" + "x" * 8192 + "'"))
        assert answer.status_code == 413
        assert "Retry-After" not in answer.headers
        assert client.rows() == []


# -- arrays ---------------------------------------------------------------------------------------------------------


def test_an_array_of_good_events_is_201(client: Client) -> None:
    answer = client.post([run_event(), run_event()])
    assert (answer.status_code, answer.json()) == (201, {"status": "accepted", "accepted": 2, "failed": []})
    assert len(client.rows()) == 2


def test_an_array_in_which_some_fail_is_207_and_says_which(client: Client) -> None:
    answer = client.post([run_event(), {"eventTime": "2026-01-01T00:00:00Z"}, run_event()])
    assert answer.status_code == 207
    body = answer.json()
    assert body["accepted"] == 2
    assert [(failure["index"], failure["status"]) for failure in body["failed"]] == [(1, "bad_request")]
    assert len(client.rows()) == 2
    assert len(client.rows(lineage_dead_letter)) == 1


def test_an_array_of_nothing_but_bad_events_is_400(client: Client) -> None:
    answer = client.post([{}, 7])
    assert answer.status_code == 400
    assert [failure["index"] for failure in answer.json()["failed"]] == [0, 1]


def test_of_many_refused_events_all_are_answered_and_some_are_kept(client: Client) -> None:
    count = MAX_LETTERS + 20
    answer = client.post([{"eventTime": index} for index in range(count)])
    assert (answer.status_code, len(answer.json()["failed"])) == (400, count)
    assert len(client.rows(lineage_dead_letter)) == MAX_LETTERS
    assert _metric(client.metrics(), "platform_lineage_dead_letters_omitted_total") == "20.0"


def test_what_is_refused_again_is_kept_once_for_each_source(client: Client) -> None:
    for _ in range(2):
        client.post([0] * 3)
        client.post([0], tenant=client.backend.other)
    assert [letter.payload for letter in dead_letters.list_letters(client.engine)] == ["0", "0"]
    for letter in dead_letters.list_letters(client.engine):
        dead_letters.close_letter(client.engine, letter.id)
    client.post([0])
    assert len(dead_letters.list_letters(client.engine)) == 1


def test_refused_events_count_against_the_rate_of_their_tenant(backend: Backend) -> None:
    with backend.api(lineage_tenant_rate=0.001, lineage_tenant_burst=2) as client:
        answer = client.post([1, 2, 3])
        statuses = [failure["status"] for failure in answer.json()["failed"]]
        assert statuses == ["bad_request", "bad_request", "rate_limited"]
        assert len(client.rows(lineage_dead_letter)) == 2
        for content in (b"no json", run_event()):
            answer = client.post(content)
            assert (answer.status_code, answer.json()["status"]) == (503, "rate_limited")


def test_an_array_whose_failures_may_all_be_sent_again_is_503(backend: Backend) -> None:
    with backend.api(lineage_tenant_rate=0.001, lineage_tenant_burst=2) as client:
        events = [run_event() for _ in range(3)]
        answer = client.post(events)
        assert answer.status_code == 503
        assert answer.headers["Retry-After"] == "1"
        assert answer.json()["accepted"] == 2
        assert [failure["status"] for failure in answer.json()["failed"]] == ["rate_limited"]


# -- tenants --------------------------------------------------------------------------------------------------------


def test_gravitino_introduces_its_tenant_and_compute_events_join_it(client: Client) -> None:
    new = Tenant(client.backend.tenant.id + 2, f"n{client.backend.tenant.id}", "New")
    answer = client.post(create_table((new.id, new.code, new.name)), source=SourceType.GRAVITINO, tenant=None)
    assert answer.status_code == 201, answer.text
    assert find_tenant(client.engine, new.id) == new
    drop = create_table((new.id, "", ""), operation="drop_table", facet={}, time="2026-03-01T11:00:00Z")
    assert client.post(drop, source=SourceType.GRAVITINO, tenant=None).status_code == 201


def test_every_rule_about_tenants_has_its_own_answer(client: Client) -> None:
    tenant, other = client.backend.tenant, client.backend.other
    named = (tenant.id, tenant.code, tenant.name)
    strange = (tenant.id + 2, other.code, "Strange")

    def refused(event: Any, source: SourceType | None, owner: Tenant | None) -> tuple[int, str]:
        answer = client.post(event, source=source, tenant=owner)
        return answer.status_code, answer.json()["message"]

    gravitino, compute = SourceType.GRAVITINO, SourceType.COMPUTE
    without = create_table(named, facet={})
    without["job"]["namespace"] = "gravitino://lake"
    without["outputs"][0]["namespace"] = "gravitino://lake/hive"
    answers = [
        refused(without, gravitino, None),
        refused(create_table(named), gravitino, other),
        refused(create_table(named), compute, other),
        refused(run_event(), compute, None),
        refused(create_table(named, namespace_tenant=other.id), gravitino, None),
        refused(create_table(strange), gravitino, None),
    ]
    assert [code for code, _ in answers] == [400, 403, 403, 400, 400, 400]
    assert len({message for _, message in answers}) == len(answers)
    assert "tenantCode" in answers[-1][1]
    assert client.rows() == []
    assert len(client.rows(lineage_dead_letter)) == len(answers)
    assert client.graph() == client.graph(other) == []


def test_the_same_names_under_two_tenants_never_meet(client: Client) -> None:
    tenant, other = client.backend.tenant, client.backend.other
    for owner in (tenant, other):
        assert client.post(run_event(run=str(uuid.uuid4())), tenant=owner).status_code == 201
    hostile = create_table((str(other.id), other.code, other.name))  # type: ignore[arg-type]
    assert client.post(hostile, source=SourceType.GRAVITINO, tenant=tenant).status_code == 403
    for owner in (tenant, other):
        lines = [json.loads(line) for line in client.graph(owner)]
        ids = {line["id"] for line in lines if "node" in line}
        assert {end for line in lines if "edge" in line for end in (line["from"], line["to"])} <= ids
        assert [line["id"] for line in lines if line.get("node") == ["Tenant"]] == [str(owner.id)]
    counts = {row.tenant_id for row in client.rows()}
    assert counts == {tenant.id, other.id}


# -- load and failure -----------------------------------------------------------------------------------------------


def test_many_clients_at_once_share_groups(client: Client, failing: Callable[[Callable[..., Any]], None]) -> None:
    events = [run_event(job=f"job{index}", sql=None) for index in range(120)]
    is_first = threading.Semaphore(1)

    def once_all_are_there(merge: Any, *arguments: Any) -> Any:
        if is_first.acquire(blocking=False):
            held = "platform_lineage_queue_events"
            until("the others to gather", lambda: float(_metric(client.metrics(), held)) == len(events))
        return merge(*arguments)

    failing(once_all_are_there)
    url = client.running.url + PATH
    headers = {"Authorization": f"Bearer {client.key(SourceType.COMPUTE, client.backend.tenant)}"}

    async def send() -> list[int]:
        unlimited = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE_S, limits=unlimited) as http:
            answers = await asyncio.gather(*(http.post(url, json=event, headers=headers) for event in events))
        return [answer.status_code for answer in answers]

    assert set(asyncio.run(send())) == {201}
    assert len(client.rows()) == 120
    text = client.running.client.get("/metrics").text
    groups = float(_metric(text, "platform_lineage_group_events_count"))
    assert groups < 10


def test_a_tenant_beyond_its_rate_is_told_to_come_back(backend: Backend) -> None:
    with backend.api(lineage_tenant_rate=0.001, lineage_tenant_burst=1) as client:
        assert client.post(run_event()).status_code == 201
        answer = client.post(run_event())
        assert (answer.status_code, answer.json()["status"]) == (503, "rate_limited")
        assert answer.headers["Retry-After"] == "1"
        assert client.post(run_event(), tenant=backend.other).status_code == 201
        text = client.running.client.get("/metrics").text
        labels = f'outcome="rate_limited",tenant="{backend.tenant.id}"'
        assert _metric(text, f"platform_lineage_events_total{{{labels}}}") == "1.0"


def test_an_array_larger_than_the_queue_is_taken_in_waves(backend: Backend) -> None:
    with backend.api(lineage_queue_events=2, lineage_tenant_rate=0.001, lineage_tenant_burst=5) as client:
        answer = client.post([run_event(sql=None) for _ in range(5)])
        assert (answer.status_code, answer.json()["accepted"]) == (201, 5)
        assert len(client.rows()) == 5


def test_raw_events_that_the_graph_lacks_are_applied_by_the_recovery(client: Client) -> None:
    events = [run_event(job=f"job{index}") for index in range(3)]
    assert client.post(events).status_code == 201
    complete = client.graph()
    graph = client.running.app.state.graph
    until("the graph to have all", lambda: all(row.graph_applied_at for row in client.rows()))
    graph.for_tenant(client.backend.tenant.id).clear()
    with client.engine.begin() as connection:
        connection.execute(update(lineage_events).values(graph_applied_at=None))
    assert recover(client.engine, graph, patience=timedelta(seconds=-60)).applied == 3
    assert client.graph() == complete
    assert all(row.graph_applied_at is not None for row in client.rows())
    assert recover(client.engine, graph, patience=timedelta(seconds=-60)).applied == 0


def test_an_event_that_the_graph_cannot_place_makes_it_rebuilt_before_the_answer(
    client: Client, failing: Callable[[Callable[..., Any]], None]
) -> None:
    assert client.post(run_event()).status_code == 201
    failing(lambda merge, *arguments: ApplyResult(True, 0))
    assert client.post(run_event(job="late", sql=None)).status_code == 201
    assert "platform_lineage_rebuilds_requested_total{" in client.metrics()
    assert rebuild_requests.list_open(client.engine) == []
    assert any('"late"' in line for line in client.graph())
    until("the graph to have all", lambda: all(row.graph_applied_at for row in client.rows()))


def test_the_database_away_is_503(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*arguments: Any, **options: Any) -> Any:
        raise StoreUnavailable("no answer")

    with backend.api() as client:
        client.post(run_event())
        monkeypatch.setattr(raw_events, "find_stored", away)
        answer = client.post(run_event())
        assert (answer.status_code, answer.json()["status"]) == (503, "unavailable")
        assert len(client.rows()) == 1


def test_an_unknown_operation_is_stored_counted_and_changes_no_graph(client: Client) -> None:
    tenant = client.backend.tenant
    event = create_table((tenant.id, tenant.code, tenant.name), operation="fold_table")
    assert client.post(event, source=SourceType.GRAVITINO, tenant=None).status_code == 201
    assert len(client.rows()) == 1
    assert not [line for line in client.graph() if '"Table"' in line]
    text = client.running.client.get("/metrics").text
    assert _metric(text, f'platform_lineage_unknown_operations_total{{tenant="{tenant.id}"}}') == "1.0"


def test_an_event_from_the_future_is_kept_as_sent_counted_and_logged(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    tenant, event = client.backend.tenant.id, run_event(time="2999-01-01T00:00:00Z")
    assert client.post([run_event(), event]).status_code == 201
    assert event in [row.event for row in client.rows()]
    name = f'platform_lineage_events_ahead_total{{tenant="{tenant}"}}'
    assert _metric(client.metrics(), name) == "1.0"
    (warning,) = [record for record in caplog.records if "claims the time" in record.getMessage()]
    assert (warning.name, warning.levelname) == (router.__name__, "WARNING")
    assert warning.getMessage() == (
        f"an event of tenant {tenant} (producer {event['producer']}, job daily) claims the time"
        " 2999-01-01T00:00:00+00:00; it is ordered by its arrival"
    )


def test_metrics_show_throughput_stores_queue_and_what_waits(client: Client) -> None:
    client.post(run_event())
    # a collector that the machine keeps waiting is left out of an answer
    text = until(
        "all metrics", lambda: all_of if "platform_lineage_unapplied_events " in (all_of := client.metrics()) else ""
    )
    tenant = client.backend.tenant.id
    assert _metric(text, f'platform_lineage_events_total{{outcome="accepted",tenant="{tenant}"}}') == "1.0"
    for store in ("raw", "graph"):
        assert _metric(text, f'platform_lineage_writes_total{{outcome="ok",store="{store}"}}') == "1.0"
    for name in (
        "platform_lineage_queue_events",
        "platform_lineage_breaker_open",
        "platform_lineage_pool_connections",
        "platform_lineage_unapplied_events",
        "platform_lineage_observation_lag_seconds",
    ):
        assert _metric(text, name)


def _metric(text: str, name: str) -> str:
    return next(line.rsplit(" ", 1)[1] for line in text.splitlines() if line.startswith(f"{name} "))
