"""Chains, jobs and runs over HTTP: the paths, codes and messages that clients of the seed's API know."""

import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from sqlalchemy import Engine, func, select, update

from platform_defs.access.keys import issue_key
from platform_defs.access.principal import ALL_SCOPES
from platform_defs.api.chains.metrics import ChainsCollector
from platform_defs.chains.states import NodeStatus, RunStatus
from platform_defs.store.tables.chains import job_audit, job_run, job_run_node
from platform_defs.store.tables.work import work
from tests.api.serving import Api
from tests.chains.making import LINE, dag, node, put

Call = Callable[..., httpx.Response]
CHAINS, JOBS, RUNS = "/api/v1/chains", "/api/v1/jobs", "/api/v1/runs"
CHAIN_FIELDS = {"chainId", "name", "description", "enabled", "version", "dagJson", "createdAt", "updatedAt"}


@pytest.fixture
def call(api: Api, authorization: dict[str, str]) -> Call:
    def send(method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        content = None if body is None else json.dumps(body).encode()
        return api.client.request(method, path, content=content, headers={**authorization, **named})

    return send


def new_chain(call: Call, content: Any = LINE, name: str = "nightly", **fields: Any) -> dict[str, Any]:
    answer = call("POST", CHAINS, {"name": name, "dagJson": json.dumps(content), **fields})
    assert answer.status_code == 200, answer.text
    made: dict[str, Any] = answer.json()
    return made


def new_run(call: Call, content: Any = LINE) -> str:
    answer = call("POST", f"{CHAINS}/{new_chain(call, content)['chainId']}:start")
    assert answer.status_code == 200, answer.text
    run_id: str = answer.json()["runId"]
    return run_id


def refusal(answer: httpx.Response) -> tuple[int, str, str]:
    body = answer.json()
    assert set(body) == {"error", "errorCode"}
    return answer.status_code, body["error"], body["errorCode"]


# -- chains ---------------------------------------------------------------------------------------------------------


def test_a_chain_from_post_to_disable(call: Call) -> None:
    made = new_chain(call, description="d")
    assert set(made) == CHAIN_FIELDS
    assert (made["version"], made["enabled"], made["description"]) == (1, True, "d")
    assert isinstance(made["dagJson"], str)
    assert json.loads(made["dagJson"]) == LINE
    one = f"{CHAINS}/{made['chainId']}"
    assert call("GET", one).json() == made
    changed = call("PUT", one, {**made, "name": "later", "dagJson": dag(node("z"))})
    assert changed.status_code == 200, changed.text
    assert (changed.json()["version"], changed.json()["name"]) == (2, "later")
    assert json.loads(changed.json()["dagJson"]) == dag(node("z"))
    assert refusal(call("PUT", one, made)) == (409, "chain version conflict or not found", "VERSION_CONFLICT")
    for _ in range(2):
        disabled = call("POST", f"{one}:disable")
        assert (disabled.status_code, disabled.json()["enabled"]) == (200, False)
    assert refusal(call("POST", f"{one}:start")) == (409, "chain is disabled", "CHAIN_DISABLED")
    assert call("POST", f"{one}:enable").json()["enabled"] is True
    page = call("GET", f"{CHAINS}?page=1&size=20&keyword=&enabled=").json()
    assert (page["page"], page["size"], page["total"]) == (1, 20, 1)
    assert set(page["items"][0]) == CHAIN_FIELDS - {"dagJson"}
    assert call("GET", f"{CHAINS}?keyword=LATER&enabled=true").json()["total"] == 1
    assert call("GET", f"{CHAINS}?enabled=false").json() == {"items": [], "page": 1, "size": 20, "total": 0}


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": None}, "name: "),
        ({"name": "  "}, "name: expected a text that is not blank"),
        ({"name": "x" * 129}, "name: String should have at most 128 characters"),
        ({"name": "a\nb"}, "name: expected one line of printable characters"),
        ({"name": "\ud800"}, "name: "),
        ({"name": "taken"}, "chain name already exists: taken"),
        ({"description": 7}, "description: "),
        ({"dagJson": None}, "dagJson: expected a JSON object with nodes, got nothing"),
        ({"dagJson": ""}, "dagJson: expected valid JSON"),
        ({"dagJson": {"nodes": []}}, "dag must have nodes"),
        ({"dagJson": '{"nodes": []}'}, "dag must have nodes"),
        ({"dagJson": dag(node("a", "b"), node("b", "a"))}, "dag must not have a cycle, got "),
        ({"enabled": "yes"}, "enabled: "),
        ({"dagjson": {}}, "dagjson: this field is not known"),
    ],
)
def test_a_refused_chain_says_why(call: Call, change: dict[str, Any], message: str) -> None:
    new_chain(call, name="taken")
    status, error, code = refusal(call("POST", CHAINS, {"name": "n", "dagJson": LINE, **change}))
    assert (status, error.startswith(message)) == (400, True), error
    assert re.fullmatch("[A-Z_]+", code)
    assert call("GET", CHAINS).json()["total"] == 1


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_all_problems_of_a_dag_are_in_one_answer(call: Call) -> None:
    wrong = dag(node("a", "x", type="nope"), node("a", retry={"maxAttempts": 0}))
    status, error, code = refusal(call("POST", CHAINS, {"name": "n", "dagJson": wrong}))
    assert (status, code, len(error.split("; "))) == (400, "CHAIN_INVALID", 4), error


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    "query", ["page=0", "page=-1", "size=0", "size=201", "page=x", "enabled=maybe", "page=99999999999999999999"]
)
def test_pages_out_of_bounds_are_400(call: Call, query: str) -> None:
    for path in (CHAINS, JOBS):
        status, error, code = refusal(call("GET", f"{path}?{query}"))
        assert (status, code) == (400, "BAD_REQUEST")
        assert error.startswith(query.partition("=")[0])
    assert call("GET", f"{CHAINS}?page=1000000000&size=200").json()["items"] == []


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("method", "path", "message", "code"),
    [
        ("GET", f"{CHAINS}/no", "chain not found: no", "CHAIN_NOT_FOUND"),
        ("PUT", f"{CHAINS}/no", "chain not found: no", "CHAIN_NOT_FOUND"),
        ("POST", f"{CHAINS}/no:enable", "chain not found: no", "CHAIN_NOT_FOUND"),
        ("POST", f"{CHAINS}/no:disable", "chain not found: no", "CHAIN_NOT_FOUND"),
        ("POST", f"{CHAINS}/no:start", "chain not found: no", "CHAIN_NOT_FOUND"),
        ("GET", f"{JOBS}/no", "job not found: no", "JOB_NOT_FOUND"),
        ("POST", f"{JOBS}/no:start", "job not found: no", "JOB_NOT_FOUND"),
        ("GET", f"{RUNS}/no", "run not found: no", "RUN_NOT_FOUND"),
        ("GET", f"{RUNS}/no/nodes", "run not found: no", "RUN_NOT_FOUND"),
        ("POST", f"{RUNS}/no:stop", "run not found: no", "RUN_NOT_FOUND"),
        ("POST", f"{RUNS}/no/nodes/a:retry", "run not found: no", "RUN_NOT_FOUND"),
        ("POST", f"{RUNS}/no/nodes/a:complete", "run not found: no", "RUN_NOT_FOUND"),
    ],
)
def test_what_does_not_exist_is_400(call: Call, method: str, path: str, message: str, code: str) -> None:
    body = {"name": "n", "dagJson": LINE, "version": 1} if method == "PUT" else None
    assert refusal(call(method, path, body)) == (400, message, code)


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_a_name_where_an_id_is_wanted_is_told_the_id(call: Call) -> None:
    made = new_chain(call, name="daily")
    status, error, code = refusal(call("POST", f"{CHAINS}/daily:start", None))
    assert (status, code) == (400, "CHAIN_NOT_FOUND")
    assert error == f"chain not found: daily; expected an id, and the chain of this name has the id {made['chainId']}"


def test_of_two_updates_with_one_version_one_is_409(call: Call) -> None:
    made = new_chain(call)
    with ThreadPoolExecutor(4) as pool:
        bodies = [{**made, "description": str(number)} for number in range(4)]
        codes = list(pool.map(lambda body: call("PUT", f"{CHAINS}/{made['chainId']}", body).status_code, bodies))
    assert sorted(codes) == [200, 409, 409, 409]
    assert call("GET", f"{CHAINS}/{made['chainId']}").json()["version"] == 2


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_an_update_cannot_enable(call: Call) -> None:
    made = new_chain(call)
    status, error, _ = refusal(call("PUT", f"{CHAINS}/{made['chainId']}", {**made, "enabled": False}))
    assert (status, error) == (400, "enabled: expected true or none at all; :enable and :disable change it")
    for version in (0, "1", True, None, 2**70):
        status, error, _ = refusal(call("PUT", f"{CHAINS}/{made['chainId']}", {**made, "version": version}))
        assert (status, error.startswith("version: ")) == (400, True)


# -- runs -----------------------------------------------------------------------------------------------------------


def test_a_run_is_started_once_per_key(call: Call, engine: Engine) -> None:
    start = f"{CHAINS}/{new_chain(call)['chainId']}:start"
    body = {"params": {"day": "20251219"}}
    with ThreadPoolExecutor(25) as pool:
        answers = list(pool.map(lambda _: call("POST", start, body, Idempotency_Key="k1"), range(50)))
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.json()["runId"] for answer in answers}) == 1
    with engine.connect() as connection:
        assert connection.execute(select(func.count()).select_from(job_run)).scalar_one() == 1
    status, error, code = refusal(call("POST", start, {"params": {"day": "x"}}, Idempotency_Key="k1"))
    assert (status, code) == (409, "IDEMPOTENCY_KEY_REUSED")
    assert "'k1'" in error
    other = issue_key(engine, "other", ALL_SCOPES)
    theirs = call("POST", start, {"params": {}}, Idempotency_Key="k1", Authorization=other)
    assert theirs.json()["runId"] != answers[0].json()["runId"]
    assert call("POST", start).json()["runId"] != call("POST", start).json()["runId"]


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_keys_of_creations_and_malformed_keys(call: Call) -> None:
    body = {"name": "n", "dagJson": LINE}
    made = [call("POST", CHAINS, body, Idempotency_Key="c").json() for _ in range(2)]
    assert made[0] == made[1]
    assert refusal(call("POST", CHAINS, {**body, "name": "m"}, Idempotency_Key="c"))[0] == 409
    job = {"name": "j", "type": "print", "configJson": {}}
    assert call("POST", JOBS, job, Idempotency_Key="c").json() == call("POST", JOBS, job, Idempotency_Key="c").json()
    for key in ("", "x" * 256):
        assert refusal(call("POST", CHAINS, body, Idempotency_Key=key))[:2] == (
            400,
            "Idempotency-Key: expected 1 to 255 printable ASCII characters",
        )


def test_a_run_and_its_nodes_are_read(call: Call) -> None:
    run_id = new_run(call)
    run = call("GET", f"{RUNS}/{run_id}").json()
    assert set(run) == {"runId", "chainId", "jobName", "status", "dagJson", "createdAt", "updatedAt"}
    assert (run["runId"], run["jobName"], run["status"]) == (run_id, "nightly", "PENDING")
    assert [one["id"] for one in json.loads(run["dagJson"])["nodes"]] == ["a", "b", "c"]
    nodes = call("GET", f"{RUNS}/{run_id}/nodes").json()
    fresh = dict.fromkeys(["lastError", "artifactJson", "startedAt", "endedAt"])
    assert nodes == [{"nodeId": name, "status": "PENDING", "attempt": 0, **fresh} for name in "abc"]


def test_operations_answer_with_the_nodes_state(call: Call, engine: Engine) -> None:
    run_id = new_run(call)
    one = f"{RUNS}/{run_id}/nodes"
    assert refusal(call("POST", f"{one}/a:complete"))[::2] == (409, "NODE_NOT_COMPLETABLE")
    put(engine, run_id, RunStatus.FAILED, a=NodeStatus.FAILED, b=NodeStatus.SKIPPED, c=NodeStatus.SKIPPED)
    retried = call("POST", f"{one}/a:retry", {"reason": "again", "clearCheckpoint": True})
    assert retried.json() == {"runId": run_id, "nodeId": "a", "status": "RETRYING", "attempt": 2}
    assert refusal(call("POST", f"{one}/a:retry"))[::2] == (409, "NODE_NOT_RETRYABLE")
    put(engine, run_id, a=NodeStatus.RUNNING)
    completed = call("POST", f"{one}/a:complete", {"artifactJson": '{"n": 1}', "reason": "by hand"})
    assert completed.json() == {"runId": run_id, "nodeId": "a", "status": "SUCCESS", "attempt": 1}
    again = call("POST", f"{one}/a:complete", {"artifactJson": {"n": 2}})
    assert (again.status_code, again.json()) == (200, completed.json())
    assert json.loads(call("GET", one).json()[0]["artifactJson"]) == {"n": 1}
    assert refusal(call("POST", f"{one}/x:retry"))[::2] == (400, "NODE_NOT_FOUND")
    assert refusal(call("POST", f"{one}/a:complete", {"artifactJson": "{"}))[0] == 400
    assert refusal(call("POST", f"{one}/a:retry", [1]))[1] == "body: expected a JSON object"
    stopped = call("POST", f"{RUNS}/{run_id}:stop", {"reason": "enough"})
    assert stopped.json() == {"runId": run_id, "status": "STOPPING"}
    assert call("GET", f"{RUNS}/{run_id}").json()["status"] == "STOPPED"
    assert call("POST", f"{RUNS}/{run_id}:stop").json() == {"runId": run_id, "status": "STOPPED"}
    with engine.connect() as connection:
        rows = connection.execute(select(job_audit.c.action, job_audit.c.actor, job_audit.c.reason)).all()
    assert [tuple(row) for row in rows[1:]] == [
        ("run.start", "all", None),
        ("node.retry", "all", "again"),
        ("node.complete", "all", "by hand"),
        ("run.stop", "all", "enough"),
    ]


def test_an_ended_run_cannot_be_stopped(call: Call, engine: Engine) -> None:
    run_id = new_run(call)
    put(engine, run_id, RunStatus.SUCCESS)
    assert refusal(call("POST", f"{RUNS}/{run_id}:stop")) == (409, "run has already ended: SUCCESS", "RUN_ENDED")


# -- jobs -----------------------------------------------------------------------------------------------------------


def test_a_job_from_post_to_its_run(call: Call) -> None:
    made = call("POST", JOBS, {"name": "j", "type": "print", "configJson": '{"message": "hi"}'}).json()
    fields = {"jobId", "name", "description", "type", "enabled", "version", "configJson", "createdAt", "updatedAt"}
    assert set(made) == fields
    assert json.loads(made["configJson"]) == {"message": "hi"}
    one = f"{JOBS}/{made['jobId']}"
    assert call("PUT", one, {**made, "configJson": {"message": "ho"}}).json()["version"] == 2
    assert refusal(call("PUT", one, made)) == (409, "job version conflict or not found", "VERSION_CONFLICT")
    assert refusal(call("POST", JOBS, {"name": "j", "type": "print", "configJson": {}}))[::2] == (400, "JOB_NAME_TAKEN")
    assert refusal(call("POST", JOBS, {"name": "k", "type": "?", "configJson": {}}))[::2] == (400, "JOB_INVALID")
    assert set(call("GET", f"{JOBS}?keyword=J").json()["items"][0]) == fields - {"configJson"}
    chain = new_chain(call, dag({"id": "a", "jobId": made["jobId"]}))
    run_id = call("POST", f"{CHAINS}/{chain['chainId']}:start").json()["runId"]
    (resolved,) = json.loads(call("GET", f"{RUNS}/{run_id}").json()["dagJson"])["nodes"]
    assert (resolved["type"], resolved["cfg"]) == ("print", {"message": "ho"})
    alone = call("POST", f"{one}:start").json()["runId"]
    assert call("GET", f"{RUNS}/{alone}").json()["jobName"] == "j"
    assert call("POST", f"{one}:disable").json()["enabled"] is False
    assert refusal(call("POST", f"{CHAINS}/{chain['chainId']}:start"))[::2] == (409, "JOB_UNAVAILABLE")
    assert refusal(call("POST", f"{one}:start")) == (409, "job is disabled", "JOB_DISABLED")


# -- documentation and metrics --------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_the_openapi_document_has_bodies_keys_and_the_cfg_of_each_node_type(api: Api, call: Call) -> None:
    document = api.client.get("/openapi.json").json()
    schemas, paths = document["components"]["schemas"], document["paths"]
    cfg = schemas["Dag"]["properties"]["nodes"]["items"]["properties"]
    for name in cfg["type"]["enum"]:
        assert schemas[f"NodeCfg.{name}"]["properties"]
    assert {"print", "http"} <= set(cfg["type"]["enum"])
    text = json.dumps(document)
    assert all(ref in schemas for ref in re.findall(r'"#/components/schemas/([^"]+)"', text))
    start = paths["/api/v1/chains/{chain_id}:start"]["post"]
    assert start["x-scopes"] == ["run:write", "run:control"]
    assert "Idempotency-Key" in [parameter["name"] for parameter in start["parameters"]]
    create = paths["/api/v1/chains"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert {"name", "dagJson"} <= set(create["required"])


def test_metrics_count_runs_and_time_nodes(api: Api, call: Call, engine: Engine) -> None:
    run_id = new_run(call)
    put(engine, run_id, RunStatus.RUNNING, a=NodeStatus.FAILED)
    call("POST", f"{RUNS}/{run_id}/nodes/a:retry")
    text = api.client.get("/metrics").text
    assert 'platform_chain_runs{status="RUNNING"} 1.0' in text
    assert 'platform_chain_runs{status="FAILED"} 0.0' in text
    assert "platform_chain_runs_started_last_hour 1.0" in text
    assert 'platform_chain_nodes_in_flight{status="RETRYING"} 1.0' in text
    assert "platform_chain_runs_without_work 0.0" in text
    with engine.begin() as connection:
        connection.execute(update(work).values(status="FAILED"))
        started = datetime(2026, 1, 1, tzinfo=UTC)
        for node_id, seconds in (("a", 1.5), ("b", 0.5)):
            times = {"started_at": started, "ended_at": started + timedelta(seconds=seconds)}
            connection.execute(update(job_run_node).where(job_run_node.c.node_id == node_id).values(times))
        counted = {metric.name: metric.samples for metric in ChainsCollector(engine)._look(connection)}
    assert [round(sample.value, 3) for sample in counted["platform_chain_node_seconds"]] == [1.0, 1.5]
    assert [sample.value for sample in counted["platform_chain_nodes_ended_last_hour"]] == [2.0]
    assert [sample.value for sample in counted["platform_chain_runs_without_work"]] == [1.0]
