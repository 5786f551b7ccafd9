"""Every error takes the shape of the system that its path belongs to, and carries the request id."""

import logging
from typing import Annotated

import httpx
import mysql.connector
import pytest
from fastapi import Query
from sqlalchemy import text
from sqlalchemy.exc import DatabaseError

from platform_defs.api.http import error_handlers
from platform_defs.graph.errors import GraphUnavailable
from platform_defs.store.engine import read
from platform_defs.store.errors import StoreUnavailable
from tests.api.serving import Api
from tests.waiting import until

pytestmark = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)


@pytest.mark.parametrize(
    ("path", "shape"),
    [
        ("/api/openlineage/nope", {"status", "message"}),
        ("/api/openlineage/", {"status", "message"}),
        ("/api/open/kpi/nope", {"status", "message"}),
        ("/api/v1/nope", {"error", "errorCode"}),
        ("/api/v1", {"error", "errorCode"}),
        ("/api/openlineages", {"error"}),
        ("/nope", {"error"}),
    ],
)
def test_an_unknown_path_is_404_in_the_shape_of_its_system(api: Api, path: str, shape: set[str]) -> None:
    answer = api.client.get(path)
    assert answer.status_code == 404
    assert set(answer.json()) == shape
    assert set(answer.json().values()) & {"not_found", "NOT_FOUND"} or shape == {"error"}


@pytest.mark.parametrize(
    ("method", "path", "shape", "allow"),
    [
        ("GET", "/api/openlineage", {"status", "message"}, "POST"),
        ("PUT", "/api/open/kpi/srcTableComplete", {"status", "message"}, "POST"),
        ("DELETE", "/api/v1/chains", {"error", "errorCode"}, "GET, POST"),
        ("DELETE", "/api/v1/chains/c1", {"error", "errorCode"}, "GET, PUT"),
        ("GET", "/api/v1/chains/c1:start", {"error", "errorCode"}, "POST"),
        ("POST", "/healthz", {"error"}, "GET"),
        ("TRACE", "/healthz", {"error"}, "GET"),
    ],
)
def test_another_method_is_405_and_names_all_that_are_allowed(
    api: Api, method: str, path: str, shape: set[str], allow: str
) -> None:
    answer = api.client.request(method, path)
    assert answer.status_code == 405
    assert set(answer.json()) == shape
    assert answer.headers["allow"] == allow


def test_a_validation_error_is_400_and_names_the_field(api: Api) -> None:
    @api.app.get("/api/v1/validated")
    async def validated(page: Annotated[int, Query(ge=1)]) -> int:
        return page

    for query in ("", "?page=zero", "?page=0"):
        answer = api.client.get(f"/api/v1/validated{query}")
        assert answer.status_code == 400
        assert answer.json()["errorCode"] == "BAD_REQUEST"
        assert answer.json()["error"].startswith("page: ")


def test_an_unforeseen_error_is_500_with_the_request_id_and_without_detail(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    @api.app.post("/api/openlineage/fails")
    async def fails() -> None:
        raise RuntimeError("the password is hunter2")

    answer = api.client.post("/api/openlineage/fails", headers={"X-Request-Id": "trace-7"})
    assert answer.status_code == 500
    assert answer.json()["status"] == "internal_error"
    assert "trace-7" in answer.json()["message"]
    assert "hunter2" not in answer.text
    assert any(record.exc_info for record in caplog.records)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (StoreUnavailable("mysql at 10.0.0.1 is gone"), "the database does not answer; try again"),
        (GraphUnavailable("neo4j at 10.0.0.1 is gone"), "the graph does not answer; try again"),
        (
            DatabaseError("INSERT", None, mysql.connector.DatabaseError("server is read-only", 1290)),
            "the database refuses what it is asked; try again",
        ),
    ],
    ids=["database", "graph", "refusal"],
)
def test_a_store_that_does_not_answer_or_refuses_is_503_with_retry_after_and_named(
    api: Api, error: Exception, message: str
) -> None:
    @api.app.get("/api/v1/down")
    async def down() -> None:
        raise error

    answer = api.client.get("/api/v1/down")
    assert answer.status_code == 503
    assert answer.json()["errorCode"] == "UNAVAILABLE"
    assert answer.headers["retry-after"] == "1"
    assert answer.json()["error"] == message


def test_a_sane_request_id_is_kept_and_another_is_replaced(api: Api) -> None:
    def returned(sent: str) -> str:
        answer: httpx.Response = api.client.get("/healthz", headers={"X-Request-Id": sent})
        return str(answer.headers["x-request-id"])

    assert returned("0af7-65.a:b_c".replace("_", "-")) == "0af7-65.a:b-c"
    made = {returned(""), returned("x" * 65), returned("two words"), returned('{"a"}')}
    assert len(made) == 4
    assert all(len(identity) == 32 for identity in made)


def test_an_outage_is_a_line_of_the_log_now_and_then_and_not_a_trace_for_each_request(
    api: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    @api.app.get("/api/v1/away")
    async def away() -> None:
        raise StoreUnavailable("the database does not answer: it is gone")

    for _ in range(5):
        assert api.client.get("/api/v1/away").status_code == 503
    monkeypatch.setattr(error_handlers, "LOGGED_EVERY_S", 0.0)
    assert api.client.get("/api/v1/away").status_code == 503
    said = [record for record in caplog.records if record.name == error_handlers.__name__]
    assert [record.args for record in said] == [
        (number, "the database does not answer: it is gone") for number in (1, 5)
    ]
    assert not any(record.exc_info for record in said)
    assert "does not answer or refuses" in said[0].getMessage()


def test_a_mistake_in_a_statement_is_500_and_a_trace(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    @api.app.get("/api/v1/mistaken")
    def mistaken() -> None:
        read(api.engine, lambda connection: connection.execute(text("SELECT a_column_that_is_not_there")))

    assert api.client.get("/api/v1/mistaken").status_code == 500
    assert any(record.exc_info for record in caplog.records)


def test_requests_of_probes_are_no_lines_of_the_log_unless_they_fail(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for path in ("/healthz", "/readyz", "/metrics", "/openapi.json"):
        assert api.client.get(path).status_code == 200
    assert api.client.post("/healthz").status_code == 405

    def said() -> list[str]:
        lines = [record.getMessage() for record in caplog.records]
        return [line for line in lines if line.startswith(("GET", "POST"))]

    # a line is written when its answer has been sent
    until("the last line", lambda: "POST /healthz 405" in said())
    assert said() == ["GET /openapi.json 200", "POST /healthz 405"]
