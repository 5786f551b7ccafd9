"""What operators and machines ask: health, readiness, metrics, documentation."""

import logging
import re
from pathlib import Path

import pytest
from sqlalchemy import Engine
from sqlalchemy.engine import URL

from platform_defs.store.engine import open_engine
from tests.api.serving import Api, logged_requests, serve_api


def test_ready_means_that_database_migrations_and_graph_answer(api: Api) -> None:
    assert api.client.get("/healthz").json() == {"status": "ok"}
    answer = api.client.get("/readyz")
    assert answer.status_code == 200, answer.text
    assert answer.json()["status"] == "ready"
    assert {answer.json()["checks"][part] for part in ("database", "migrations", "graph")} == {"ok"}


def test_a_database_that_is_behind_is_not_ready_and_the_answer_names_the_command(database_url: URL) -> None:
    engine = open_engine(database_url)
    try:
        with serve_api(engine) as api:
            answer = api.client.get("/readyz")
            assert answer.status_code == 503
            assert "platform db upgrade" in answer.json()["error"]
            assert answer.json()["checks"]["database"] == "ok"
            assert api.client.get("/healthz").status_code == 200
    finally:
        engine.dispose()


def test_a_database_that_is_gone_is_not_ready_and_nothing_about_it_leaks(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine = open_engine("mysql+mysqlconnector://someone:hunter2@127.0.0.1:9/nowhere")
    try:
        with serve_api(engine) as api:
            answer = api.client.get("/readyz")
            assert answer.status_code == 503
            assert answer.json()["checks"]["database"] != "ok"
            assert not re.search("hunter2|someone|nowhere|127.0.0.1", answer.text)
            [said] = [record for record in caplog.records if record.getMessage().startswith("database is not ready: ")]
            assert said.exc_info is None, "one line for the operator, not a trace for every time that it is asked"
            assert "127.0.0.1:9" in said.getMessage()
            refused = api.client.post(
                "/api/openlineage", json={}, headers={"Authorization": "pk_0123456789abcdef_" + "0" * 48}
            )
            assert refused.status_code == 503
            assert refused.json()["status"] == "unavailable"
    finally:
        engine.dispose()


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_what_machines_ask_every_few_seconds_is_not_in_the_access_log(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for path in ("/healthz", "/readyz", "/metrics", "/nope"):
        api.client.get(path)
    assert [line["message"] for line in logged_requests(caplog, 1)] == ["GET /nope 404"]


@pytest.mark.needs("neo4j")
@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_a_graph_that_is_gone_is_not_ready_although_the_database_is(engine: Engine) -> None:
    with serve_api(engine, graph_url="bolt://127.0.0.1:9") as api:
        answer = api.client.get("/readyz")
        assert answer.status_code == 503
        assert answer.json()["checks"]["database"] == "ok"
        assert answer.json()["error"].startswith("graph: ")


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_metrics_count_requests_by_route_template_and_status(api: Api, authorization: dict[str, str]) -> None:
    api.client.get("/api/v1/chains/c1", headers=authorization)
    api.client.get("/api/v1/chains/c2", headers=authorization)
    api.client.get("/nope/1")
    api.client.request("TRACE", "/nope/2")
    text = api.client.get("/metrics").text
    counted = re.findall(r'platform_http_requests_total\{method="(\w+)",route="(.*?)",status="(\d+)"\} (\S+)', text)
    assert ("GET", "/api/v1/chains/{chain_id}", "400", "2.0") in counted
    assert ("GET", "unmatched", "404", "1.0") in counted
    assert ("OTHER", "unmatched", "404", "1.0") in counted
    assert "platform_http_request_seconds_bucket" in text
    assert "platform_http_requests_in_flight 1.0" in text


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_the_documentation_needs_no_other_host_and_lists_every_path(api: Api) -> None:
    page = api.client.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert not re.search(r"(src|href)\s*=\s*[\"'](https?:)?//", page.text)
    schema = api.client.get("/openapi.json").json()
    assert "/api/v1/runs/{run_id}/nodes/{node_id}:retry" in schema["paths"]
    operation = schema["paths"]["/api/openlineage"]["post"]
    assert operation["x-scopes"] == ["lineage:write"]
    assert {name for entry in operation["security"] for name in entry} == set(schema["components"]["securitySchemes"])
    assert not any("422" in op["responses"] for ops in schema["paths"].values() for op in ops.values())
